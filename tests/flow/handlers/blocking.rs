//! Blocking work that outlives its attempt: its result goes nowhere, and the task is tried again.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    time::Duration,
};

use tidegate::worker::{Context, TaskError};
use tidegate_testkit::eventually;

use crate::platform::{PATIENCE, Platform, Seen, envelope, metrics};

/// Whether the process exports this line.
fn metric(line: &str) -> bool {
    metrics().render().lines().any(|exported| exported == line)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closure_that_outlives_its_timeout_has_no_result() {
    metrics();
    let platform = Platform::new().await;
    let seen = Seen::default();
    let (results, effects) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (release, held) = mpsc::channel::<()>();
    let held = Arc::new(std::sync::Mutex::new(held));
    let (closed, mut fences) = tokio::sync::mpsc::unbounded_channel();
    let handler = {
        let (seen, results, effects) = (seen.clone(), results.clone(), effects.clone());
        move |context: Context| {
            seen.note(&context);
            let (results, effects) = (results.clone(), effects.clone());
            let (held, closed) = (held.clone(), closed.clone());
            async move {
                let first = context.attempt == 1;
                let number = context
                    .blocking(move |fence| {
                        if first {
                            // Beyond its timeout: until the test says so.
                            held.lock().unwrap().recv().unwrap();
                        }
                        let _ = closed.send(fence.is_open());
                        if fence.is_open() {
                            effects.fetch_add(1, Ordering::SeqCst);
                        }
                        7
                    })
                    .await;
                results.fetch_add(number, Ordering::SeqCst);
                Ok::<(), TaskError>(())
            }
        }
    };
    platform.run(
        platform
            .worker()
            .queue("order.close.queue")
            .handle("order.close.timeout", handler),
    );
    let body = envelope("blocks", "order.close.timeout", r#","timeoutMs":300"#);
    platform.send(&body, Duration::ZERO).await.unwrap();
    // The second attempt has ended while the first one's closure still runs.
    let starts = seen.wait(2).await;
    assert_eq!(starts[1].attempt, 2, "the timeout was a failed attempt");
    platform.drained("order.close.queue").await;
    assert_eq!(fences.recv().await, Some(true), "the second attempt's");
    assert!(metric("tidegate_blocking_outlived 1"));
    release.send(()).unwrap();
    assert_eq!(fences.recv().await, Some(false), "the first attempt's, late");
    eventually(PATIENCE, "the closure to end", async || {
        metric("tidegate_blocking_outlived 0")
    })
    .await;
    assert_eq!(
        results.load(Ordering::SeqCst),
        7,
        "only the second attempt had a result"
    );
    assert_eq!(effects.load(Ordering::SeqCst), 1);
    platform.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_a_closure_is_the_handlers() {
    let platform = Platform::new().await;
    platform.run(
        platform
            .worker()
            .queue("order.close.queue")
            .handle("order.close.timeout", async |context: Context| {
                context.blocking::<(), _>(|_| panic!("in the closure")).await
            }),
    );
    let body = envelope("panics", "order.close.timeout", r#","maxRetries":0"#);
    platform.send(&body, Duration::ZERO).await.unwrap();
    let dead = platform.dead_letters(1).await;
    assert_eq!(dead[0].header("x-task-error-kind"), "panic");
    assert_eq!(dead[0].header("x-task-error"), "in the closure");
    platform.close().await;
}
