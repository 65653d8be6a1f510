//! What following every task costs: batches, never a statement per task.

use std::{sync::atomic::Ordering, time::Duration};

use super::installation::{Counting, Installation, TASK};
use crate::platform::{Seen, noting};

#[tokio::test(flavor = "multi_thread")]
async fn tasks_share_their_statements() {
    const TASKS: usize = 2_000;
    let installation = Installation::new().await;
    let (ledger, counts) = Counting::new(installation.ledger());
    let seen = Seen::default();
    let worker = installation
        .worker()
        .ledger(ledger)
        .concurrency(200)
        .prefetch(400);
    let stop = installation.platform.run(worker.handle(TASK, noting(&seen)));
    let ids: Vec<String> = (0..TASKS).map(|n| format!("t{n}")).collect();
    installation
        .insert(&ids.iter().map(String::as_str).collect::<Vec<_>>())
        .await;
    installation.all_reach("SUCCESS", TASKS as i64).await;
    stop.cancel();
    let of = |count: &std::sync::atomic::AtomicUsize| count.load(Ordering::SeqCst);
    tidegate_testkit::report(&format!(
        "{TASKS} tasks: {} statements for {} claims (some met a locked row and were asked again), {} for {} results; largest batch {}",
        of(&counts.starts),
        of(&counts.started),
        of(&counts.reports),
        of(&counts.reported),
        of(&counts.largest)
    ));
    assert_eq!(seen.all().len(), TASKS, "each ran once");
    assert_eq!(of(&counts.reported), TASKS);
    assert!(
        of(&counts.starts) < TASKS / 4,
        "{} statements to start",
        of(&counts.starts)
    );
    assert!(
        of(&counts.reports) < TASKS / 4,
        "{} statements for results",
        of(&counts.reports)
    );
    assert!(of(&counts.largest) <= 200);
    installation.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_runs_nothing_asks_nothing() {
    let installation = Installation::new().await;
    let (ledger, counts) = Counting::new(installation.ledger());
    let seen = Seen::default();
    installation
        .platform
        .run(installation.worker().ledger(ledger).handle(TASK, noting(&seen)));
    installation.insert(&["t"]).await;
    installation.reaches("t", "SUCCESS").await;
    let polls = counts.polls.load(Ordering::SeqCst);
    // Longer than two polls would be apart.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!(counts.polls.load(Ordering::SeqCst), polls);
    assert_eq!(
        counts.starts.load(Ordering::SeqCst),
        1 + counts.started.load(Ordering::SeqCst) - 1
    );
    installation.close().await;
}
