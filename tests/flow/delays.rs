//! The ladder and the ingress on a real broker: order, earliness, limits.

use std::time::Duration;

use chrono::Utc;
use futures::{StreamExt, stream};
use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldTable},
};
use tidegate::{core::ladder::LadderError, publish::SendError};

use crate::platform::{Json, PATIENCE, Platform, Seen, envelope, noting, task};

/// B04: a longer delay in front must not hold a shorter one back.
#[tokio::test(flavor = "multi_thread")]
async fn delays_run_in_the_order_of_their_ends() {
    let platform = Platform::new().await;
    let seen = platform.listening();
    let sent = Utc::now();
    for (id, millis) in [("half", 500), ("six", 6_000), ("two", 2_000)] {
        let body = envelope(id, "order.close.timeout", "");
        platform.send(&body, Duration::from_millis(millis)).await.unwrap();
    }
    let starts = seen.wait(3).await;
    assert_eq!(seen.ids(), ["half", "two", "six"]);
    for (start, millis) in starts.iter().zip([500, 2_000, 6_000]) {
        let late = (start.at - sent).num_milliseconds() - millis;
        assert!(late >= 0, "{} started {} ms early", start.task_id, -late);
        assert!(late < 2_000, "{} started {late} ms late", start.task_id);
    }
    platform.close().await;
}

/// B03: beyond the ladder's end is refused, naming the limit; nothing wraps, nothing fires at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_delay_beyond_the_limit_is_refused() {
    let platform = Platform::new().await;
    let body = envelope("far", "order.close.timeout", "");
    for millis in [8_589_934_561_u64, 31_536_000_000, u64::MAX] {
        let error = platform
            .send(&body, Duration::from_millis(millis))
            .await
            .unwrap_err();
        let SendError::Refused(LadderError::TooLong { .. }) = &error else {
            panic!("{error:?}")
        };
        assert!(error.to_string().contains("99"), "names the limit: {error}");
    }
    // The 31- and 32-bit borders of other systems are ordinary delays here: accepted, and not early.
    for millis in [2_147_483_647, 2_147_483_648, 4_294_967_295, 4_294_967_296] {
        platform.send(&body, Duration::from_millis(millis)).await.unwrap();
    }
    assert!(platform.take("order.close.queue", 0).await.is_empty());
    platform.close().await;
}

/// B03 by AMQP: `x-delay` on the ingress, in every shape that clients write.
#[tokio::test(flavor = "multi_thread")]
async fn the_ingress_delays_by_header_and_dead_letters_what_it_cannot() {
    let platform = Platform::new().await;
    platform.run_router();
    let delays: [(&str, AMQPValue); 11] = [
        ("zero", AMQPValue::LongInt(0)),
        ("text", AMQPValue::LongString("60".into())),
        ("int", AMQPValue::LongLongInt(200)),
        ("month", AMQPValue::LongLongInt(2_147_483_648)),
        ("negative", AMQPValue::LongLongInt(-1)),
        ("year", AMQPValue::LongLongInt(31_536_000_000)),
        ("fraction", AMQPValue::Double(1.5)),
        ("huge", AMQPValue::Double(1e30)),
        ("word", AMQPValue::LongString("soon".into())),
        ("space", AMQPValue::LongString(" 60".into())),
        ("timestamp", AMQPValue::Timestamp(1_764_000_000)),
    ];
    for (id, delay) in delays {
        let mut headers = FieldTable::default();
        headers.insert("x-delay".into(), delay);
        let properties = BasicProperties::default().with_headers(headers);
        let body = envelope(id, "order.close.timeout", "");
        platform
            .publish_with("task.ingress", "order.close.timeout", body.as_bytes(), properties)
            .await;
    }
    let dead = platform.dead_letters(7).await;
    let mut refused: Vec<_> = dead.iter().map(|d| id_of(&d.body)).collect();
    refused.sort();
    assert_eq!(
        refused,
        [
            "fraction",
            "huge",
            "negative",
            "space",
            "timestamp",
            "word",
            "year"
        ]
    );
    for letter in &dead {
        assert_eq!(letter.reason(), "invalid_envelope");
        assert_eq!(letter.header("x-task-error-kind"), "bad_delay");
        assert!(!letter.header("x-task-error").is_empty());
    }
    let mut arrived: Vec<_> = platform
        .take("order.close.queue", 3)
        .await
        .iter()
        .map(|m| id_of(&m.body))
        .collect();
    arrived.sort();
    assert_eq!(arrived, ["int", "text", "zero"]);
    platform.close().await;
}

/// A key that fits AMQP but not the ladder in front of it: refused once, not handed to and fro for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_too_long_to_be_delayed_is_a_dead_letter() {
    let platform = Platform::new().await;
    platform.run_router();
    let key = format!("order.close.{}", "k".repeat(240));
    let delayed = |ms| {
        let mut headers = FieldTable::default();
        headers.insert("x-delay".into(), AMQPValue::LongLongInt(ms));
        BasicProperties::default().with_headers(headers)
    };
    for (id, ms) in [("later", 200), ("now", 0)] {
        let body = envelope(id, "order.close.timeout", "");
        platform
            .publish_with("task.ingress", &key, body.as_bytes(), delayed(ms))
            .await;
    }
    let dead = platform.dead_letters(1).await;
    assert_eq!(id_of(&dead[0].body), "later");
    assert_eq!(dead[0].reason(), "invalid_envelope");
    assert!(dead[0].header("x-task-error").contains("252 bytes"));
    let arrived = platform.take("order.close.queue", 1).await;
    assert_eq!(id_of(&arrived[0].body), "now", "without a delay the key fits");
    platform.close().await;
}

