//! `tidegate dlq replay`, killed again and again.

use std::{collections::BTreeMap, process::Command, time::Duration};

use tempfile::TempDir;
use tidegate::core::headers;
use tidegate_testkit::{Process, eventually};
use uuid::Uuid;

use super::stage::{Stage, header, states};

/// 10,000; 100,000 with `TIDEGATE_LONG=1`.
fn count() -> usize {
    if std::env::var_os("TIDEGATE_LONG").is_some() {
        100_000
    } else {
        10_000
    }
}

const KILLS: usize = 5;
const PATIENCE: Duration = Duration::from_secs(180);

fn replay(stage: &Stage, dir: &TempDir, arguments: &[&str]) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command
        .args(["dlq", "replay", "--as", "ann", "--reason", "mended"])
        .args(arguments)
        .current_dir(dir.path())
        .env_clear()
        .env("AMQP_URL", stage.broker.vhost.amqp_url())
        .env("DATABASE_URL", stage.db.url());
    Process::start("dlq replay", &mut command)
}

async fn sent(stage: &Stage) -> i64 {
    stage
        .db
        .one("SELECT coalesce(sum(sent), 0)::bigint FROM tidegate.replays")
        .await
}

/// Killed five times in the middle: each is delivered at least once and counted once, and none is in neither place.
#[tokio::test]
async fn a_replay_that_is_killed_five_times_sends_each_at_least_once() {
    let stage = Stage::create().await;
    let count = count();
    let rows = i64::try_from(count).unwrap();
    // Of a few thousand the next batch is the middle already.
    let apart = if rows > 10_000 { rows / 10 } else { 0 };
    let letters = stage.dead(count).await;
    let dir = tempfile::tempdir().unwrap();
    let mut process = replay(&stage, &dir, &["type=order.close", "--yes"]);
    let mut before = 0;
    for kill in 0..KILLS {
        eventually(PATIENCE, "some more to be sent", async || {
            sent(&stage).await > before + apart
        })
        .await;
        process.kill();
        before = sent(&stage).await;
        let now = stage.states().await;
        assert_eq!(now.values().sum::<i64>(), rows, "kill {kill}: {now:?}");
        assert!(before < rows, "kill {kill} came in the middle");
        // As the end of its time does.
        stage
            .db
            .execute("UPDATE tidegate.replays SET lease_until = clock_timestamp()")
            .await;
        let run: Uuid = stage.db.one("SELECT id FROM tidegate.replays").await;
        process = replay(&stage, &dir, &["--resume", &run.to_string()]);
    }
    eventually(PATIENCE, "the last one to end", async || !process.is_running()).await;
    let output = process.output();
    assert!(
        output.contains(&format!("{count} of {count} sent, 0 refused")),
        "{output}"
    );
    assert_eq!(stage.states().await, states([("REPLAYED", rows)]));
    assert_eq!(sent(&stage).await, rows, "each is counted once");

    let mut delivered: BTreeMap<String, usize> = BTreeMap::new();
    for delivery in stage.take(count).await {
        *delivered
            .entry(header(&delivery, headers::REPLAY_OF).unwrap())
            .or_default() += 1;
    }
    let missing: Vec<_> = letters
        .iter()
        .map(|letter| letter.id.to_string())
        .filter(|id| !delivered.contains_key(id))
        .collect();
    assert!(
        missing.is_empty(),
        "{} were not delivered: {missing:?}",
        missing.len()
    );
    let twice = delivered.values().filter(|times| **times > 1).count();
    println!("{twice} of {count} went out more than once");
    assert!(
        twice < count / 2,
        "only what was in flight at a kill goes out again: {twice}"
    );
}
