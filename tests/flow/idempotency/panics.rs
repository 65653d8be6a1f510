//! A panic outside of any handler: it shows, and costs no task its life.

use std::sync::atomic::Ordering;

use tidegate::telemetry::health::{Health, Part};
use tidegate_testkit::eventually;

use super::stage::{DATABASE, QUEUE, Stage};
use crate::{
    ledger_worker::installation::Counting,
    platform::{PATIENCE, Seen, noting},
};

#[tokio::test(flavor = "multi_thread")]
async fn what_panics_outside_of_a_handler_is_held_and_seen_and_run_by_the_next_process() {
    let stage = Stage::new().await;
    let (health, seen) = (Health::default(), Seen::default());
    let (ledger, counts) = Counting::new(stage.ledger());
    let worker = stage.worker().ledger(ledger).health(health.clone());
    // Only once the worker is built, which asks as well.
    let stop = stage.platform.run(worker.handle(DATABASE, noting(&seen)));
    counts.panics.store(true, Ordering::SeqCst);
    let ids: Vec<String> = (0..5).map(|n| format!("t{n}")).collect();
    for id in &ids {
        stage.send(DATABASE, id, id, "").await;
    }
    let part = format!("worker {QUEUE} deliveries");
    eventually(PATIENCE, "health to say so", async || {
        matches!(health.parts().get(&part), Some(Part::Down(_)))
    })
    .await;
    assert!(!health.is_ready());
    let management = stage.platform.vhost.management();
    eventually(PATIENCE, "all of them to be held", async || {
        management
            .queue(QUEUE)
            .await
            .is_some_and(|queue| queue.messages == 5)
    })
    .await;
    assert!(seen.all().is_empty());
    // Their channel ends with the process, and the broker has them again.
    stop.cancel();
    let next = Seen::default();
    stage.platform.run(stage.worker().handle(DATABASE, noting(&next)));
    next.wait(5).await;
    stage.settled().await;
    let mut ran = next.ids();
    ran.sort();
    assert_eq!(ran, ids, "each once, and no dead letter");
    stage.close().await;
}
