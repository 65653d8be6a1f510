//! B26: a graceful stop loses nothing, repeats nothing and ends in time.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tidegate::worker::{Context, TaskError};
use tidegate_testkit::{eventually, report};
use tokio::{sync::Semaphore, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    crashing_worker::{Entry, Supervised, order},
    platform::{PATIENCE, Platform, Seen, envelope},
};

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
        move |context: Context| {
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
    let mut once = HashSet::new();
    let twice: Vec<_> = starts
        .iter()
        .enumerate()
        .filter(|(_, s)| !once.insert(&s.task_id))
        .collect();
    assert!(twice.is_empty(), "each started once: {twice:?}");
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
        move |context: Context| {
            starts.fetch_add(1, Ordering::SeqCst);
            async move {
                if context.attempt == 1 && !context.shutdown.is_cancelled() {
                    std::future::pending::<()>().await;
                }
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

/// B27: a handler that fails while the worker stops, in whichever way, leaves one task behind, or one dead letter, and never
/// two of anything.
#[tokio::test(flavor = "multi_thread")]
async fn failing_during_the_stop_makes_one_retry() {
    let platform = Platform::new().await;
    let seen = Seen::default();
    let failing = |seen: &Seen| {
        let seen = seen.clone();
        move |context: Context| {
            seen.note(&context);
            async move {
                if context.attempt > 1 {
                    return Ok(());
                }
                context.shutdown.cancelled().await;
                match context.envelope.task_id.as_str() {
                    "panics" => panic!("torn down"),
                    "rejects" => Err(TaskError::reject("stopping", "torn down")),
                    "hangs" => std::future::pending().await,
                    _ => Err(TaskError::retry("stopping", "torn down")),
                }
            }
        }
    };
    let worker = || {
        platform
            .worker()
            .queue("order.close.queue")
            .grace(Duration::from_secs(1))
            .handle("order.close.timeout", failing(&seen))
    };
    let stop = CancellationToken::new();
    let running = tokio::spawn(worker().build().unwrap().run(stop.clone()));
    // Each with the attempts that it has in the end. What hangs is interrupted at the end of the grace period: no attempt.
    let tasks = [
        ("fails", "", &[1, 2][..]),
        ("hangs", "", &[1, 1]),
        ("last", r#","maxRetries":0"#, &[1]),
        ("panics", "", &[1, 2]),
        ("rejects", "", &[1]),
    ];
    for (id, more, _) in tasks {
        let body = envelope(id, "order.close.timeout", more);
        platform.send(&body, Duration::ZERO).await.unwrap();
    }
    seen.wait(tasks.len()).await;
    stop.cancel();
    tokio::time::timeout(PATIENCE, running).await.unwrap().unwrap();
    platform.run(worker());
    seen.wait(tasks.len() + 3).await;
    let dead = platform.dead_letters(2).await;
    let mut reasons: Vec<_> = dead.iter().map(|letter| letter.reason()).collect();
    reasons.sort();
    assert_eq!(reasons, ["rejected", "retries_exhausted"]);
    let mut starts: Vec<_> = seen.all().into_iter().map(|s| (s.task_id, s.attempt)).collect();
    starts.sort();
    let expected: Vec<_> = tasks
        .iter()
        .flat_map(|(id, _, attempts)| attempts.iter().map(|attempt| ((*id).to_owned(), *attempt)))
        .collect();
    assert_eq!(starts, expected);
    platform.close().await;
}

/// B26 by its letter, with a process and signals: SIGTERM lets what runs finish and gives back the rest at once; a second one
/// ends it without waiting; no task is lost or done twice by either.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_finishes_what_runs_at_the_first_signal_and_hurries_at_the_second() {
    const TASKS: usize = 200;
    const SLOTS: usize = 4;
    const QUEUE: &str = "order.close.queue";
    let platform = Platform::new().await;
    for n in 0..TASKS {
        let body = order(&format!("t{n}"), r#"{"ms":2000}"#, "");
        platform.send(&body, Duration::ZERO).await.unwrap();
    }
    let back = async |ready: usize| {
        eventually(PATIENCE, "what has not started to be given back", async || {
            let queue = platform.vhost.management().queue(QUEUE).await;
            queue.is_some_and(|queue| queue.messages_ready as usize == ready)
        })
        .await;
    };
    let counts = |worker: &Supervised| {
        let journal = worker.journal();
        let starts: usize = journal.values().map(|entry| entry.starts).sum();
        (starts, journal.values().map(|entry| entry.ends).sum::<usize>())
    };
    let mut worker = Supervised::start(platform.vhost.amqp_url(), SLOTS);
    worker
        .until(PATIENCE, "four starts", |journal| journal.len() == SLOTS)
        .await;
    worker.terminate();
    back(TASKS - SLOTS).await;
    assert!(worker.ended(PATIENCE).await.success());
    assert_eq!(
        counts(&worker),
        (SLOTS, SLOTS),
        "nothing new starts, what runs finishes"
    );

    worker.supervise();
    worker
        .until(PATIENCE, "four more", |journal| journal.len() == 2 * SLOTS)
        .await;
    let told = Instant::now();
    worker.terminate();
    // Told once, it has begun to stop.
    back(TASKS - 2 * SLOTS).await;
    let early = told.elapsed() < Duration::from_millis(1_000);
    worker.terminate();
    assert!(worker.ended(PATIENCE).await.success());
    report(&format!(
        "a process ended {:.1?} after two signals",
        told.elapsed()
    ));
    let (starts, ends) = counts(&worker);
    assert_eq!(starts, 2 * SLOTS);
    assert!(ends == SLOTS || !early, "the second signal did not hurry it");
    back(TASKS - ends).await;

    let mut all = Supervised::start(platform.vhost.amqp_url(), TASKS);
    all.until(PATIENCE, "the rest", |journal| {
        journal.values().filter(|entry| entry.ends == 1).count() == TASKS - ends
    })
    .await;
    platform.drained(QUEUE).await;
    let (first, rest) = (worker.journal(), all.journal());
    for n in 0..TASKS {
        let id = format!("t{n}");
        let effects = |journal: &BTreeMap<String, Entry>| journal.get(&id).map_or(0, |entry| entry.ends);
        assert_eq!(effects(&first) + effects(&rest), 1, "{id}");
    }
    assert!(platform.dead_letters(0).await.is_empty());
    drop((worker, all));
    platform.close().await;
}
