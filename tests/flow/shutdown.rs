//! B26: a graceful stop loses nothing, repeats nothing and ends in time.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tidegate::worker::{Context, TaskError};
use tokio::{sync::Semaphore, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::platform::{Json, PATIENCE, Platform, Seen, envelope};

#[tokio::test(flavor = "multi_thread")]
async fn stop_finishes_what_runs_and_gives_back_the_rest_uncounted() {
    const TASKS: usize = 60;
    let platform = Platform::new().await;
    for n in 0..TASKS {
        platform
            .send(
                &envelope(&format!("t{n}"), "order.close.timeout", ""),
                Duration::ZERO,
            )
            .await
            .unwrap();
    }
    let (seen, gate) = (Seen::default(), Arc::new(Semaphore::new(0)));
    let gated = |seen: Seen, gate: Arc<Semaphore>| {
        move |context: Context, _: Json| {
            seen.note(&context);
            let gate = gate.clone();
            async move {
                // Held until the test lets it go.
                gate.acquire().await?.forget();
                Ok::<(), TaskError>(())
            }
        }
    };
    let stop = platform.run(
        platform
            .worker()
            .queue("order.close.queue")
            .concurrency(4)
            .prefetch(20)
            .handle("order.close.timeout", gated(seen.clone(), gate.clone())),
    );
    seen.wait(4).await;
    stop.cancel();
    // The other 16 of the prefetch go back while the 4 still run: the queue has all but those ready again.
    tidegate_testkit::eventually(
        PATIENCE,
        "the unstarted deliveries to be given back",
        async || {
            let queue = platform.vhost.management().queue("order.close.queue").await;
            queue.is_some_and(|q| q.messages_ready as usize == TASKS - 4)
        },
    )
    .await;
    assert_eq!(seen.all().len(), 4, "nothing new starts");
    gate.add_permits(4);
    // Were one of the 4 not acknowledged, it would be delivered again below and be started twice.
    gate.add_permits(TASKS);
    platform.run(
        platform
            .worker()
            .queue("order.close.queue")
            .handle("order.close.timeout", gated(seen.clone(), gate)),
    );
    let starts = seen.wait(TASKS).await;
    platform.drained("order.close.queue").await;
    assert_eq!(starts.len(), TASKS, "each started once");
    assert_eq!(seen.ids().into_iter().collect::<HashSet<_>>().len(), TASKS);
    assert!(starts.iter().all(|s| s.attempt == 1), "a shutdown is no attempt");
    platform.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_outlives_the_grace_period_is_interrupted_and_given_back() {
    let platform = Platform::new().await;
    let starts = Arc::new(AtomicUsize::new(0));
    let stubborn = {
        let starts = starts.clone();
        move |context: Context, _: Json| {
            starts.fetch_add(1, Ordering::SeqCst);
            async move {
                if context.attempt == 1 && !context.shutdown.is_cancelled() {
                    std::future::pending::<()>().await;
                }
                Ok(())
            }
        }
    };
    let stop = CancellationToken::new();
    let worker = platform
        .worker()
        .queue("order.close.queue")
        .grace(Duration::from_millis(300))
        .handle("order.close.timeout", stubborn)
        .build()
        .unwrap();
    let running = tokio::spawn(worker.run(stop.clone()));
    platform
        .send(&envelope("stubborn", "order.close.timeout", ""), Duration::ZERO)
        .await
        .unwrap();
    tidegate_testkit::eventually(PATIENCE, "the start", async || starts.load(Ordering::SeqCst) == 1).await;
    let began = Instant::now();
    stop.cancel();
    tokio::time::timeout(PATIENCE, running).await.unwrap().unwrap();
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "ends soon after its grace period"
    );
    let back = platform.take("order.close.queue", 1).await;
    assert_eq!(
        tidegate::broker::message::attempt(&back[0].properties),
        1,
        "not counted as an attempt"
    );
    platform.close().await;
}
