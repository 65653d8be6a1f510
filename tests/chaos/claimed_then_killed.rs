//! B59: an occurrence is recorded, and the server dies before the broker has its task.

use std::time::Duration;

use chrono::Utc;
use lapin::options::BasicGetOptions;
use tidegate_testkit::{PrivateServices, eventually};
use tokio::time::Instant;

use crate::{
    installation::{Installation, PATIENCE, TICK_QUEUE},
    schedules::Schedules,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_claimed_before_a_kill_is_published_after_it() {
    let began = Instant::now();
    let services = PrivateServices::start().await;
    let installation = Installation::on(services.services()).await;
    let sql = installation.sql();
    let mut server = installation.serve(&[]).await;
    server.wait_ready().await;
    let schedules = Schedules::register(&sql, &[2, 3, 5], Duration::from_secs(15)).await;
    // Frozen, not dead: connections stand, and publishes get no answer.
    services.pause_broker().await;
    let recorded = "SELECT count(*) FROM tidegate.cron_fires";
    let mut kills = 0;
    let mut seen = 0;
    while Utc::now() < schedules.ends_at {
        eventually(PATIENCE, "occurrences to be recorded", async || {
            let now: i64 = sqlx::query_scalar(recorded).fetch_one(&sql).await.unwrap();
            let more = now > seen;
            seen = now;
            more || Utc::now() > schedules.ends_at
        })
        .await;
        server.process.kill();
        kills += 1;
        server = installation.serve(&[]).await;
    }
    let handed_over: i64 = sqlx::query_scalar("SELECT count(*) FROM tidegate.tasks WHERE state <> 'PENDING'")
        .fetch_one(&sql)
        .await
        .unwrap();
    assert_eq!(
        handed_over, 0,
        "a broker that does not answer has confirmed nothing"
    );
    assert_eq!(server.readyz().await.0, 503, "not ready without a broker");
    services.resume_broker().await;
    let resumed = Instant::now();
    schedules.ended(&sql, PATIENCE).await;
    eventually(PATIENCE, "all tasks to be handed over", async || {
        let left = "SELECT count(*) FROM tidegate.tasks WHERE state = 'PENDING'";
        sqlx::query_scalar::<_, i64>(left).fetch_one(&sql).await.unwrap() == 0
    })
    .await;
    let caught_up = resumed.elapsed();
    server.wait_ready().await;
    let fires = schedules.verified(&sql).await;
    let (_connection, channel) = installation.channel().await.unwrap();
    let mut ids: Vec<String> = Vec::new();
    while let Some(got) = channel
        .basic_get(TICK_QUEUE.into(), BasicGetOptions { no_ack: true })
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
    let messages = ids.len();
    ids.sort();
    ids.dedup();
    let mut expected: Vec<String> = fires.iter().filter_map(|fire| fire.task_id.clone()).collect();
    expected.sort();
    assert_eq!(ids, expected, "each instant is on the queue");
    tidegate_testkit::report(&format!(
        "claimed, then killed: {kills} kills; {} instants, each on the queue, {} second copies; handed over {caught_up:.1?} \
         after the broker was back; took {:.1?}",
        expected.len(),
        messages - expected.len(),
        began.elapsed()
    ));
}
