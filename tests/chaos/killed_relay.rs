//! B41: the server is killed in the middle of 1,000 due tasks; its successor, or a second instance, drains the rest within
//! seconds, each under its own id. A server that is frozen instead loses its rows as soon as it should have been heard of.

use std::{collections::BTreeMap, process::Command, time::Duration};

use lapin::options::BasicGetOptions;
use sqlx::PgPool;
use tidegate_testkit::{PrivateServices, eventually, services};
use tokio::time::Instant;

use crate::installation::{Installation, PATIENCE, WORK_QUEUE};

const TASKS: i64 = 1_000;

/// Longest time until everything is handed over, counted from the start of the successor, or from the kill where another
/// instance is alive.
const DRAINED_WITHIN: Duration = Duration::from_secs(10);

/// Small batches and one row at a time on the wire, so that a kill falls into the middle.
const SLOWLY: &[&str] = &["--set", "relay.batch=20"];

async fn enqueue(sql: &PgPool) {
    sqlx::query("SELECT count(tidegate.enqueue('chaos.work', '{}', task_id => 't' || n)) FROM generate_series(1, $1) n")
        .bind(TASKS)
        .execute(sql)
        .await
        .unwrap();
}

async fn pending(sql: &PgPool) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM tidegate.tasks WHERE state = 'PENDING'")
        .fetch_one(sql)
        .await
        .unwrap()
}

async fn drained(sql: &PgPool, since: Instant) -> Duration {
    eventually(PATIENCE, "no pending task", async || pending(sql).await == 0).await;
    let took = since.elapsed();
    assert!(took < DRAINED_WITHIN, "drained {took:?} after the kill");
    took
}

/// How many messages each task has on the queue.
async fn copies(installation: &Installation) -> BTreeMap<String, usize> {
    let (_connection, channel) = installation.channel().await.unwrap();
    let mut copies = BTreeMap::new();
    while let Some(got) = channel
        .basic_get(WORK_QUEUE.into(), BasicGetOptions { no_ack: true })
        .await
        .unwrap()
    {
        let id = got.delivery.properties.message_id().as_ref().unwrap().to_string();
        *copies.entry(id).or_default() += 1;
    }
    copies
}

async fn kill_in_the_middle(two: bool) {
    let installation = Installation::on(&services()).await;
    let sql = installation.sql();
    let mut first = installation.serve(SLOWLY).await;
    first.wait_ready().await;
    let second = if two {
        let second = installation.serve(SLOWLY).await;
        second.wait_ready().await;
        Some(second)
    } else {
        None
    };
    enqueue(&sql).await;
    let left = eventually(PATIENCE, "some to be handed over", async || {
        let left = pending(&sql).await;
        (left < TASKS).then_some(left)
    })
    .await;
    first.process.kill();
    let (killed, left_at_kill) = (Instant::now(), pending(&sql).await);
    let (since, _server) = match second {
        Some(second) => (killed, second),
        None => (Instant::now(), installation.serve(&[]).await),
    };
    let took = drained(&sql, since).await;
    let copies = copies(&installation).await;
    assert_eq!(copies.len() as i64, TASKS, "each at least once, under its own id");
    let twice = copies.values().filter(|n| **n > 1).count();
    tidegate_testkit::report(&format!(
        "killed in the middle of {TASKS} tasks ({} alive): {left} and {left_at_kill} left around the kill, drained after {took:.1?}, \
         {twice} sent twice",
        if two { "another" } else { "none" }
    ));
    assert!(left_at_kill > 0 || two, "the kill came too late to mean anything");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_successor_drains_what_a_killed_relay_left() {
    kill_in_the_middle(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_instance_drains_what_a_killed_relay_left() {
    kill_in_the_middle(true).await;
}

fn signal(name: &str, pid: u32) {
    let status = Command::new("kill").args(["-s", name, &pid.to_string()]).status();
    assert!(status.unwrap().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_server_loses_its_rows() {
    let services = PrivateServices::start().await;
    let installation = Installation::on(services.services()).await;
    let sql = installation.sql();
    let mut server = installation.serve(&["--set", "amqp.confirm_timeout=2s"]).await;
    server.wait_ready().await;
    // No confirm comes: for two seconds of each try the row is in the relay's hands.
    services.pause_broker().await;
    sqlx::query("SELECT tidegate.enqueue('chaos.work', '{}', task_id => 't')")
        .execute(&sql)
        .await
        .unwrap();
    let in_hand = async || {
        let announced = "SELECT EXISTS (SELECT FROM tidegate.handovers)";
        sqlx::query_scalar::<_, bool>(announced)
            .fetch_one(&sql)
            .await
            .unwrap()
    };
    eventually(PATIENCE, "a server frozen over the task", async || {
        if !in_hand().await {
            return false;
        }
        signal("STOP", server.process.id());
        let frozen = in_hand().await;
        if !frozen {
            signal("CONT", server.process.id());
        }
        frozen
    })
    .await;
    let frozen = Instant::now();
    let answer = eventually(PATIENCE, "the row to be free", async || {
        let answer = sqlx::query_scalar::<_, String>("SELECT tidegate.cancel('t')");
        answer.fetch_one(&sql).await.ok()
    })
    .await;
    let took = frozen.elapsed();
    assert_eq!(answer, "canceled_in_flight", "the broker may have it");
    assert!(took < Duration::from_secs(12), "{took:?}");
    server.process.kill();
    services.resume_broker().await;
    tidegate_testkit::report(&format!(
        "a frozen server's row was free after {took:.1?} (2 s for the confirm, 5 s for a sign of life)"
    ));
}
