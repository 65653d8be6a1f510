//! Whose timeout counts, and what the broker's own limit (B25) does to it.

use std::{sync::Arc, time::Duration};

use tidegate::{
    telemetry::health::Health,
    topology::Topology,
    worker::{BuildError, Context, Worker},
};
use tokio::{sync::mpsc, time::Instant};

use crate::platform::{PATIENCE, Platform, envelope};

const TYPED: &str = r#"
    [[queue]]
    name = "order.close.queue"
    bind = ["order.close.#"]
    owner = "test"
    consumer_timeout = "1h"
    [[queue]]
    name = "report.queue"
    bind = ["report.#"]
    owner = "test"
    [[task_type]]
    name = "order.close.timeout"
    timeout = "40m"
"#;

#[tokio::test(flavor = "multi_thread")]
async fn the_envelope_goes_before_the_type_and_the_type_before_the_worker() {
    let platform = Platform::with(TYPED).await;
    let (out, mut told) = mpsc::unbounded_channel();
    let handler = move |context: Context| {
        let left = context.deadline - Instant::now();
        let _ = out.send((context.envelope.task_id.to_string(), left));
        async {}
    };
    platform.run(
        platform
            .worker()
            .queue("order.close.queue")
            .default_timeout(Duration::from_secs(100))
            .handle("order.close.timeout", handler.clone())
            .handle("order.close.other", handler),
    );
    for (id, task_type, more, expected) in [
        ("envelope", "order.close.timeout", r#","timeoutMs":50000"#, 50),
        ("type", "order.close.timeout", "", 2_400),
        ("worker", "order.close.other", "", 100),
        // A day is cut to what an hour's limit allows.
        ("cut", "order.close.timeout", r#","timeoutMs":86400000"#, 3_540),
    ] {
        platform
            .send(&envelope(id, task_type, more), Duration::ZERO)
            .await
            .unwrap();
        let (seen, left) = tokio::time::timeout(PATIENCE, told.recv())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(seen, id);
        let expected = Duration::from_secs(expected);
        assert!(
            left <= expected && left > expected - Duration::from_secs(10),
            "{id}: {left:?}"
        );
    }
    platform.close().await;
}

/// B25: told at the start, not when the first delivery is taken back.
#[tokio::test]
async fn a_type_that_outlasts_the_broker_is_refused_with_what_to_set() {
    let topology = Arc::new(Topology::parse(&[("test.toml", TYPED)]).unwrap());
    let builder = || {
        Worker::builder(
            tidegate::broker::BrokerSettings::new("amqp://localhost".to_owned().into()),
            topology.clone(),
        )
    };
    // 40 minutes fit an hour.
    let fits = builder()
        .queue("order.close.queue")
        .handle("order.close.timeout", async || {});
    assert!(fits.build().is_ok());
    // The other queue has the broker's default, but none of its tasks.
    let elsewhere = builder()
        .queue("report.queue")
        .queue("order.close.queue")
        .handle("order.close.timeout", async || {});
    assert!(elsewhere.build().is_ok());
    // No queue here says that it carries the type: then any of them may.
    let refused = builder()
        .queue("report.queue")
        .handle("order.close.timeout", async || {})
        .build()
        .unwrap_err();
    assert!(matches!(refused, BuildError::TimeoutTooLong { typed: true, .. }));
    assert_eq!(
        refused.to_string(),
        "task type \"order.close.timeout\" may run for 40m, but the broker takes a delivery of queue \"report.queue\" back \
         after 30m: set `consumer_timeout` of the [[queue]] \"report.queue\" in its topology file to 41m or more and apply \
         the topology, or lower `timeout` of the [[task_type]] \"order.close.timeout\" in its topology file to 29m or less"
    );
    let refused = builder()
        .queue("report.queue")
        .default_timeout(Duration::from_secs(3_600))
        .handle("report.build", async || {})
        .build()
        .unwrap_err();
    assert!(
        refused.to_string().contains("`WorkerBuilder::default_timeout`"),
        "{refused}"
    );
}

/// B25 with a limit of a minute, the shortest that a topology states (so only with `TIDEGATE_LONG=1`): what is stopped by the cut
/// says which setting would have helped. What has waited beside it is given back unstarted, and runs as its first attempt.
#[tokio::test(flavor = "multi_thread")]
async fn a_cut_names_the_setting_and_what_waited_too_long_spends_no_attempt() {
    const MINUTE: &str = r#"
        [[queue]]
        name = "order.close.queue"
        bind = ["order.close.#"]
        owner = "test"
        retry = { max_retries = 0 }
        consumer_timeout = "1m"
    "#;
    if !crate::is_long() {
        return;
    }
    let platform = Platform::with(MINUTE).await;
    let (out, mut told) = mpsc::unbounded_channel();
    platform.run(
        platform
            .worker()
            .queue("order.close.queue")
            .concurrency(1)
            .default_timeout(Duration::from_secs(45))
            .handle("order.close.timeout", move |context: Context| {
                let id = context.envelope.task_id.to_string();
                let _ = out.send((id, context.attempt, context.deadline - Instant::now()));
                async move {
                    if context.envelope.task_id.as_str() == "long" {
                        std::future::pending().await
                    }
                }
            }),
    );
    for (id, more) in [("long", r#","timeoutMs":120000"#), ("waited", "")] {
        platform
            .send(&envelope(id, "order.close.timeout", more), Duration::ZERO)
            .await
            .unwrap();
    }
    let mut next = async || {
        tokio::time::timeout(2 * PATIENCE, told.recv())
            .await
            .unwrap()
            .unwrap()
    };
    let (id, _, left) = next().await;
    assert_eq!(id, "long");
    assert!(left > Duration::from_secs(40) && left <= Duration::from_secs(45));
    let (id, attempt, left) = next().await;
    assert_eq!((id.as_str(), attempt), ("waited", 1));
    assert!(
        left > Duration::from_secs(40),
        "it has its whole time again: {left:?}"
    );
    let dead = platform.dead_letters(1).await;
    assert_eq!(dead[0].header("x-task-error-kind"), "timeout");
    let why = dead[0].header("x-task-error");
    for part in [
        "timeoutMs of 2m",
        "back after 1m",
        "set `consumer_timeout`",
        "\"order.close.queue\"",
        "to 2m 40s or more",
    ] {
        assert!(why.contains(part), "{part}: {why}");
    }
    platform.drained("order.close.queue").await;
    platform.close().await;
}

/// Panics when it is dropped, as the future of a handler is that ran past its deadline.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        // A second panic within the first would end the process, by Rust's own rule.
        assert!(std::thread::panicking(), "as the test wants");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_while_a_late_handler_is_dropped_changes_nothing() {
    let (platform, health) = (Platform::with(TYPED).await, Health::default());
    let handler = async |context: Context| {
        let _bomb = (context.attempt > 0).then_some(Bomb);
        std::future::pending::<()>().await;
    };
    let worker = platform
        .worker()
        .queue("order.close.queue")
        .health(health.clone());
    platform.run(worker.handle("order.close.timeout", handler));
    let more = r#","timeoutMs":200,"maxRetries":1"#;
    platform
        .send(&envelope("late", "order.close.timeout", more), Duration::ZERO)
        .await
        .unwrap();
    let dead = platform.dead_letters(1).await;
    assert_eq!(dead[0].reason(), "retries_exhausted");
    assert_eq!(dead[0].header("x-task-error-kind"), "timeout");
    assert!(health.is_ready(), "{:?}", health.parts());
    platform.drained("order.close.queue").await;
    platform.close().await;
}
