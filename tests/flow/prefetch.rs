//! How much a worker holds, and how many channels it needs for that.

use std::{sync::Arc, time::Duration};

use tidegate::{
    broker::{BrokerSettings, publisher::Publisher},
    publish::TaskPublisher,
    telemetry::health::Health,
    topology::Topology,
    worker::{BuildError, Context, Worker},
};
use tidegate_testkit::eventually;
use tokio_util::sync::CancellationToken;

use crate::platform::{PATIENCE, Platform, Seen, TOPOLOGY, envelope, noting, task};

const QUEUE: &str = "order.close.queue";

/// What can never be a broker is told when the worker is built: nobody has to find it in a log.
#[tokio::test(flavor = "multi_thread")]
async fn an_address_of_another_kind_is_refused() {
    let topology = Arc::new(Topology::parse(&[("test.toml", TOPOLOGY)]).unwrap());
    for url in [
        "http://guest:s3cret@localhost",
        "localhost:5672",
        "",
        "amqp://guest:s3cret@",
    ] {
        let settings = BrokerSettings::new(url.to_owned().into());
        let built = Worker::builder(settings, topology.clone())
            .queue("order.close.queue")
            .handle("order.close.timeout", noting(&Seen::default()))
            .build();
        let Err(error @ BuildError::Broker(_)) = built else {
            panic!("{url:?} was taken")
        };
        let text = error.to_string();
        assert!(text.contains("amqp://USER:PASSWORD@HOST"), "{text}");
        assert!(!text.contains("s3cret"), "{text}");
    }
}

/// Settings with which nothing could ever be published would show at the first failure only.
#[tokio::test(flavor = "multi_thread")]
async fn settings_that_can_not_work_are_refused() {
    let topology = Arc::new(Topology::parse(&[("test.toml", TOPOLOGY)]).unwrap());
    let usual = || BrokerSettings::new("amqp://localhost".to_owned().into());
    let no_time = Duration::ZERO;
    let table = [
        (
            BrokerSettings {
                in_flight: 0,
                ..usual()
            },
            "in_flight is 0",
        ),
        (
            BrokerSettings {
                in_flight: usize::MAX,
                ..usual()
            },
            "in_flight is 18446744073709551615",
        ),
        (
            BrokerSettings {
                confirm_timeout: no_time,
                ..usual()
            },
            "confirm_timeout is 0ns",
        ),
        (
            BrokerSettings {
                connect_timeout: no_time,
                ..usual()
            },
            "connect_timeout is 0ns",
        ),
    ];
    for (settings, expected) in table {
        let built = Worker::builder(settings, topology.clone())
            .queue(QUEUE)
            .handle("order.close.timeout", noting(&Seen::default()))
            .build();
        let Err(error @ BuildError::Broker(_)) = built else {
            panic!("{expected}: taken")
        };
        assert!(error.to_string().starts_with(expected), "{error}");
    }
    let built = Worker::builder(usual(), topology).queue(QUEUE).build();
    assert!(
        matches!(built, Err(BuildError::NoHandler)),
        "it would dead-letter all that comes"
    );
}

/// A worker that has been built and doesn't consume yet is not ready, whatever its service does in between.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_not_ready_before_it_consumes() {
    let (platform, health) = (Platform::new().await, Health::default());
    let worker = platform.worker().queue(QUEUE).health(health.clone());
    let worker = worker.handle("order.close.timeout", noting(&Seen::default()));
    let worker = worker.build().unwrap();
    assert!(!health.is_ready(), "{:?}", health.parts());
    let (stop, mut was_ready) = (CancellationToken::new(), false);
    let running = tokio::spawn(worker.run(stop.clone()));
    eventually(PATIENCE, "the worker to be ready", async || {
        was_ready |= health.is_ready();
        was_ready
    })
    .await;
    stop.cancel();
    running.await.unwrap();
    assert!(!health.is_ready());
    platform.close().await;
}

