//! What it costs: claims and completions of what is in flight share their statements.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::stage::{BY_KEY, LEASE, Stage, handling};
use crate::{
    ledger_worker::installation::Counting,
    platform::{Seen, noting},
};

fn of(count: &AtomicUsize) -> usize {
    count.load(Ordering::SeqCst)
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_share_the_statements_about_their_keys() {
    const TASKS: usize = 2_000;
    let stage = Stage::new().await;
    let ids: Vec<String> = (0..TASKS).map(|n| format!("t{n}")).collect();
    futures::future::join_all(ids.iter().map(|id| stage.send(BY_KEY, id, id, ""))).await;
    let (ledger, counts) = Counting::new(stage.ledger());
    let seen = Seen::default();
    let worker = stage.worker().ledger(ledger).concurrency(200).prefetch(400);
    stage.platform.run(worker.handle(BY_KEY, noting(&seen)));
    seen.wait(TASKS).await;
    stage.settled().await;
    tidegate_testkit::report(&format!(
        "{TASKS} tasks: {} statements for {} claims, {} for {} completions; largest batch {}",
        of(&counts.claims),
        of(&counts.claimed),
        of(&counts.completes),
        of(&counts.completed),
        of(&counts.largest)
    ));
    assert_eq!(seen.all().len(), TASKS, "each ran once");
    assert!(of(&counts.claims) < TASKS / 4, "{}", of(&counts.claims));
    assert!(of(&counts.completes) < TASKS / 4, "{}", of(&counts.completes));
    assert!(of(&counts.largest) <= 200);
    let done: i64 = sqlx::query_scalar("SELECT count(*) FROM tidegate.executions WHERE state = 'DONE'")
        .fetch_one(&stage.sql)
        .await
        .unwrap();
    assert_eq!(done, TASKS as i64);
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn renewals_share_a_statement_and_short_tasks_need_none() {
    let stage = Stage::new().await;
    let (ledger, counts) = Counting::new(stage.ledger());
    let worker = stage.worker().ledger(ledger).concurrency(50);
    stage.platform.run(handling(worker, &stage.sql));
    stage.send(BY_KEY, "short", "short", "").await;
    stage.done("short").await;
    assert_eq!(of(&counts.renews), 0);
    let long = format!(r#","ms":{}"#, LEASE.as_millis() * 2);
    let ids: Vec<String> = (0..50).map(|n| format!("long{n}")).collect();
    futures::future::join_all(ids.iter().map(|id| stage.send(BY_KEY, id, id, &long))).await;
    for id in &ids {
        stage.done(id).await;
    }
    stage.settled().await;
    let (statements, renewals) = (of(&counts.renews), of(&counts.renewed));
    assert!(
        renewals >= 50 * 4,
        "{renewals} renewals in {statements} statements"
    );
    assert!(
        statements < renewals / 4,
        "{renewals} renewals in {statements} statements"
    );
    stage.close().await;
}
