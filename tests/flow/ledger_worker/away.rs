//! The ledger is away: what may have been cancelled waits, everything else goes on.

use std::{sync::Arc, time::Duration};

use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tidegate::{
    telemetry::health::{Health, Part},
    worker::{Context, TaskError},
};
use tidegate_core::headers::Origin;
use tidegate_testkit::{Database, eventually, services};
use tokio::{sync::Semaphore, time::Instant};

use super::installation::{Installation, QUEUE, TASK};
use crate::platform::{PATIENCE, Seen, envelope, noting};

/// Lets nobody in to the database and ends every session, or lets all in again.
pub(crate) async fn admit(database: &Database, admitted: bool) {
    let (_, name) = database
        .url()
        .split('?')
        .next()
        .unwrap()
        .rsplit_once('/')
        .unwrap();
    let mut admin = PgConnection::connect(&services().database).await.unwrap();
    // The connection limit does not bind a superuser.
    let allow = format!("ALTER DATABASE {name} ALLOW_CONNECTIONS {admitted}");
    sqlx::query(AssertSqlSafe(allow))
        .execute(&mut admin)
        .await
        .unwrap();
    if !admitted {
        sqlx::query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1")
            .bind(name)
            .execute(&mut admin)
            .await
            .unwrap();
    }
}

fn part(health: &Health, part: &str) -> Option<Part> {
    health.parts().remove(part)
}

#[tokio::test(flavor = "multi_thread")]
async fn starts_wait_for_the_ledger_and_what_is_not_of_it_goes_on() {
    let mut installation = Installation::without_relay().await;
    let (seen, health) = (Seen::default(), Health::default());
    // No tables yet.
    installation.platform.run(
        installation
            .worker()
            .health(health.clone())
            .concurrency(1)
            .prefetch(2)
            .handle(TASK, noting(&seen)),
    );
    for id in ["a", "b", "c"] {
        installation.publish(id).await;
    }
    let amqp = crate::platform::task(&envelope("amqp", TASK, ""));
    assert_eq!(amqp.origin, Origin::Amqp);
    installation
        .platform
        .tasks
        .send(amqp, Duration::ZERO)
        .await
        .unwrap();
    seen.wait(1).await;
    eventually(
        PATIENCE,
        "red",
        async || matches!(part(&health, "ledger"), Some(Part::Down(why)) if why.contains("tidegate migrate")),
    )
    .await;
    assert!(!health.is_ready());
    assert_eq!(seen.ids(), ["amqp"]);
    installation.store.migrate().await.unwrap();
    installation.start_relay();
    let starts = seen.wait(4).await;
    assert!(
        starts.iter().all(|start| start.attempt == 1),
        "waiting is no attempt"
    );
    eventually(PATIENCE, "green", async || health.is_ready()).await;
    installation.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_waits_for_the_ledger_can_be_stopped() {
    let installation = Installation::without_relay().await;
    let (seen, health) = (Seen::default(), Health::default());
    let worker = installation.worker().health(health.clone());
    let stop = installation.platform.run(worker.handle(TASK, noting(&seen)));
    installation.publish("t").await;
    eventually(PATIENCE, "the delivery to be waited with", async || {
        let queue = installation.platform.vhost.management().queue(QUEUE).await;
        queue.is_some_and(|queue| queue.messages == 1 && queue.messages_ready == 0)
    })
    .await;
    stop.cancel();
    let back = installation.platform.take(QUEUE, 1).await;
    assert_eq!(tidegate::broker::message::attempt(&back[0].properties), 1);
    assert!(seen.all().is_empty());
    installation.close().await;
}

/// A result waits for the ledger some seconds; its task is done whatever the ledger does.
#[tokio::test(flavor = "multi_thread")]
async fn a_result_is_told_when_the_ledger_is_back() {
    let installation = Installation::new().await;
    let (release, seen) = (Arc::new(Semaphore::new(0)), Seen::default());
    let handler = {
        let (release, seen) = (release.clone(), seen.clone());
        move |context: Context| {
            seen.note(&context);
            let release = release.clone();
            async move {
                if context.envelope.task_id.as_str() == "t" {
                    release.acquire().await?.forget();
                }
                Ok::<(), TaskError>(())
            }
        }
    };
    let health = Health::default();
    let worker = installation.worker().health(health.clone()).concurrency(1);
    installation.platform.run(worker.handle(TASK, handler));
    installation.insert(&["t"]).await;
    installation.reaches("t", "RUNNING").await;
    let next = envelope("next", TASK, "");
    installation.platform.send(&next, Duration::ZERO).await.unwrap();
    admit(&installation.database, false).await;
    let began = Instant::now();
    release.add_permits(1);
    // There is one slot: the next starts once the first is acknowledged.
    seen.wait(2).await;
    assert!(
        began.elapsed() >= Duration::from_secs(4),
        "it waited for the ledger first"
    );
    assert!(matches!(part(&health, "ledger results"), Some(Part::Down(_))));
    admit(&installation.database, true).await;
    installation.reaches("t", "SUCCESS").await;
    eventually(PATIENCE, "green", async || health.is_ready()).await;
    installation.close().await;
}