/// B34: zero would mean "no limit" to the broker.
#[tokio::test]
async fn numbers_that_can_not_be_meant_are_refused_with_what_is_allowed() {
    let platform = Platform::new().await;
    let worker = || platform.worker().queue(QUEUE);
    let table = [
        (worker().prefetch(0), "prefetch is 0; use 1 to 65,535"),
        (worker().concurrency(0), "concurrency is 0; use 1 to 10,000"),
        (
            worker().concurrency(10_001),
            "concurrency is 10001; use 1 to 10,000",
        ),
        (
            worker().concurrency(usize::MAX),
            "concurrency is 18446744073709551615; use 1 to 10,000",
        ),
        (
            worker().default_timeout(Duration::ZERO),
            "default_timeout (ms) is 0; use 1 ms or more",
        ),
    ];
    for (builder, expected) in table {
        match builder.build() {
            Err(error @ BuildError::OutOfRange { .. }) => assert_eq!(error.to_string(), expected),
            other => panic!("{other:?} instead of {expected:?}"),
        }
    }
    for builder in [worker().prefetch(1), worker().concurrency(10_000)] {
        let builder = builder.handle("order.close.timeout", noting(&Seen::default()));
        builder.build().unwrap();
    }
    platform.close().await;
}

/// B10: what is due later waits with the broker, not here, by whichever door it came.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_tasks_an_hour_ahead_keep_no_immediate_one_waiting() {
    let platform = Platform::new().await;
    platform.run_router();
    let seen = Seen::default();
    platform.run(
        platform
            .worker()
            .queue(QUEUE)
            .prefetch(10)
            .handle("order.close.timeout", noting(&seen)),
    );
    let hour = Duration::from_secs(3600);
    let later = (0..800).map(|n| {
        let body = envelope(&format!("later{n}"), "order.close.timeout", "");
        let platform = &platform;
        async move { platform.send(&body, hour).await.unwrap() }
    });
    futures::future::join_all(later).await;
    // And some of a client that publishes straight to the queue's key, with the time in the envelope.
    let time = (chrono::Utc::now() + hour).to_rfc3339();
    let mut held = 0;
    for n in 0..100 {
        for exchange in ["task.exchange", "task.ingress"] {
            let id = format!("{exchange}-{n}");
            let body = envelope(
                &id,
                "order.close.timeout",
                &format!(r#","scheduleTime":"{time}""#),
            );
            platform
                .publish_plain(exchange, "order.close.timeout", body.as_bytes())
                .await;
        }
        if n % 10 == 0 {
            let queue = platform.vhost.management().queue(QUEUE).await;
            held = held.max(queue.map_or(0, |queue| queue.messages_unacknowledged));
        }
    }
    let sent = chrono::Utc::now();
    let now = envelope("now", "order.close.timeout", "");
    platform.send(&now, Duration::ZERO).await.unwrap();
    let start = seen.wait(1).await.remove(0);
    assert_eq!(start.task_id, "now");
    let waited = (start.at - sent).to_std().unwrap_or_default();
    assert!(waited < Duration::from_secs(1), "{waited:?}");
    assert!(held <= 10, "{held} held at once");
    // All of those ahead are on the ladder; none stays in the hands of worker or router.
    for queue in [QUEUE, "task.ingress.queue"] {
        platform.drained(queue).await;
    }
    // The broker counts now and then, and not all queues at once.
    tidegate_testkit::eventually(PATIENCE, "a thousand tasks on the ladder", async || {
        let queues = platform.vhost.management().queues().await;
        let delayed = queues
            .iter()
            .filter(|queue| queue.name.starts_with("task.delay."));
        delayed.map(|queue| queue.messages).sum::<u64>() == 1_000
    })
    .await;
    platform.close().await;
}

