//! Several schedulers on one ledger: no occurrence is missing and none is there twice, whoever dies.

use std::{collections::BTreeMap, time::Duration};

use lapin::options::BasicGetOptions;
use rand::{Rng, SeedableRng, rngs::StdRng};
use tidegate_testkit::{eventually, services};
use tokio::time::Instant;

use crate::{
    installation::{Installation, PATIENCE, TICK_QUEUE},
    schedules::{Fire, Schedules},
    seed,
    server::Server,
};

/// 20 rows of 1 to 10 seconds.
const PERIODS: [u32; 20] = [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10];

const ROLES: [&str; 2] = ["--roles", "scheduler,relay"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_schedulers_lose_and_double_nothing_while_one_is_killed() {
    let (seed, began) = (seed(), Instant::now());
    let span = if crate::is_long() { 120 } else { 25 };
    let mut random = StdRng::seed_from_u64(seed);
    let installation = Installation::on(&services()).await;
    let sql = installation.sql();
    let mut servers = [installation.serve(&ROLES).await, installation.serve(&ROLES).await];
    let schedules = Schedules::register(&sql, &PERIODS, Duration::from_secs(span)).await;
    let until = Instant::now() + (schedules.ends_at - chrono::Utc::now()).to_std().unwrap();
    let mut kills = 0;
    while Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(random.random_range(1_500..4_000))).await;
        let one = &mut servers[random.random_range(0..2)];
        one.process.kill();
        kills += 1;
        tokio::time::sleep(Duration::from_millis(random.random_range(0..1_000))).await;
        *one = installation.serve(&ROLES).await;
    }
    schedules.ended(&sql, PATIENCE).await;
    let fires = schedules.verified(&sql).await;
    let copies = on_the_queue(&installation, &fires).await;
    tidegate_testkit::report(&format!(
        "two schedulers: TIDEGATE_SEED={seed}\n  kills {kills}; occurrences {}, each recorded once; on the queue {} ids, {copies} \
         second copies\n  latest record {:?} after its time, {} later than a second; took {:.1?}",
        fires.len(),
        fires.len(),
        latest(&fires),
        fires
            .iter()
            .filter(|fire| (fire.recorded_at - fire.at).num_seconds() >= 1)
            .count(),
        began.elapsed(),
    ));
    stop(servers).await;
}

/// B57: five instances with nothing to tell them apart but their process start at the same moment, on rows that are due.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_instances_that_start_at_once_fire_each_occurrence_once() {
    let began = Instant::now();
    let installation = Installation::on(&services()).await;
    let sql = installation.sql();
    let mut first = installation.serve(&ROLES).await;
    let schedules = Schedules::register(&sql, &PERIODS, Duration::from_secs(12)).await;
    first.process.kill();
    // So that all five find the same rows due.
    let start = (schedules.starts_at - chrono::Utc::now())
        .to_std()
        .unwrap_or_default()
        + Duration::from_secs(2);
    tokio::time::sleep(start).await;
    let one = || installation.serve(&ROLES);
    let (a, b, c, d, e) = tokio::join!(one(), one(), one(), one(), one());
    schedules.ended(&sql, PATIENCE).await;
    let fires = schedules.verified(&sql).await;
    let copies = on_the_queue(&installation, &fires).await;
    assert_eq!(copies, 0, "nobody died, so nothing is published twice");
    let lag = latest(&fires);
    tidegate_testkit::report(&format!(
        "five instances: occurrences {}, each recorded and published once; latest {lag:?} after its time; took {:.1?}",
        fires.len(),
        began.elapsed()
    ));
    stop([a, b, c, d, e]).await;
}

/// Waits until the relays have handed everything over, then compares the queue with the ledger by task id. Returns how many
/// second copies there are.
async fn on_the_queue(installation: &Installation, fires: &[Fire]) -> usize {
    let sql = installation.sql();
    eventually(PATIENCE, "all tasks to be handed over", async || {
        let left = "SELECT count(*) FROM tidegate.tasks WHERE state <> 'PUBLISHED'";
        sqlx::query_scalar::<_, i64>(left).fetch_one(&sql).await.unwrap() == 0
    })
    .await;
    assert!(fires.iter().all(|fire| fire.outcome == "FIRED"), "{fires:?}");
    let mut copies: BTreeMap<String, usize> = fires
        .iter()
        .filter_map(|f| Some((f.task_id.clone()?, 0)))
        .collect();
    assert_eq!(
        copies.len(),
        fires.len(),
        "every occurrence has a task of its own"
    );
    let (_connection, channel) = installation.channel().await.unwrap();
    while let Some(got) = channel
        .basic_get(TICK_QUEUE.into(), BasicGetOptions { no_ack: true })
        .await
        .unwrap()
    {
        let id = got
            .delivery
            .properties
            .message_id()
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default();
        *copies
            .get_mut(&id)
            .unwrap_or_else(|| panic!("a task of no occurrence: {id:?}")) += 1;
    }
    let missing: Vec<_> = copies.iter().filter(|(_, copies)| **copies == 0).collect();
    assert!(missing.is_empty(), "not on the queue: {missing:?}");
    copies.values().sum::<usize>() - copies.len()
}

fn latest(fires: &[Fire]) -> Duration {
    fires
        .iter()
        .filter_map(|fire| (fire.recorded_at - fire.at).to_std().ok())
        .max()
        .unwrap_or_default()
}

async fn stop<const N: usize>(servers: [Server; N]) {
    for mut server in servers {
        server.process.terminate();
        let status = server.process.wait(PATIENCE).await;
        assert!(status.success(), "{status}:\n{}", server.process.output());
    }
}
