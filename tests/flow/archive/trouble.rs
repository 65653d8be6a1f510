//! The database goes away, a connection is lost between commit and acknowledgement, a row is refused.

use std::time::Duration;

use tidegate::{
    broker::BrokerSettings,
    deadletter::archivist::{ArchivistSettings, ROLE},
    telemetry::health::Part,
};
use tidegate_testkit::{Database, Proxy, eventually};

use super::archived::{Archive, die};
use crate::platform::{PATIENCE, Platform, envelope};

const QUEUE: &str = "task.dead.queue";

fn body(n: usize) -> String {
    envelope(&format!("t-{n}"), "order.close.timeout", "")
}

async fn waiting(platform: &Platform) -> u64 {
    platform.vhost.management().queue(QUEUE).await.unwrap().messages
}

#[tokio::test(flavor = "multi_thread")]
async fn while_postgres_is_away_dead_letters_wait_in_their_queue() {
    let platform = Platform::new().await;
    let database = Database::create().await;
    let proxy = Proxy::before(database.url()).await;
    let through = proxy.url(database.url());
    let archive = Archive::through(&platform, database, platform.settings.clone(), through).await;
    archive.start();
    let channel = platform.channel().await;
    die(&channel, body(0).as_bytes()).await;
    archive.letters(1).await;

    // Refused from now on, and what stands is ended.
    proxy.lead_to("postgres://127.0.0.1:1/none");
    proxy.close_connections();
    for n in 1..120 {
        die(&channel, body(n).as_bytes()).await;
    }
    eventually(PATIENCE, "readiness to be red", async || {
        matches!(archive.health.parts().get(ROLE), Some(Part::Down(_)))
    })
    .await;
    eventually(PATIENCE, "all of them in the queue", async || {
        waiting(&platform).await == 119
    })
    .await;
    assert_eq!(archive.count().await, 1);

    proxy.lead_to(&sqlx_url(&archive).await);
    archive.letters(120).await;
    platform.drained(QUEUE).await;
    eventually(PATIENCE, "readiness to be green", async || {
        archive.health.is_ready()
    })
    .await;
    archive.close().await;
    platform.close().await;
}

/// Where the database is.
async fn sqlx_url(archive: &Archive) -> String {
    let options = archive.sql.connect_options();
    format!("postgres://{}:{}/x", options.get_host(), options.get_port())
}

/// An archivist's connection is lost after its commit and before the broker hears of it, as if it had been killed: all comes
/// again, and is there already.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_lost_between_commit_and_acknowledgement_is_archived_once() {
    let platform = Platform::new().await;
    let broker = Proxy::before(platform.vhost.amqp_url()).await;
    let settings = BrokerSettings::new(broker.url(platform.vhost.amqp_url()).into());
    let database = Database::create().await;
    let url = database.url().to_owned();
    let archive = Archive::through(&platform, database, settings, url).await;
    let channel = platform.channel().await;
    for n in 0..40 {
        die(&channel, body(n).as_bytes()).await;
    }
    // Held before its commit, by a lock on what it counts in.
    let mut hold = archive.sql.begin().await.unwrap();
    sqlx::query("LOCK TABLE tidegate.dead_letter_counts IN ACCESS EXCLUSIVE MODE")
        .execute(&mut *hold)
        .await
        .unwrap();
    archive.start();
    eventually(PATIENCE, "the archivist to wait for its commit", async || {
        let waiting: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
        )
        .fetch_one(&archive.sql)
        .await
        .unwrap();
        waiting > 0
    })
    .await;
    broker.silence();
    hold.rollback().await.unwrap();
    let first = archive.letters(40).await;
    // Acknowledged into nowhere. What the broker tells of its queues may be some seconds old.
    eventually(PATIENCE, "all of them unacknowledged in the queue", async || {
        waiting(&platform).await == 40
    })
    .await;
    broker.close_connections();
    broker.resume();
    platform.drained(QUEUE).await;
    let ids = |letters: &[super::archived::Letter]| letters.iter().map(|l| l.id).collect::<Vec<_>>();
    assert_eq!(ids(&archive.letters(40).await), ids(&first));
    archive.close().await;
    platform.close().await;
}

/// Three of fifty are refused. The others are archived and acknowledged; the three stay in the queue, are not tried in circles, and
/// come in once nobody refuses them any more.
#[tokio::test(flavor = "multi_thread")]
async fn what_postgres_refuses_stays_in_the_queue_and_stops_nobody() {
    let platform = Platform::new().await;
    let archive = Archive::of(&platform).await;
    for sql in [
        // Sequences don't go back with their transaction.
        "CREATE SEQUENCE public.tried",
        "CREATE FUNCTION public.no() RETURNS trigger LANGUAGE plpgsql AS $$ \
         BEGIN PERFORM nextval('public.tried'); RAISE EXCEPTION 'not this one'; END $$",
        "CREATE TRIGGER no BEFORE INSERT ON tidegate.dead_letters FOR EACH ROW \
         WHEN (NEW.task_id IN ('t-7', 't-8', 't-31')) EXECUTE FUNCTION public.no()",
    ] {
        sqlx::query(sql).execute(&archive.sql).await.unwrap();
    }
    let channel = platform.channel().await;
    for n in 0..50 {
        die(&channel, body(n).as_bytes()).await;
    }
    let settings = || ArchivistSettings {
        batch: 50,
        linger: Duration::from_millis(50),
        ..ArchivistSettings::default()
    };
    let stop = archive.start_with(settings());
    archive.letters(47).await;
    eventually(PATIENCE, "three to be left", async || {
        waiting(&platform).await == 3
    })
    .await;
    let tries = async || -> i64 {
        sqlx::query_scalar("SELECT last_value FROM public.tried")
            .fetch_one(&archive.sql)
            .await
            .unwrap()
    };
    let before = tries().await;
    // Those that come after them are archived, and they are not tried with each of them.
    for n in 50..60 {
        die(&channel, body(n).as_bytes()).await;
        archive.letters(47 + n - 49).await;
    }
    assert_eq!(tries().await, before);
    eventually(PATIENCE, "three to be held, unacknowledged", async || {
        let queue = platform.vhost.management().queue(QUEUE).await.unwrap();
        (queue.messages_ready, queue.messages_unacknowledged) == (0, 3)
    })
    .await;
    assert_eq!(tries().await, before);
    stop.cancel();
    sqlx::query("DROP TRIGGER no ON tidegate.dead_letters")
        .execute(&archive.sql)
        .await
        .unwrap();
    archive.start_with(settings());
    let letters = archive.letters(60).await;
    let ids: std::collections::BTreeSet<_> = letters.into_iter().map(|l| l.task_id).collect();
    assert_eq!(ids.len(), 60);
    platform.drained(QUEUE).await;
    archive.close().await;
    platform.close().await;
}