/// B34: of a backlog each of two workers holds no more than its prefetch, and both have work.
#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_is_held_in_bounds_and_shared_by_two_workers() {
    const TASKS: usize = 2_000;
    let platform = Platform::new().await;
    let sends = (0..TASKS).map(|n| {
        let (platform, body) = (&platform, envelope(&format!("t{n}"), "order.close.timeout", ""));
        async move { platform.send(&body, Duration::ZERO).await }
    });
    assert!(futures::future::join_all(sends).await.iter().all(Result::is_ok));
    let both = [Seen::default(), Seen::default()];
    let (open, gate) = tokio::sync::watch::channel(false);
    for seen in &both {
        let (seen, gate) = (seen.clone(), gate.clone());
        let handler = move |context: Context| {
            let (seen, mut gate) = (seen.clone(), gate.clone());
            async move {
                // Its end is an open gate too.
                let _ = gate.wait_for(|open| *open).await;
                seen.note(&context);
            }
        };
        let worker = platform.worker().queue(QUEUE).prefetch(10).concurrency(4);
        platform.run(worker.handle("order.close.timeout", handler));
    }
    // Nobody ends a task, so each takes as many as it will ever hold.
    eventually(PATIENCE, "ten to be held by each", async || {
        let queue = platform.vhost.management().queue(QUEUE).await;
        let held = queue.map_or(0, |queue| queue.messages_unacknowledged);
        assert!(held <= 20, "{held} held at once");
        held == 20
    })
    .await;
    open.send(true).unwrap();
    let started = || both.iter().map(|seen| seen.all().len()).sum::<usize>();
    eventually(PATIENCE, "the backlog to be worked off", async || {
        started() >= TASKS
    })
    .await;
    platform.drained(QUEUE).await;
    assert_eq!(started(), TASKS);
    let shares = both.each_ref().map(|seen| seen.all().len());
    assert!(shares.iter().all(|share| *share > TASKS / 10), "{shares:?}");
    platform.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unset_it_follows_what_is_measured_and_set_it_stays() {
    let platform = Platform::new().await;
    let seen = Seen::default();
    platform.run(
        platform
            .worker()
            .queue(QUEUE)
            .handle("order.close.timeout", noting(&seen)),
    );
    platform.run(
        platform
            .worker()
            .queue("order.audit.queue")
            .prefetch(7)
            .handle("order.close.timeout", noting(&Seen::default())),
    );
    let management = platform.vhost.management();
    eventually(PATIENCE, "both consumers", async || {
        management.prefetches(QUEUE).await == [20] && management.prefetches("order.audit.queue").await == [7]
    })
    .await;
    // Work until it has been noticed how little time that takes.
    let mut sent = 0;
    eventually(PATIENCE, "more to be held", async || {
        for _ in 0..50 {
            let body = envelope(&format!("t{sent}"), "order.close.timeout", "");
            platform.send(&body, Duration::ZERO).await.unwrap();
            sent += 1;
        }
        let now = management.prefetches(QUEUE).await;
        matches!(now[..], [prefetch] if (50..=510).contains(&prefetch))
    })
    .await;
    let starts = seen.wait(sent).await;
    platform.drained(QUEUE).await;
    assert_eq!(starts.len(), sent, "each started once");
    assert_eq!(management.prefetches("order.audit.queue").await, [7]);
    platform.close().await;
}

/// B43: few channels are enough for any number of messages, and too few are an error that is shown.
#[tokio::test(flavor = "multi_thread")]
async fn five_channels_are_enough_and_a_sixth_consumer_says_what_is_wrong() {
    const TASKS: usize = 10_000;
    let queues: String = (0..6)
        .map(|n| {
            format!("[[queue]]\nname = \"q{n}.queue\"\nbind = [\"order.close.t{n}\"]\nowner = \"test\"\n")
        })
        .collect();
    let platform = Platform::with(&queues).await;
    let few: BrokerSettings =
        BrokerSettings::new(format!("{}?channel_max=5", platform.vhost.amqp_url()).into());
    let tasks = TaskPublisher::new(Publisher::start(&few).unwrap(), platform.topology.clone());
    let (seen, health) = (Seen::default(), Health::default());
    let builder = Worker::builder(few, platform.topology.clone()).health(health.clone());
    platform.run((0..6).fold(builder, |builder, n| {
        builder
            .queue(&format!("q{n}.queue"))
            .handle(&format!("order.close.t{n}"), noting(&seen))
    }));
    eventually(
        PATIENCE,
        "five consumers, and one that says why not",
        async || {
            let channels = platform.vhost.management().channels().await;
            // Two publishers have one each, and the test's own connection none.
            !health.is_ready() && channels >= 5
        },
    )
    .await;
    let sends = (0..TASKS).map(|n| {
        let (tasks, body) = (tasks.clone(), envelope(&format!("t{n}"), "order.close.t0", ""));
        async move { tasks.send(task(&body), Duration::ZERO).await }
    });
    let parallel = Arc::new(tokio::sync::Semaphore::new(50));
    let sent = futures::future::join_all(sends.map(|send| {
        let parallel = parallel.clone();
        async move {
            let _one_of_fifty = parallel.acquire().await.unwrap();
            send.await
        }
    }));
    let sent = tokio::time::timeout(PATIENCE, sent).await.expect("nothing hangs");
    assert!(sent.iter().all(Result::is_ok));
    // The broker's list goes on showing a channel for some seconds after its end.
    eventually(PATIENCE, "no more channels than there is work for", async || {
        // Three publishers, the platform's own too, with two connections each; the test's own connection has none.
        platform.vhost.management().channels().await <= 5 + 3 * 2
    })
    .await;
    platform.close().await;
}
