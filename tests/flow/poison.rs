//! Bytes and headers that no handler should ever see: dead-lettered once, exactly as they came, and the worker
//! goes on with the next.

mod archived;
mod bodies;

use lapin::{
    BasicProperties,
    types::{AMQPValue, DecimalValue, FieldTable},
};
use tidegate::worker::Context;

use crate::{
    platform::{DeadLetter, PATIENCE, Platform, Seen, envelope, noting},
    raw_amqp::{RawAmqp, filling, nested},
};

/// B13, B15, B21: whatever door it comes by, each body that is no task ends in one dead letter with a reason and its exact bytes,
/// and the next good one by that door gets through.
#[tokio::test(flavor = "multi_thread")]
async fn poison_bodies_are_dead_lettered_once_with_their_exact_bytes() {
    let platform = Platform::new().await;
    platform.run_router();
    let seen = platform.listening();
    // The second subscriber of each key has no SDK and refuses everything.
    platform.nacking("order.audit.queue").await;
    let poisons = bodies::poisons();
    let properties = |encoding: Option<&str>, content_type: Option<&str>| {
        let properties = BasicProperties::default().with_delivery_mode(2);
        let properties = match encoding {
            Some(encoding) => properties.with_content_encoding(encoding.into()),
            None => properties,
        };
        match content_type {
            Some(content_type) => properties.with_content_type(content_type.into()),
            None => properties,
        }
    };
    let doors = [
        ("task.exchange", "order.close.x"),
        ("task.ingress", "order.close.x"),
        ("task.exchange", "nobody.takes.this"),
    ];
    for (n, poison) in poisons.iter().enumerate() {
        for (exchange, key) in doors {
            let content_type = [None, Some("app"), Some("application/json")][n % 3];
            let properties = properties(poison.encoding, content_type);
            platform
                .publish_with(exchange, key, &poison.body, properties)
                .await;
        }
    }
    // Each comes by worker, router after a nack, ingress, and as what nothing takes.
    let dead = platform.dead_letters(poisons.len() * 4).await;
    for poison in &poisons {
        let letters: Vec<_> = dead
            .iter()
            .filter(|letter| letter.body == poison.body && encoding(letter) == poison.encoding)
            .collect();
        let mut reasons: Vec<_> = letters.iter().map(|letter| letter.reason()).collect();
        reasons.sort();
        let mut expected = [poison.reason, poison.reason, poison.reason, "unroutable"];
        expected.sort_unstable();
        assert_eq!(reasons, expected, "{poison}");
        let mut queues: Vec<_> = letters
            .iter()
            .map(|letter| letter.header("x-task-failed-queue"))
            .collect();
        queues.sort();
        assert_eq!(
            queues,
            [
                "order.audit.queue",
                "order.close.queue",
                "task.ingress.queue",
                "task.unrouted.queue"
            ],
            "{poison}"
        );
        for letter in letters.iter().filter(|letter| letter.reason() != "unroutable") {
            let (kind, text) = (letter.header("x-task-error-kind"), letter.header("x-task-error"));
            assert!(poison.kinds.contains(&kind.as_str()), "{poison}: {kind}, {text}");
        }
    }
    assert!(seen.all().is_empty());
    let good = envelope("good", "order.close.timeout", r#","maxRetries":0"#);
    let packed = bodies::gzip(envelope("packed", "order.close.timeout", r#","maxRetries":0"#).as_bytes());
    let wanted = [(None, good.into_bytes()), (Some("gzip"), packed)];
    for (encoding, body) in &wanted {
        for (exchange, key) in doors {
            let properties = properties(*encoding, None);
            platform.publish_with(exchange, key, body, properties).await;
        }
    }
    // By exchange and by ingress to both subscribers; the one without an SDK refuses it, and nothing takes the third.
    seen.wait(wanted.len() * 2).await;
    let dead = platform.dead_letters(wanted.len() * 3).await;
    assert!(
        dead.iter()
            .all(|letter| wanted.iter().any(|(_, body)| letter.body == *body))
    );
    for queue in [
        "order.close.queue",
        "order.audit.queue",
        "task.failed.queue",
        "task.ingress.queue",
    ] {
        platform.drained(queue).await;
    }
    assert!(platform.dead_letters(0).await.is_empty());
    let mut ids = seen.ids();
    ids.sort();
    assert_eq!(ids, ["good", "good", "packed", "packed"]);
    platform.close().await;
}

fn encoding(letter: &DeadLetter) -> Option<&str> {
    letter
        .properties
        .content_encoding()
        .as_ref()
        .map(|encoding| encoding.as_str())
}

/// Numbers that can be told exactly keep their text up to the handler (B82).
#[tokio::test(flavor = "multi_thread")]
async fn numbers_keep_their_text() {
    let platform = Platform::new().await;
    let (texts, mut received) = tokio::sync::mpsc::unbounded_channel();
    platform.run(
        platform
            .worker()
            .queue("order.close.queue")
            .handle("order.close.timeout", {
                move |context: Context| {
                    let _ = texts.send(context.envelope.payload.as_str().to_owned());
                    async {}
                }
            }),
    );
    let payload = r#"{ "a": 0.1, "b":1.0,"c":-0, "d":9007199254740992 , "e":1e3,"f":"18446744073709551615"}"#;
    let body = envelope("numbers", "order.close.timeout", "").replace(r#"{"n":1}"#, payload);
    platform
        .publish_plain("task.exchange", "order.close.x", body.as_bytes())
        .await;
    let seen = tokio::time::timeout(crate::platform::PATIENCE, received.recv())
        .await
        .unwrap();
    assert_eq!(seen.as_deref(), Some(payload));
    platform.close().await;
}

/// B14 with everything that AMQP lets a client put into a header; odd content types change nothing.
#[tokio::test(flavor = "multi_thread")]
async fn odd_headers_and_properties_are_delivered() {
    let platform = Platform::new().await;
    let seen = platform.listening();
    let mut nested = FieldTable::default();
    for _ in 0..100 {
        let mut outer = FieldTable::default();
        outer.insert("in".into(), AMQPValue::FieldTable(nested));
        nested = outer;
    }
    let values: Vec<AMQPValue> = vec![
        AMQPValue::LongString(vec![b'a', 0x8d, 0xff].into()),
        AMQPValue::FieldTable(nested),
        AMQPValue::DecimalValue(DecimalValue { scale: 2, value: 314 }),
        AMQPValue::Timestamp(1_700_000_000),
        AMQPValue::Void,
        AMQPValue::FieldArray(
            vec![AMQPValue::Boolean(true), AMQPValue::LongString(vec![0xff].into())].into(),
        ),
        AMQPValue::ByteArray(vec![0u8, 255].into()),
        AMQPValue::Double(f64::MAX),
    ];
    for (n, value) in values.iter().enumerate() {
        for header in [
            "anything",
            "x-task-attempt",
            "x-task-due-at",
            "x-death",
            "x-task-routing-key",
        ] {
            let mut headers = FieldTable::default();
            headers.insert(header.into(), value.clone());
            let properties = BasicProperties::default()
                .with_headers(headers)
                .with_content_type("app".into());
            let body = envelope(&format!("{header}-{n}"), "order.close.timeout", "");
            platform
                .publish_with("task.exchange", "order.close.x", body.as_bytes(), properties)
                .await;
        }
    }
    let mut ids: Vec<_> = seen
        .wait(values.len() * 5)
        .await
        .into_iter()
        .map(|s| s.task_id)
        .collect();
    ids.sort();
    ids.dedup();
    assert_eq!(
        ids.len(),
        values.len() * 5,
        "each once, and the consumer stayed up"
    );
    assert!(platform.dead_letters(0).await.is_empty());
    platform.close().await;
}

/// B16: an unknown type is retried, since a newer worker may know it, and then dead-lettered with its own reason; where a client
/// without an SDK refuses what it does not know, the router does the same.
#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_type_is_not_acknowledged_away() {
    let platform = Platform::new().await;
    platform.run_router();
    platform.nacking("order.audit.queue").await;
    let seen = platform.listening();
    let body = envelope("new", "order.close.tomorrow", r#","maxRetries":1"#);
    platform
        .publish_plain("task.exchange", "order.close.tomorrow", body.as_bytes())
        .await;
    let dead = platform.dead_letters(2).await;
    let mut ends: Vec<_> = dead
        .iter()
        .map(|letter| (letter.header("x-task-failed-queue"), letter.reason()))
        .collect();
    ends.sort();
    let expected = [
        ("order.audit.queue", "retries_exhausted"),
        ("order.close.queue", "unknown_task_type"),
    ]
    .map(|(queue, reason)| (queue.to_owned(), reason.to_owned()));
    assert_eq!(ends, expected);
    for letter in &dead {
        assert_eq!(letter.body, body.as_bytes());
        let attempt = tidegate::broker::message::attempt(&letter.properties);
        assert_eq!(attempt, 2, "{}", letter.reason());
    }
    assert!(seen.all().is_empty());
    platform.close().await;
}

/// B14: names that are no UTF-8, which AMQP allows and our client library cannot read.
#[tokio::test(flavor = "multi_thread")]
async fn names_that_are_not_utf8_do_not_take_the_consumer_down() {
    let platform = Platform::new().await;
    platform.run_router();
    let seen = platform.listening();
    let mut raw = RawAmqp::connect(platform.vhost.amqp_url()).await;
    let body = |id: &str| envelope(id, "order.close.timeout", "").into_bytes();
    raw.publish("task.exchange", b"order.close.\xff\x8d", b"fine", &body("key"))
        .await;
    raw.publish("task.exchange", b"order.close.x", b"name\xff", &body("header"))
        .await;
    platform
        .publish_plain("task.exchange", "order.close.x", &body("good"))
        .await;
    tidegate_testkit::eventually(PATIENCE * 3, "the good one", async || {
        seen.ids().contains(&"good".to_owned())
    })
    .await;
    // Both odd ones were delivered or dead-lettered.
    tidegate_testkit::eventually(PATIENCE * 3, "the queue to drain", async || {
        platform
            .vhost
            .management()
            .queue("order.close.queue")
            .await
            .is_some_and(|q| q.messages == 0)
    })
    .await;
    assert!(platform.dead_letters(0).await.is_empty());
    let mut ids = seen.ids();
    ids.sort();
    assert_eq!(ids, ["good", "header", "key"]);
    platform.close().await;
}

/// B14, B21: a header nested without end must not overflow the stack of whoever reads it, router included. A frame has room for
/// five times as many levels, at which the broker itself gets slow.
#[tokio::test(flavor = "multi_thread")]
async fn headers_nested_without_end_end_no_process() {
    let platform = Platform::new().await;
    platform.run_router();
    let seen = platform.listening();
    platform.nacking("order.audit.queue").await;
    let mut raw = RawAmqp::connect(platform.vhost.amqp_url()).await;
    let mut ids = Vec::new();
    for (kind, levels) in [(b'F', 1_000), (b'F', 5_000), (b'A', 5_000)] {
        let id = format!("deep-{}-{levels}", char::from(kind));
        let body = envelope(&id, "order.close.timeout", r#","maxRetries":0"#);
        let table = nested("deep", levels, kind);
        raw.publish_table("task.exchange", b"order.close.x", &table, body.as_bytes())
            .await;
        ids.push(id);
    }
    seen.wait(ids.len()).await;
    let dead = platform.dead_letters(ids.len()).await;
    assert!(dead.iter().all(|letter| letter.reason() == "retries_exhausted"));
    let mut started = seen.ids();
    started.sort();
    ids.sort();
    assert_eq!(started, ids);
    platform.drained("order.close.queue").await;
    platform.close().await;
}

/// B17: headers that fill a frame but for what the broker adds on its own ways: more than that no client can be given.
#[tokio::test(flavor = "multi_thread")]
async fn headers_that_nearly_fill_a_frame_do_not_take_the_consumer_down() {
    let platform = Platform::new().await;
    platform.run_router();
    platform.nacking("order.audit.queue").await;
    let seen = platform.listening();
    let mut raw = RawAmqp::connect(platform.vhost.amqp_url()).await;
    let body = envelope("full", "order.close.timeout", r#","maxRetries":1"#);
    // A content header of one frame: 14 bytes before the table, 4 of its length, 1 behind it.
    let table = filling(131_072 - 8 - 19 - 4_096);
    raw.publish_table("task.exchange", b"order.close.x", &table, body.as_bytes())
        .await;
    seen.wait(1).await;
    assert_eq!(platform.dead_letters(1).await[0].reason(), "retries_exhausted");
    for queue in ["order.close.queue", "order.audit.queue", "task.failed.queue"] {
        platform.drained(queue).await;
    }
    assert_eq!(seen.ids(), ["full"]);
    platform.close().await;
}

/// B16: a rolling deployment. What only the new worker knows outlives the old one, and loses no attempt that it has.
#[tokio::test(flavor = "multi_thread")]
async fn what_only_a_newer_worker_knows_is_kept_for_it() {
    let platform = Platform::new().await;
    let old = Seen::default();
    let stop_old = platform.run(
        platform
            .worker()
            .queue("order.close.queue")
            .concurrency(1)
            .handle("order.close.timeout", noting(&old)),
    );
    for (id, task_type) in [("new", "order.close.tomorrow"), ("known", "order.close.timeout")] {
        let body = envelope(id, task_type, r#","maxRetries":20"#);
        platform
            .publish_plain("task.exchange", "order.close.x", body.as_bytes())
            .await;
    }
    // One after the other: the new one has been met, and waits in the ladder.
    old.wait(1).await;
    stop_old.cancel();
    let new = Seen::default();
    platform.run(
        platform
            .worker()
            .queue("order.close.queue")
            .handle("order.close.tomorrow", noting(&new)),
    );
    let start = new.wait(1).await.remove(0);
    assert!(start.task_id == "new" && start.attempt > 1, "{start:?}");
    platform.drained("order.close.queue").await;
    assert_eq!(
        (old.ids(), new.ids()),
        (vec!["known".to_owned()], vec!["new".to_owned()])
    );
    assert!(platform.dead_letters(0).await.is_empty());
    platform.close().await;
}
