//! The ledger is away: before a run nothing starts, after one the success is not forgotten.

use std::{sync::Arc, time::Duration};

use tidegate::{
    telemetry::health::Health,
    worker::{Context, TaskError},
};
use tidegate_testkit::eventually;
use tokio::{sync::Semaphore, time::Instant};

use super::stage::{BY_KEY, QUEUE, Stage};
use crate::{
    ledger_worker::away::admit,
    platform::{PATIENCE, Seen, noting},
};

#[tokio::test(flavor = "multi_thread")]
async fn nothing_runs_without_a_claim() {
    let stage = Stage::new().await;
    sqlx::query("ALTER TABLE tidegate.executions RENAME TO elsewhere")
        .execute(&stage.sql)
        .await
        .unwrap();
    let (seen, health) = (Seen::default(), Health::default());
    let worker = stage
        .worker()
        .health(health.clone())
        .concurrency(1)
        .handle(BY_KEY, noting(&seen));
    stage.platform.run(worker.handle("pay.plain.task", noting(&seen)));
    for id in ["a", "b"] {
        stage.send(BY_KEY, id, id, "").await;
    }
    // Behind both in the queue, and with one slot.
    stage.send("pay.plain.task", "plain", "plain", "").await;
    seen.wait(1).await;
    assert_eq!(seen.ids(), ["plain"], "what needs no claim goes on");
    assert!(!health.is_ready());
    sqlx::query("ALTER TABLE tidegate.elsewhere RENAME TO executions")
        .execute(&stage.sql)
        .await
        .unwrap();
    let starts = seen.wait(3).await;
    assert!(
        starts.iter().all(|start| start.attempt == 1),
        "waiting is no attempt"
    );
    eventually(PATIENCE, "green", async || health.is_ready()).await;
    stage.close().await;
}

/// A second run would be certain if the delivery came again: it is acknowledged after some patience.
#[tokio::test(flavor = "multi_thread")]
async fn a_success_is_told_when_the_ledger_is_back() {
    let stage = Stage::new().await;
    let (release, seen) = (Arc::new(Semaphore::new(0)), Seen::default());
    let handler = {
        let (release, seen) = (release.clone(), seen.clone());
        move |context: Context| {
            seen.note(&context);
            let release = release.clone();
            async move {
                release.acquire().await?.forget();
                Ok::<(), TaskError>(())
            }
        }
    };
    stage.platform.run(stage.worker().handle(BY_KEY, handler));
    stage.send(BY_KEY, "t", "k", "").await;
    seen.wait(1).await;
    // The broker's counts are some seconds old: without this its zero could be from before the task came.
    eventually(PATIENCE, "the broker to count the task", async || {
        let queue = stage.platform.vhost.management().queue(QUEUE).await;
        queue.is_some_and(|queue| queue.messages == 1)
    })
    .await;
    admit(&stage.database, false).await;
    let began = Instant::now();
    release.add_permits(1);
    eventually(PATIENCE * 2, "the acknowledgement", async || {
        let queue = stage.platform.vhost.management().queue(QUEUE).await;
        queue.is_some_and(|queue| queue.messages == 0)
    })
    .await;
    assert!(
        began.elapsed() >= Duration::from_secs(14),
        "it tried for a while: {:?}",
        began.elapsed()
    );
    admit(&stage.database, true).await;
    stage.done("k").await;
    stage.send(BY_KEY, "t", "k", "").await;
    stage.settled().await;
    assert_eq!(seen.all().len(), 1);
    stage.close().await;
}
