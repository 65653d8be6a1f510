//! Quick retries: within one attempt, within its one deadline, and not for what won't heal in an instant.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use tidegate::worker::{Context, TaskError};
use tokio::sync::Notify;

use crate::platform::{PATIENCE, Platform, envelope};

const QUICK: &str = r#"
    [[queue]]
    name = "order.close.queue"
    bind = ["order.close.#"]
    owner = "test"
    retry = { max_retries = 1, initial = "100ms", multiplier = 1.0, max = "1s", jitter = 0.0 }
    [[task_type]]
    name = "order.close.timeout"
    quick_retries = 2
    quick_pause = "20ms"
"#;

#[derive(Clone, Default)]
struct Tries(Arc<Mutex<HashMap<(String, u32), u32>>>);

impl Tries {
    /// Number of this try within its attempt, from 1.
    fn next(&self, context: &Context) -> u32 {
        let mut tries = self.0.lock().unwrap();
        let count = tries
            .entry((context.envelope.task_id.to_string(), context.attempt))
            .or_default();
        *count += 1;
        *count
    }

    fn of(&self, id: &str) -> Vec<u32> {
        let tries = self.0.lock().unwrap();
        (1..=2)
            .filter_map(|attempt| tries.get(&(id.to_owned(), attempt)).copied())
            .collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_heals_in_an_instant_costs_no_attempt() {
    let platform = Platform::with(QUICK).await;
    let tries = Tries::default();
    let counted = tries.clone();
    platform.run(platform.worker().queue("order.close.queue").handle(
        "order.close.timeout",
        move |context: Context| {
            let count = counted.next(&context);
            async move {
                match (context.envelope.task_id.as_str(), count) {
                    ("heals", 3) => Ok(()),
                    ("after", _) => Err(TaskError::retry_after(Duration::ZERO, "limited", "429")),
                    ("rejects", _) => Err(TaskError::reject("business", "never")),
                    ("panics", _) => panic!("a bug"),
                    ("slow", _) => {
                        // Another try of this length no longer fits.
                        tokio::time::sleep(Duration::from_millis(600)).await;
                        Err(TaskError::retry("slow", "took most of its time"))
                    }
                    ("hangs", _) => std::future::pending().await,
                    _ => Err(TaskError::retry("busy", "not yet")),
                }
            }
        },
    ));
    for (id, more) in [
        ("heals", ""),
        ("never", ""),
        ("after", ""),
        ("rejects", ""),
        ("panics", ""),
        ("slow", r#","timeoutMs":1000"#),
        ("hangs", r#","timeoutMs":200"#),
    ] {
        platform
            .send(&envelope(id, "order.close.timeout", more), Duration::ZERO)
            .await
            .unwrap();
    }
    platform.dead_letters(6).await;
    assert_eq!(tries.of("heals"), [3], "one attempt of three tries");
    assert_eq!(tries.of("never"), [3, 3]);
    assert_eq!(tries.of("after"), [1, 1]);
    assert_eq!(tries.of("rejects"), [1]);
    assert_eq!(tries.of("panics"), [1, 1]);
    assert_eq!(tries.of("slow"), [1, 1]);
    assert_eq!(tries.of("hangs"), [1, 1]);
    platform.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_stops_tries_nothing_again() {
    let platform = Platform::with(QUICK).await;
    let tries = Tries::default();
    let (counted, started) = (tries.clone(), Arc::new(Notify::new()));
    let begun = started.clone();
    let stop = platform.run(platform.worker().queue("order.close.queue").handle(
        "order.close.timeout",
        move |context: Context| {
            counted.next(&context);
            begun.notify_one();
            async move {
                context.shutdown.cancelled().await;
                Err::<(), _>(TaskError::retry("busy", "not yet"))
            }
        },
    ));
    platform
        .send(&envelope("t", "order.close.timeout", ""), Duration::ZERO)
        .await
        .unwrap();
    tokio::time::timeout(PATIENCE, started.notified()).await.unwrap();
    stop.cancel();
    // Its second attempt waits in the queue.
    let back = platform.take("order.close.queue", 1).await;
    assert_eq!(tidegate::broker::message::attempt(&back[0].properties), 2);
    assert_eq!(tries.of("t"), [1]);
    platform.close().await;
}
