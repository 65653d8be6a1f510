//! B38: the broker blocks publishers because of a memory alarm.

use std::{collections::BTreeSet, time::Duration};

use futures::future::join_all;
use lapin::options::BasicGetOptions;
use tidegate::{
    core::{
        envelope::{Envelope, Limits},
        headers::Origin,
    },
    publish::{SendError, Task},
};
use tidegate_testkit::{PrivateServices, eventually};
use tokio::time::Instant;

use crate::installation::{Installation, PATIENCE, WORK, WORK_QUEUE};

const TASKS: usize = 50;

/// Longest wait of one publish, as configured below.
const CONFIRM: Duration = Duration::from_secs(4);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocked_broker_hangs_nobody_and_loses_nothing() {
    let began = Instant::now();
    let services = PrivateServices::start().await;
    let installation = Installation::on(services.services()).await;
    let sql = installation.sql();
    let mut settings = installation.broker();
    settings.confirm_timeout = CONFIRM;
    let publisher = installation.publisher(&settings);
    let arguments = ["--set", "amqp.confirm_timeout=4s", "--grace", "20s"];
    let mut server = installation.serve(&arguments).await;
    server.wait_ready().await;
    // The connections stand before the alarm.
    publisher.send(task("before"), Duration::ZERO).await.unwrap();

    services
        .rabbitmqctl(&["set_vm_memory_high_watermark", "0.000001"])
        .await;
    // The broker looks at its memory once a second.
    let management = installation.vhost.management();
    eventually(PATIENCE, "the memory alarm", async || {
        let nodes = management.get("/api/nodes").await?;
        (nodes[0]["mem_alarm"] == true).then_some(())
    })
    .await;
    let started = Instant::now();
    let sends = (0..TASKS).map(|n| publisher.send(task(&format!("task-{n}")), Duration::ZERO));
    let outcomes = join_all(sends).await;
    let waited = started.elapsed();
    assert!(
        waited < CONFIRM + Duration::from_secs(3),
        "publishes took {waited:?}"
    );
    let unknown = outcomes
        .iter()
        .filter(|outcome| matches!(outcome, Err(SendError::Unknown(_))))
        .count();
    assert_eq!(unknown, TASKS, "{outcomes:?}");

    sqlx::query(
        "INSERT INTO tidegate.tasks (task_id, task_type, envelope) SELECT 'row-' || n, $1, \
         format('{\"taskId\":\"row-%s\",\"taskType\":\"%s\",\"payload\":{}}', n, $1) FROM generate_series(1, 50) n",
    )
    .bind(WORK)
    .execute(&sql)
    .await
    .unwrap();
    eventually(PATIENCE, "readiness to turn red", async || {
        server.readyz().await.0 == 503
    })
    .await;
    let (_, why) = server.readyz().await;
    // At once by what the broker says, and with what it means for tasks once a batch has had no answer.
    assert!(why.contains("the broker blocks publishers"), "{why}");
    // It stays told for as long as it lasts, through several attempts to publish.
    let watched = Instant::now();
    while watched.elapsed() < Duration::from_secs(9) {
        let blocked = server
            .metric("tidegate_amqp_connection_blocked{purpose=\"publish\"}")
            .await;
        assert_eq!(
            blocked,
            Some(1.0),
            "the gauge {:?} after the alarm was seen",
            watched.elapsed()
        );
        assert_eq!(server.readyz().await.0, 503);
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    let states = "SELECT count(*) FROM tidegate.tasks WHERE state = 'PENDING' AND task_id LIKE 'row-%'";
    assert_eq!(
        sqlx::query_scalar::<_, i64>(states)
            .fetch_one(&sql)
            .await
            .unwrap(),
        50,
        "rows wait in the ledger"
    );

    let stopping = Instant::now();
    server.process.terminate();
    let status = server.process.wait(Duration::from_secs(25)).await;
    let stopped = stopping.elapsed();
    assert!(status.success(), "{status}:\n{}", server.process.output());
    assert!(stopped < Duration::from_secs(20), "it took {stopped:?} to stop");

    // One that starts meanwhile is no better informed.
    let server = installation.serve(&arguments).await;
    services
        .rabbitmqctl(&["set_vm_memory_high_watermark", "0.4"])
        .await;
    let restored = Instant::now();
    // Under the same ids, as nobody knows which have got through.
    let resends = (0..TASKS).map(|n| {
        let (publisher, task) = (&publisher, task(&format!("task-{n}")));
        async move {
            eventually(PATIENCE, "a confirmed publish", async || {
                publisher.send(task.clone(), Duration::ZERO).await.is_ok()
            })
            .await
        }
    });
    join_all(resends).await;
    let confirmed = restored.elapsed();
    eventually(PATIENCE, "every row to be handed over", async || {
        let left = "SELECT count(*) FROM tidegate.tasks WHERE state <> 'PUBLISHED'";
        sqlx::query_scalar::<_, i64>(left).fetch_one(&sql).await.unwrap() == 0
    })
    .await;
    let handed_over = restored.elapsed();
    server.wait_ready().await;
    assert_eq!(
        server
            .metric("tidegate_amqp_connection_blocked{purpose=\"publish\"}")
            .await,
        Some(0.0)
    );

    let (_connection, channel) = installation.channel().await.unwrap();
    let mut ids = Vec::new();
    while let Some(got) = channel
        .basic_get(WORK_QUEUE.into(), BasicGetOptions { no_ack: true })
        .await
        .unwrap()
    {
        ids.push(
            got.delivery
                .properties
                .message_id()
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
        );
    }
    let unique: BTreeSet<&String> = ids.iter().collect();
    assert_eq!(
        unique.len(),
        1 + TASKS + 50,
        "every task is on the queue: {unique:?}"
    );
    tidegate_testkit::report(&format!(
        "memory alarm: {TASKS} publishes of unknown outcome after {waited:.1?}; serve stopped in {stopped:.1?} while blocked; \
         after the alarm all confirmed in {confirmed:.1?}, rows handed over in {handed_over:.1?}; {} ids, {} second copies; took {:.1?}",
        unique.len(),
        ids.len() - unique.len(),
        began.elapsed()
    ));
}

fn task(id: &str) -> Task {
    let body = format!(r#"{{"taskId":"{id}","taskType":"{WORK}","payload":{{}}}}"#);
    let envelope = Envelope::parse(body.as_bytes(), &Limits::standard(), chrono::Utc::now()).unwrap();
    Task::new(body, &envelope, Origin::Amqp)
}
