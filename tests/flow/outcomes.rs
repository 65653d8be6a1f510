//! What becomes of a task whose handler succeeds, fails, rejects, panics or runs too long.

use std::{sync::Arc, time::Duration};

use tidegate::worker::{Context, TaskError, extract::Payload};
use tokio::sync::Semaphore;

use crate::platform::{Platform, Seen, envelope};

/// B01 with the ladder's own danger: the same short delay again and again passes the same delay queue.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_always_fails_runs_max_retries_plus_one_times_and_dies_once() {
    const FIXED: &str = r#"
        [[queue]]
        name = "order.close.queue"
        bind = ["order.close.#"]
        owner = "test"
        retry = { max_retries = 4, initial = "150ms", multiplier = 1.0, max = "150ms", jitter = 0.0 }
        [[queue]]
        name = "order.audit.queue"
        bind = ["order.#"]
        owner = "test"
    "#;
    let platform = Platform::with(FIXED).await;
    let seen = Seen::default();
    platform.run(
        platform
            .worker()
            .queue("order.close.queue")
            .handle("order.close.timeout", {
                let seen = seen.clone();
                move |context: Context| {
                    seen.note(&context);
                    async { Err(TaskError::retry("downstream", "仓库 timed out")) }
                }
            }),
    );
    platform
        .send(&envelope("fails", "order.close.timeout", ""), Duration::ZERO)
        .await
        .unwrap();
    platform
        .send(
            &envelope("once", "order.close.timeout", r#","maxRetries":0"#),
            Duration::ZERO,
        )
        .await
        .unwrap();
    let dead = platform.dead_letters(2).await;
    let starts = seen.all();
    let attempts = |id: &str| {
        starts
            .iter()
            .filter(|s| s.task_id == id)
            .map(|s| s.attempt)
            .collect::<Vec<_>>()
    };
    assert_eq!(attempts("fails"), [1, 2, 3, 4, 5]);
    assert_eq!(attempts("once"), [1]);
    for letter in &dead {
        assert_eq!(letter.reason(), "retries_exhausted");
        assert_eq!(letter.header("x-task-error-kind"), "downstream");
        assert_eq!(letter.header("x-task-error"), "仓库 timed out");
        assert_eq!(letter.header("x-task-failed-queue"), "order.close.queue");
        assert_eq!(letter.header("x-task-routing-key"), "order.close.timeout");
        assert!(!letter.header("x-task-first-failed-at").is_empty());
    }
    // A retry goes back to the queue that failed, and only there.
    assert_eq!(platform.take("order.audit.queue", 2).await.len(), 2);
    platform.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_outcome_has_its_end() {
    let platform = Platform::new().await;
    let seen = Seen::default();
    platform.run(
        platform
            .worker()
            .queue("order.close.queue")
            .handle("order.close.timeout", {
                let seen = seen.clone();
                move |context: Context| {
                    seen.note(&context);
                    async move {
                        match (context.envelope.task_id.as_str(), context.attempt) {
                            ("rejected", _) => Err(TaskError::reject("no_such_order", "order 7 is gone")),
                            ("panics", _) => panic!("a bug\0 with NUL"),
                            ("slow", _) => std::future::pending().await,
                            ("flaky", 1 | 2) => Err(std::io::Error::other("connection reset"))?,
                            ("later", 1) => Err(TaskError::retry_after(
                                Duration::from_millis(1_500),
                                "limited",
                                "429",
                            )),
                            _ => Ok(()),
                        }
                    }
                }
            }),
    );
    for (id, more) in [
        ("fine", ""),
        ("rejected", ""),
        ("panics", r#","maxRetries":1"#),
        ("slow", r#","timeoutMs":200,"maxRetries":1"#),
        ("flaky", ""),
        ("later", ""),
    ] {
        platform
            .send(&envelope(id, "order.close.timeout", more), Duration::ZERO)
            .await
            .unwrap();
    }
    let dead = platform.dead_letters(3).await;
    let mut ends: Vec<_> = dead
        .iter()
        .map(|d| {
            format!(
                "{} {} {}",
                d.properties.message_id().as_ref().unwrap(),
                d.reason(),
                d.header("x-task-error-kind")
            )
        })
        .collect();
    ends.sort();
    assert_eq!(
        ends,
        [
            "panics retries_exhausted panic",
            "rejected rejected no_such_order",
            "slow retries_exhausted timeout"
        ]
    );
    let panic = dead
        .iter()
        .find(|d| d.header("x-task-error-kind") == "panic")
        .unwrap();
    assert_eq!(
        panic.header("x-task-error"),
        "a bug\\u0000 with NUL",
        "B84: storable text"
    );
    seen.wait(11).await;
    let starts = seen.all();
    let count = |id: &str| starts.iter().filter(|s| s.task_id == id).count();
    assert_eq!((count("fine"), count("rejected"), count("panics")), (1, 1, 2));
    assert_eq!((count("slow"), count("flaky"), count("later")), (2, 3, 2));
    let later: Vec<_> = starts.iter().filter(|s| s.task_id == "later").collect();
    assert!(
        (later[1].at - later[0].at).num_milliseconds() >= 1_500,
        "Retry-After is a lower bound"
    );
    platform.drained("order.close.queue").await;
    platform.close().await;
}

/// A payload that the handler's type does not fit is a contract violation, told apart from a bad envelope.
#[tokio::test(flavor = "multi_thread")]
async fn a_payload_that_does_not_fit_is_a_contract_violation() {
    #[derive(serde::Deserialize)]
    struct Close {
        #[serde(rename = "orderId")]
        _order_id: String,
    }
    let platform = Platform::new().await;
    platform.run(
        platform
            .worker()
            .queue("order.close.queue")
            .handle("order.close.timeout", |_: Payload<Close>| async {}),
    );
    platform
        .send(&envelope("misfit", "order.close.timeout", ""), Duration::ZERO)
        .await
        .unwrap();
    let dead = platform.dead_letters(1).await;
    assert_eq!(
        (
            dead[0].reason().as_str(),
            dead[0].header("x-task-error-kind").as_str()
        ),
        ("contract_violation", "payload_mismatch")
    );
    platform.close().await;
}

/// Urgent tasks take the high lane, are served first, and a retry returns to the lane it failed in.
const LANES: &str = r#"
    [[queue]]
    name = "order.close.queue"
    bind = ["order.close.#"]
    owner = "test"
    retry = { max_retries = 3, initial = "100ms", multiplier = 1.0, max = "1s", jitter = 0.0 }
    high_lane = { threshold = 200 }
    [[queue]]
    name = "order.audit.queue"
    bind = ["order.#"]
    owner = "test"
"#;

#[tokio::test(flavor = "multi_thread")]
async fn the_high_lane_is_served_first() {
    let platform = Platform::with(LANES).await;
    for n in 0..10 {
        platform
            .send(
                &envelope(&format!("normal{n}"), "order.close.timeout", ""),
                Duration::ZERO,
            )
            .await
            .unwrap();
    }
    let urgent = envelope("urgent", "order.close.timeout", r#","priority":200"#);
    platform.send(&urgent, Duration::ZERO).await.unwrap();
    platform
        .send(&urgent.replace("urgent", "delayed"), Duration::from_millis(40))
        .await
        .unwrap();
    tidegate_testkit::eventually(
        crate::platform::PATIENCE,
        "both urgent ones in the lane",
        async || {
            platform
                .vhost
                .management()
                .queue("order.close.queue.high")
                .await
                .is_some_and(|q| q.messages == 2)
        },
    )
    .await;
    let seen = Seen::default();
    platform.run(
        platform
            .worker()
            .queue("order.close.queue")
            .concurrency(1)
            .handle("order.close.timeout", {
                let seen = seen.clone();
                move |context: Context| {
                    seen.note(&context);
                    async move {
                        match (context.envelope.task_id.as_str(), context.attempt) {
                            ("urgent", 1) => Err(TaskError::retry("again", "once more")),
                            _ => Ok(()),
                        }
                    }
                }
            }),
    );
    let starts = seen.wait(13).await;
    let place = |id: &str| starts.iter().position(|s| s.task_id == id).unwrap();
    assert!(place("urgent") <= 2 && place("delayed") <= 3, "{:?}", seen.ids());
    let again = starts
        .iter()
        .find(|s| s.task_id == "urgent" && s.attempt == 2)
        .unwrap();
    assert_eq!(again.queue, "order.close.queue.high");
    // The subscriber without a lane got the urgent ones too.
    assert_eq!(platform.take("order.audit.queue", 12).await.len(), 12);
    platform.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_nine_is_a_normal_one_while_the_high_lane_is_full() {
    let platform = Platform::with(LANES).await;
    for n in 0..30 {
        let body = envelope(&format!("h{n}"), "order.close.timeout", r#","priority":200"#);
        platform.send(&body, Duration::ZERO).await.unwrap();
    }
    for n in 0..10 {
        let body = envelope(&format!("n{n}"), "order.close.timeout", "");
        platform.send(&body, Duration::ZERO).await.unwrap();
    }
    let (seen, gate) = (Seen::default(), Arc::new(Semaphore::new(0)));
    let gated = {
        let (seen, gate) = (seen.clone(), gate.clone());
        move |context: Context| {
            seen.note(&context);
            let gate = gate.clone();
            async move {
                gate.acquire().await?.forget();
                Ok::<(), TaskError>(())
            }
        }
    };
    platform.run(
        platform
            .worker()
            .queue("order.close.queue")
            .concurrency(1)
            .prefetch(40)
            .handle("order.close.timeout", gated),
    );
    // With both lanes here, the first one being whichever came first, the rest goes by turns.
    for (lane, count) in [("order.close.queue", 10), ("order.close.queue.high", 30)] {
        tidegate_testkit::eventually(crate::platform::PATIENCE, "both lanes to be here", async || {
            let queue = platform.vhost.management().queue(lane).await;
            queue.is_some_and(|queue| queue.messages_unacknowledged == count)
        })
        .await;
    }
    gate.add_permits(40);
    let order: String = seen
        .wait(40)
        .await
        .iter()
        .map(|start| &start.task_id[..1])
        .collect();
    let turns = "hhhhhhhhnhhhhhhhhnhhhhhhhhnhhhhhhnnnnnnn";
    let after_a_normal_one = "nhhhhhhhhnhhhhhhhhnhhhhhhhhnhhhhhhnnnnnn";
    assert!(order == turns || order == after_a_normal_one, "{order}");
    platform.close().await;
}
