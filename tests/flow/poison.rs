//! Bytes and headers that no handler should ever see: dead-lettered once, exactly as they came, and the worker
//! goes on with the next.

use lapin::{
    BasicProperties,
    types::{AMQPValue, DecimalValue, FieldTable},
};
use tidegate::worker::Context;

use crate::{
    platform::{Json, PATIENCE, Platform, envelope},
    raw_amqp::RawAmqp,
};

/// B13, and of B82–B84 what reaches a worker by AMQP.
#[tokio::test(flavor = "multi_thread")]
async fn poison_bodies_are_dead_lettered_once_with_their_exact_bytes() {
    let platform = Platform::new().await;
    let seen = platform.listening();
    let valid = envelope("x", "order.close.timeout", "");
    let in_payload = |text: &str| valid.replace(r#""n":1"#, text).into_bytes();
    let utf16: Vec<u8> = valid.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let bodies: Vec<(Vec<u8>, &str, &str)> = vec![
        (b"".to_vec(), "invalid_envelope", "syntax"),
        (b"{".to_vec(), "invalid_envelope", "syntax"),
        (b"null".to_vec(), "invalid_envelope", "not_an_object"),
        (b"[]".to_vec(), "invalid_envelope", "not_an_object"),
        (b"42".to_vec(), "invalid_envelope", "not_an_object"),
        (utf16, "invalid_envelope", ""),
        (vec![0xff; 16], "invalid_envelope", "not_utf8"),
        (
            br#"{"taskId":"a","payload":{}}"#.to_vec(),
            "invalid_envelope",
            "missing_field",
        ),
        (
            valid.replace("taskId", "task_id\":\"a\",\"taskId").into_bytes(),
            "invalid_envelope",
            "both_spellings",
        ),
        (
            in_payload(r#""n":9007199254740993"#),
            "invalid_envelope",
            "number_not_exact",
        ),
        (
            in_payload(r#""n":18446744073709551615"#),
            "invalid_envelope",
            "number_not_exact",
        ),
        (in_payload(r#""n":1e400"#), "invalid_envelope", "number_not_exact"),
        (in_payload(r#""n":1,"n":2"#), "invalid_envelope", "duplicate_key"),
        (in_payload(r#""n":"a\u0000b""#), "invalid_envelope", "nul"),
        (
            in_payload(r#""n":"\ud800""#),
            "invalid_envelope",
            "lone_surrogate",
        ),
        (
            in_payload(&format!(r#""n":{}1{}"#, "[".repeat(6), "]".repeat(6))),
            "invalid_envelope",
            "too_deep",
        ),
        ("[".repeat(60_000).into_bytes(), "invalid_envelope", ""),
        (vec![b' '; 70_000], "too_large", "too_large"),
    ];
    for (body, ..) in &bodies {
        platform
            .publish_plain("task.exchange", "order.close.x", body)
            .await;
    }
    let good = envelope("good", "order.close.timeout", "");
    platform
        .publish_plain("task.exchange", "order.close.x", good.as_bytes())
        .await;
    seen.wait(1).await;
    let dead = platform.dead_letters(bodies.len()).await;
    for (body, reason, kind) in &bodies {
        let matching: Vec<_> = dead.iter().filter(|d| d.body == *body).collect();
        let shown = String::from_utf8_lossy(&body[..body.len().min(60)]);
        assert_eq!(matching.len(), 1, "exactly once: {shown:?}");
        assert_eq!(matching[0].reason(), *reason, "{shown:?}");
        if !kind.is_empty() {
            assert_eq!(
                matching[0].header("x-task-error-kind"),
                *kind,
                "{shown:?}: {}",
                matching[0].header("x-task-error")
            );
        }
    }
    assert_eq!(seen.ids(), ["good"]);
    platform.drained("order.close.queue").await;
    platform.close().await;
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
                move |context: Context, _: Json| {
                    let _ = texts.send(context.envelope.payload.as_str().to_owned());
                    async { Ok(()) }
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

/// An unknown type is retried, since a newer worker may know it, and then dead-lettered with its own reason.
#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_type_is_not_acknowledged_away() {
    let platform = Platform::new().await;
    let seen = platform.listening();
    let body = envelope("new", "order.close.tomorrow", r#","maxRetries":1"#);
    platform
        .publish_plain("task.exchange", "order.close.tomorrow", body.as_bytes())
        .await;
    let dead = platform.dead_letters(1).await;
    assert_eq!(dead[0].reason(), "unknown_task_type");
    assert_eq!(dead[0].body, body.as_bytes());
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
