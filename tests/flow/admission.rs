//! The limits of a task type: how many run at once, how many of them are retries, how many start in a time.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::StreamExt;
use lapin::options::BasicNackOptions;
use tidegate::worker::{Context, TaskError};
use tokio::time::Instant;

use crate::platform::{Platform, Seen, envelope};

const QUEUE: &str = r#"
[[queue]]
name = "order.close.queue"
bind = ["order.#"]
owner = "test"
task_types = ["order.slow", "order.quick"]
retry = { max_retries = 2, initial = "100ms", multiplier = 1.0, max = "100ms", jitter = 0.0 }
"#;

/// How many run at once, and how many did at most.
#[derive(Clone, Default)]
struct Running(Arc<Mutex<(usize, usize)>>);

struct Runs(Running);

impl Running {
    fn enter(&self) -> Runs {
        let mut running = self.0.lock().unwrap();
        running.0 += 1;
        running.1 = running.1.max(running.0);
        Runs(self.clone())
    }

    fn most(&self) -> usize {
        self.0.lock().unwrap().1
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        self.0.0.lock().unwrap().0 -= 1;
    }
}

async fn publish(platform: &Platform, task_type: &str, count: usize) {
    for n in 0..count {
        let body = envelope(&format!("{task_type}-{n}"), task_type, "");
        platform.send(&body, Duration::ZERO).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_type_at_its_limit_does_not_hold_up_the_others_of_its_queue() {
    let platform = Platform::with(&format!(
        "{QUEUE}[[task_type]]\nname = \"order.slow\"\nconcurrency = 1\n"
    ))
    .await;
    let (seen, running) = (Seen::default(), Running::default());
    publish(&platform, "order.slow", 40).await;
    platform.run(
        platform
            .worker()
            .queue("order.close.queue")
            .concurrency(4)
            .handle("order.slow", {
                let (seen, running) = (seen.clone(), running.clone());
                move |context: Context| {
                    seen.note(&context);
                    let runs = running.enter();
                    async move {
                        tokio::time::sleep(Duration::from_millis(300)).await;
                        drop(runs);
                    }
                }
            })
            .handle("order.quick", crate::platform::noting(&seen)),
    );
    seen.wait(2).await;
    for n in 0..5 {
        let sent = chrono::Utc::now();
        let id = format!("quick-{n}");
        platform
            .send(&envelope(&id, "order.quick", ""), Duration::ZERO)
            .await
            .unwrap();
        tidegate_testkit::eventually(crate::platform::PATIENCE, &id, async || seen.ids().contains(&id)).await;
        let started = seen.all().into_iter().find(|start| start.task_id == id).unwrap();
        let waited = (started.at - sent).to_std().unwrap_or_default();
        assert!(waited < Duration::from_secs(1), "{id} waited {waited:?}");
    }
    // Nothing of the limited type is lost or starved by that.
    seen.wait(45).await;
    platform.drained("order.close.queue").await;
    let starts = seen.all();
    assert_eq!((starts.len(), running.most()), (45, 1));
    assert!(starts.iter().all(|start| start.attempt == 1));
    platform.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_of_a_type_run_few_at_once_and_all_get_their_attempts() {
    const TASKS: usize = 200;
    let platform = Platform::with(QUEUE).await;
    let (seen, retrying) = (Seen::default(), Running::default());
    publish(&platform, "order.slow", TASKS).await;
    platform.run(
        platform
            .worker()
            .queue("order.close.queue")
            .concurrency(40)
            .handle("order.slow", {
                let (seen, retrying) = (seen.clone(), retrying.clone());
                move |context: Context| {
                    seen.note(&context);
                    let runs = (context.attempt > 1).then(|| retrying.enter());
                    async move {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                        drop(runs);
                        Err(TaskError::retry("down", "still down"))
                    }
                }
            }),
    );
    let dead = platform.dead_letters(TASKS).await;
    assert!(dead.iter().all(|letter| letter.reason() == "retries_exhausted"));
    assert!(dead.iter().all(|letter| letter.header("x-task-waits").is_empty()));
    let mut attempts = BTreeMap::<String, Vec<u32>>::new();
    for start in seen.all() {
        attempts.entry(start.task_id).or_default().push(start.attempt);
    }
    assert_eq!(attempts.len(), TASKS);
    assert!(
        attempts.values().all(|attempts| *attempts == [1, 2, 3]),
        "{attempts:?}"
    );
    assert!((1..=5).contains(&retrying.most()), "{} at once", retrying.most());
    platform.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_holds() {
    let platform = Platform::with(&format!(
        "{QUEUE}[[task_type]]\nname = \"order.slow\"\nrate = \"20/s\"\n"
    ))
    .await;
    let (starts, seen) = (Arc::new(Mutex::new(Vec::new())), Seen::default());
    publish(&platform, "order.slow", 160).await;
    platform.run(
        platform
            .worker()
            .queue("order.close.queue")
            .handle("order.slow", {
                let (starts, seen) = (starts.clone(), seen.clone());
                move |context: Context| {
                    starts.lock().unwrap().push(Instant::now());
                    seen.note(&context);
                    async {}
                }
            }),
    );
    seen.wait(160).await;
    let starts = starts.lock().unwrap().clone();
    let within = starts
        .iter()
        .filter(|at| **at - starts[0] < Duration::from_secs(5))
        .count();
    assert!((80..=120).contains(&within), "{within} in 5 s");
    for (n, at) in starts.iter().enumerate() {
        let second = starts[n..]
            .iter()
            .take_while(|later| **later - *at < Duration::from_secs(1))
            .count();
        assert!(second <= 30, "{second} in a second");
    }
    platform.drained("order.close.queue").await;
    platform.close().await;
}

/// B10: all of them come due at once; the limit of the worker holds, and that of their type.
#[tokio::test(flavor = "multi_thread")]
async fn tasks_due_at_the_same_second_run_as_many_at_once_as_allowed() {
    for (limits, slots) in [
        ("", 4),
        ("[[task_type]]\nname = \"order.slow\"\nconcurrency = 4\n", 20),
    ] {
        let platform = Platform::with(&format!("{QUEUE}{limits}")).await;
        let (seen, running) = (Seen::default(), Running::default());
        platform.run(
            platform
                .worker()
                .queue("order.close.queue")
                .concurrency(slots)
                .handle("order.slow", {
                    let (seen, running) = (seen.clone(), running.clone());
                    move |context: Context| {
                        seen.note(&context);
                        let runs = running.enter();
                        async move {
                            tokio::time::sleep(Duration::from_millis(100)).await;
                            drop(runs);
                        }
                    }
                }),
        );
        let due = Instant::now() + Duration::from_secs(2);
        for n in 0..50 {
            let body = envelope(&format!("t{n}"), "order.slow", "");
            platform.send(&body, due - Instant::now()).await.unwrap();
        }
        seen.wait(50).await;
        platform.drained("order.close.queue").await;
        assert_eq!((seen.all().len(), running.most()), (50, 4));
        platform.close().await;
    }
}

/// The worker and a client that nacks get the same attempts and waits, for a type with a policy of its own and for one without.
#[tokio::test(flavor = "multi_thread")]
async fn a_types_own_policy_holds_for_worker_and_plain_client_alike() {
    let own = "[[task_type]]\nname = \"order.slow\"\n\
        retry = { max_retries = 1, max_retries_cap = 3, initial = \"2s\", max = \"2s\" }\n";
    // Envelope, and the waits between its attempts in milliseconds.
    let cases: [(&str, &str, &[i64]); 5] = [
        ("order.slow", "", &[2_000]),
        ("order.quick", "", &[100, 100]),
        ("order.slow", r#","maxRetries":0"#, &[]),
        ("order.slow", r#","maxRetries":2"#, &[2_000, 2_000]),
        ("order.slow", r#","maxRetries":50"#, &[2_000, 2_000, 2_000]),
    ];
    for ours in [true, false] {
        let platform = Platform::with(&format!("{QUEUE}{own}")).await;
        let seen = Seen::default();
        if ours {
            let failing = |seen: &Seen| {
                let seen = seen.clone();
                move |context: Context| {
                    seen.note(&context);
                    async { Err(TaskError::retry("no", "no")) }
                }
            };
            platform.run(
                platform
                    .worker()
                    .queue("order.close.queue")
                    .handle("order.slow", failing(&seen))
                    .handle("order.quick", failing(&seen)),
            );
        } else {
            platform.run_router();
            let (mut deliveries, seen) = (platform.plain_consumer().await, seen.clone());
            // It ends with its connection.
            tokio::spawn(async move {
                while let Some(Ok(delivery)) = deliveries.next().await {
                    seen.note_plain(&delivery, "order.close.queue");
                    let _ = delivery.acker.nack(BasicNackOptions::default()).await;
                }
            });
        }
        for (n, (task_type, more, _)) in cases.iter().enumerate() {
            platform
                .send(&envelope(&format!("t{n}"), task_type, more), Duration::ZERO)
                .await
                .unwrap();
        }
        platform.dead_letters(cases.len()).await;
        for (n, (.., waits)) in cases.iter().enumerate() {
            let starts: Vec<_> = seen
                .all()
                .into_iter()
                .filter(|s| s.task_id == format!("t{n}"))
                .collect();
            let numbers: Vec<_> = starts.iter().map(|s| s.attempt as usize).collect();
            assert_eq!(
                numbers,
                (1..=waits.len() + 1).collect::<Vec<_>>(),
                "t{n}, ours: {ours}"
            );
            for (pair, wait) in starts.windows(2).zip(*waits) {
                let waited = (pair[1].at - pair[0].at).num_milliseconds();
                assert!(
                    (*wait..wait + 1_800).contains(&waited),
                    "t{n}, ours: {ours}: waited {waited} ms"
                );
            }
        }
        platform.close().await;
    }
}
