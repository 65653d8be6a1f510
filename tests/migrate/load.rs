//! A queue is migrated under load, and the program that does it is killed again and again.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use rand::{Rng, SeedableRng, rngs::StdRng};
use tidegate::{
    broker::connection::Link,
    core::envelope::Limits,
    publish::{SendError, TaskPublisher},
    router::Router,
    telemetry::health::Health,
    worker::{Context, TaskError, Worker, extract::Payload},
};
use tidegate_testkit::{eventually, report};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::platform::{FILES, PATIENCE, Platform, QUEUE, Taken, task};

/// How much.
struct Load {
    waiting: usize,
    per_second: usize,
    kills: usize,
}

impl Load {
    fn of_this_run() -> Self {
        if std::env::var_os("TIDEGATE_LONG").is_some() {
            Self {
                waiting: 50_000,
                per_second: 1_000,
                kills: 5,
            }
        } else {
            Self {
                waiting: 5_000,
                per_second: 250,
                kills: 5,
            }
        }
    }
}

/// The `n`th task: some fail at first, and some of those sent while the load runs have a delay.
fn body(n: usize) -> String {
    let fails = n.is_multiple_of(20);
    format!(r#"{{"taskId":"load-{n}","taskType":"order.close.timeout","payload":{{"fails":{fails}}}}}"#)
}

/// Sends the `n`th task; `false` if its confirm did not come in time. It is not sent again: a double would be the
/// sender's.
async fn send(tasks: &TaskPublisher, n: usize, delay: Duration) -> bool {
    match tasks.send(task(&body(n)), delay).await {
        Ok(()) => true,
        Err(SendError::Unknown(_)) => false,
        Err(error) => panic!("task {n} is refused: {error}"),
    }
}

/// Tasks that wait for their confirms.
const MOST_AT_ONCE: usize = 500;

/// What was sent.
#[derive(Default)]
struct Sent {
    tasks: usize,
    /// Tasks of which nobody can say whether they were stored.
    unknown: BTreeSet<usize>,
}

/// Publishes `per_second` tasks a second until stopped, the first with the number `first`.
async fn publish(tasks: TaskPublisher, first: usize, per_second: usize, stop: CancellationToken) -> Sent {
    let (mut n, mut sending, mut unknown) = (first, JoinSet::new(), BTreeSet::new());
    let started = Instant::now();
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    let mut note = |(n, known): (usize, bool)| {
        if !known {
            unknown.insert(n);
        }
    };
    while !stop.is_cancelled() {
        ticks.tick().await;
        let due = first + (started.elapsed().as_secs_f64() * per_second as f64) as usize;
        // A machine that can't keep up sends fewer, and the report says how many.
        while n < due && sending.len() < MOST_AT_ONCE {
            let delay = if n.is_multiple_of(10) {
                50 + 37 * (n as u64 % 60)
            } else {
                0
            };
            let tasks = tasks.clone();
            sending.spawn(async move { (n, send(&tasks, n, Duration::from_millis(delay)).await) });
            n += 1;
        }
        while let Some(sent) = sending.try_join_next() {
            note(sent.unwrap());
        }
    }
    while let Some(sent) = sending.join_next().await {
        note(sent.unwrap());
    }
    Sent { tasks: n, unknown }
}

/// Runs a worker that notes each start as `id#attempt`.
fn work(
    platform: &Platform,
    topology: &Arc<tidegate::topology::Topology>,
    starts: &Taken,
    stop: &CancellationToken,
) -> tokio::task::JoinHandle<()> {
    let starts = starts.clone();
    let worker = Worker::builder(platform.settings.clone(), topology.clone())
        .queue(QUEUE)
        .concurrency(200)
        .prefetch(1_000)
        .handle(
            "order.close.timeout",
            move |context: Context, Payload(payload): Payload<serde_json::Value>| {
                starts.push(format!("{}#{}", context.envelope.task_id, context.attempt));
                let fails = payload["fails"] == true && context.attempt == 1;
                async move {
                    if fails {
                        Err(TaskError::retry("first", "as the test wants it"))
                    } else {
                        Ok(())
                    }
                }
            },
        )
        .build()
        .unwrap();
    tokio::spawn(worker.run(stop.clone()))
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_or_doubled_under_load_with_five_kills() {
    let load = Load::of_this_run();
    let seed: u64 = rand::random();
    let mut random = StdRng::seed_from_u64(seed);
    let (platform, topology) = Platform::from_files(FILES, &[QUEUE]).await;
    let tasks = platform.tasks(&topology);
    let mut sending = JoinSet::new();
    for chunk in 0..50 {
        let (tasks, size) = (tasks.clone(), load.waiting / 50);
        sending.spawn(async move {
            for n in chunk * size..(chunk + 1) * size {
                assert!(send(&tasks, n, Duration::ZERO).await);
            }
        });
    }
    while let Some(sent) = sending.join_next().await {
        sent.unwrap();
    }

    let (stop, stop_load) = (CancellationToken::new(), CancellationToken::new());
    let starts = Taken::default();
    let worker = work(&platform, &topology, &starts, &stop);
    let router = Router::new(
        Link::new(platform.settings.clone(), "consume"),
        tasks.clone(),
        Limits::standard(),
        None,
    );
    let router = tokio::spawn({
        let stop = stop.clone();
        async move { router.run(Health::default(), stop).await }
    });
    let publishing = tokio::spawn(publish(tasks, load.waiting, load.per_second, stop_load.clone()));

    let (started, before) = (Instant::now(), starts.len());
    let mut killed_at = Vec::new();
    while killed_at.len() < load.kills {
        let (lines, after) = (
            random.random_range(1..14),
            Duration::from_millis(random.random_range(0..300)),
        );
        let mut program = platform.migrate(&[QUEUE]);
        eventually(PATIENCE, "some steps", async || {
            program.output().lines().count() >= lines || !program.is_running()
        })
        .await;
        tokio::time::sleep(after).await;
        if !program.is_running() {
            assert!(
                program.output().contains("is as described"),
                "{}",
                program.output()
            );
            break;
        }
        program.kill();
        killed_at.push(program.output().lines().last().unwrap_or_default().to_owned());
    }
    let mut program = platform.migrate(&[QUEUE, "--json"]);
    let status = program.wait(PATIENCE * 6).await;
    assert!(status.success(), "seed {seed}: {}", program.output());
    let took = started.elapsed();
    platform.is_as_wanted().await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    stop_load.cancel();
    let sent = publishing.await.unwrap();
    let rate = |tasks: usize| (tasks as f64 / started.elapsed().as_secs_f64()) as u64;
    let (published, consumed) = (rate(sent.tasks - load.waiting), rate(starts.len() - before));

    let expected: BTreeMap<String, usize> = (0..sent.tasks)
        .filter(|n| !sent.unknown.contains(n))
        .flat_map(|n| {
            (1..=1 + usize::from(n.is_multiple_of(20))).map(move |attempt| (format!("load-{n}#{attempt}"), 1))
        })
        .collect();
    eventually(PATIENCE * 4, "all tasks to end", async || {
        starts.len() >= expected.len()
    })
    .await;
    eventually(PATIENCE, "the queue to be empty", async || {
        platform
            .vhost
            .management()
            .queue(QUEUE)
            .await
            .is_some_and(|queue| queue.messages == 0)
    })
    .await;
    stop.cancel();
    worker.await.unwrap();
    router.await.unwrap();
    let counts = starts.counts();
    let lost: Vec<_> = expected.keys().filter(|key| !counts.contains_key(*key)).collect();
    // Each attempt is one start: a second one with the same number came by a second message.
    let doubled: Vec<_> = counts.iter().filter(|(_, count)| **count != 1).collect();
    let dead = platform
        .vhost
        .management()
        .queue("task.dead.queue")
        .await
        .unwrap()
        .messages;
    report(&format!(
        "{} tasks ({} waiting, then {published}/s published of {}/s wanted and {consumed}/s consumed), without a confirm in time {}, killed {} times after {killed_at:#?}\n\
         migration {took:?}, longest time without a start {:?}, lost {}, doubled {}, dead letters {dead}\n{}",
        sent.tasks,
        load.waiting,
        load.per_second,
        sent.unknown.len(),
        killed_at.len(),
        starts.longest_gap(),
        lost.len(),
        doubled.len(),
        program.output().lines().last().unwrap_or_default()
    ));
    assert!(
        lost.is_empty() && doubled.is_empty() && dead == 0 && sent.unknown.len() * 100 < sent.tasks,
        "seed {seed}: lost {lost:?}, doubled {doubled:?}, dead {dead}"
    );
    platform.vhost.close().await;
}