/// `scheduleTime` on the ingress: the past runs now, the future waits.
#[tokio::test(flavor = "multi_thread")]
async fn the_ingress_honours_schedule_time() {
    let platform = Platform::new().await;
    platform.run_router();
    let seen = platform.listening();
    // Worker and router are up once this has gone through both.
    let warm = envelope("warm", "order.close.timeout", "");
    platform
        .publish_plain("task.ingress", "order.close.timeout", warm.as_bytes())
        .await;
    seen.wait(1).await;
    let at = Utc::now() + chrono::Duration::seconds(2);
    let past = envelope(
        "past",
        "order.close.timeout",
        r#","scheduleTime":"2020-01-01T00:00:00+08:00""#,
    );
    let soon = envelope(
        "soon",
        "order.close.timeout",
        &format!(r#","scheduleTime":"{}""#, at.to_rfc3339()),
    );
    for body in [&soon, &past] {
        platform
            .publish_plain("task.ingress", "order.close.timeout", body.as_bytes())
            .await;
    }
    let starts = seen.wait(3).await;
    assert_eq!(seen.ids(), ["warm", "past", "soon"]);
    assert!(starts[2].at >= at, "not early");
    platform.close().await;
}

/// A plain client that publishes a future `scheduleTime` straight to `task.exchange` is not taken at its haste.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_does_not_start_a_task_before_its_schedule_time() {
    let platform = Platform::new().await;
    let seen = platform.listening();
    let at = Utc::now() + chrono::Duration::seconds(3);
    let body = envelope(
        "soon",
        "order.close.timeout",
        &format!(r#","scheduleTime":"{}""#, at.to_rfc3339()),
    );
    platform
        .publish_plain("task.exchange", "order.close.timeout", body.as_bytes())
        .await;
    let starts = seen.wait(1).await;
    assert!(starts[0].at >= at, "{} before {at}", starts[0].at);
    assert_eq!(starts[0].attempt, 1, "waiting is no attempt");
    platform.drained("order.close.queue").await;
    assert_eq!(
        platform.take("order.audit.queue", 1).await.len(),
        1,
        "it waited for its own queue only"
    );
    platform.close().await;
}

/// B06: pauses between tasks of one delay must not lose any: no delay queue expires.
#[tokio::test(flavor = "multi_thread")]
async fn the_same_delay_after_pauses_loses_nothing() {
    let platform = Platform::new().await;
    let seen = platform.listening();
    for n in 0..20 {
        let body = envelope(&format!("t{n}"), "order.close.timeout", "");
        platform.send(&body, Duration::from_millis(700)).await.unwrap();
        // Every other task is sent only once the one before has left the ladder, so that its queues run empty.
        if n % 2 == 0 {
            seen.wait(n + 1).await;
        }
    }
    seen.wait(20).await;
    for queue in platform.vhost.management().queues().await {
        let arguments = queue.arguments.to_string();
        assert!(!arguments.contains("x-expires"), "{}: {arguments}", queue.name);
    }
    platform.close().await;
}

/// A burst of random delays: all arrive, none early; how late is printed.
#[tokio::test(flavor = "multi_thread")]
async fn five_thousand_random_delays_none_early_none_lost() {
    const TASKS: usize = 5_000;
    let platform = Platform::new().await;
    let seen = Seen::default();
    platform.run(
        platform
            .worker()
            .queue("order.close.queue")
            .concurrency(200)
            .handle("order.close.timeout", noting(&seen)),
    );
    let mut random = 88_172_645_463_325_252_u64;
    let delays: Vec<(String, Duration)> = (0..TASKS)
        .map(|n| {
            // xorshift: the delays are the same in every run.
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (format!("t{n}"), Duration::from_millis(random % 30_000))
        })
        .collect();
    // As many at once as a producer has threads: with all at once, waiting to be written would be measured as well.
    let mut due: std::collections::HashMap<String, chrono::DateTime<Utc>> = stream::iter(delays)
        .map(|(id, delay)| {
            let tasks = platform.tasks.clone();
            async move {
                let due = Utc::now() + chrono::Duration::from_std(delay).unwrap();
                tasks
                    .send(task(&envelope(&id, "order.close.timeout", "")), delay)
                    .await
                    .unwrap();
                (id, due)
            }
        })
        .buffer_unordered(32)
        .collect()
        .await;
    tidegate_testkit::eventually(PATIENCE * 2, "all delayed tasks", async || {
        seen.all().len() >= TASKS
    })
    .await;
    let mut late: Vec<i64> = seen
        .all()
        .iter()
        .map(|start| (start.at - due.remove(&start.task_id).expect("each once")).num_milliseconds())
        .collect();
    late.sort_unstable();
    assert!(late[0] >= 0, "{} ms early", -late[0]);
    assert!(due.is_empty(), "{} never arrived", due.len());
    tidegate_testkit::report(&format!(
        "lateness of {TASKS} tasks delayed by up to 30 s: p50 {} ms, p99 {} ms, max {} ms",
        late[TASKS / 2],
        late[TASKS * 99 / 100],
        late[TASKS - 1]
    ));
    platform.close().await;
}

fn id_of(body: &[u8]) -> String {
    serde_json::from_slice::<Json>(body).unwrap()["taskId"]
        .as_str()
        .unwrap()
        .to_owned()
}
