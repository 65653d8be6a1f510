//! The same poison in the archive: byte for byte, with all of its headers.

use lapin::{
    BasicProperties,
    types::{AMQPValue, DecimalValue, FieldTable},
};
use tidegate::broker::record;

use super::bodies;
use crate::{
    archive::archived::{Archive, Letter},
    platform::{Platform, envelope},
    raw_amqp::{RawAmqp, filling, nested},
};

/// B13, B15, B21, B82, B83, B84: by worker, by router after a nack, by ingress, and as what nothing takes.
#[tokio::test(flavor = "multi_thread")]
async fn poison_bodies_are_archived_with_their_exact_bytes() {
    let platform = Platform::new().await;
    platform.run_router();
    platform.listening();
    platform.nacking("order.audit.queue").await;
    let archive = Archive::of(&platform).await;
    archive.start();
    let poisons = bodies::poisons();
    for poison in &poisons {
        let properties = BasicProperties::default().with_delivery_mode(2);
        let properties = match poison.encoding {
            Some(encoding) => properties.with_content_encoding(encoding.into()),
            None => properties,
        };
        for (exchange, key) in [
            ("task.exchange", "order.close.x"),
            ("task.ingress", "order.close.x"),
            ("task.exchange", "nobody.takes.this"),
        ] {
            platform
                .publish_with(exchange, key, &poison.body, properties.clone())
                .await;
        }
    }
    let letters = archive.letters(poisons.len() * 4).await;
    for poison in &poisons {
        let encoding = |letter: &Letter| {
            let properties = letter.properties();
            properties.content_encoding().as_ref().map(ToString::to_string)
        };
        let found: Vec<_> = letters
            .iter()
            .filter(|letter| letter.body == poison.body && encoding(letter).as_deref() == poison.encoding)
            .collect();
        let mut reasons: Vec<_> = found.iter().map(|letter| letter.reason.as_str()).collect();
        reasons.sort_unstable();
        let mut expected = [poison.reason, poison.reason, poison.reason, "unroutable"];
        expected.sort_unstable();
        assert_eq!(reasons, expected, "{poison}");
        for letter in found.iter().filter(|letter| letter.reason != "unroutable") {
            assert!(poison.kinds.contains(&letter.error_kind.as_str()), "{poison}");
        }
    }
    platform.drained("task.dead.queue").await;
    archive.close().await;
    platform.close().await;
}

/// All that AMQP lets a client put into properties and headers, a body of 64 KiB and one of none.
#[tokio::test(flavor = "multi_thread")]
async fn odd_headers_are_archived_as_they_are() {
    let platform = Platform::new().await;
    let archive = Archive::of(&platform).await;
    archive.start();
    let mut inside = FieldTable::default();
    inside.insert("core".into(), AMQPValue::LongString("here".into()));
    for _ in 0..100 {
        let mut outer = FieldTable::default();
        outer.insert("in".into(), AMQPValue::FieldTable(inside));
        inside = outer;
    }
    let values = [
        AMQPValue::FieldTable(inside),
        AMQPValue::Boolean(false),
        AMQPValue::ShortShortInt(-1),
        AMQPValue::ShortShortUInt(255),
        AMQPValue::ShortInt(-2),
        AMQPValue::ShortUInt(65_535),
        AMQPValue::LongInt(-3),
        AMQPValue::LongUInt(u32::MAX),
        AMQPValue::LongLongInt(i64::MIN),
        AMQPValue::Float(0.1),
        AMQPValue::Double(-0.0),
        // The broker itself knows no float that is no number, and ends the connection of whoever sends one.
        AMQPValue::Double(f64::MIN_POSITIVE),
        AMQPValue::DecimalValue(DecimalValue { scale: 2, value: 314 }),
        AMQPValue::LongString("\0".into()),
        AMQPValue::LongString(vec![0xff, 0x8d].into()),
        AMQPValue::LongString("订单 😀".into()),
        AMQPValue::ByteArray(vec![0, 255].into()),
        AMQPValue::Timestamp(u64::MAX),
        AMQPValue::FieldArray(vec![AMQPValue::Void, AMQPValue::Boolean(true)].into()),
        AMQPValue::Void,
    ];
    let mut headers = FieldTable::default();
    for (n, value) in values.into_iter().enumerate() {
        headers.insert(format!("h{n:02}\0é").as_str().into(), value);
    }
    let properties = BasicProperties::default()
        .with_headers(headers)
        .with_content_type("a/b".into())
        .with_content_encoding("br".into())
        .with_delivery_mode(2)
        .with_priority(7)
        .with_correlation_id("c\0".into())
        .with_reply_to("r".into())
        .with_message_id("\u{202e}m".into())
        .with_timestamp(u64::MAX)
        .with_type("t".into())
        .with_app_id("a".into());
    let large = vec![0xf0; 64 * 1024];
    for body in [&large[..], b""] {
        platform
            .publish_with("task.dead", "k", body, properties.clone())
            .await;
    }
    let mut letters = archive.letters(2).await;
    letters.sort_by_key(|letter| letter.body.len());
    assert_eq!((letters[0].body.len(), &letters[1].body), (0, &large));
    for letter in &letters {
        assert_eq!(letter.properties(), properties);
    }
    archive.close().await;
    platform.close().await;
}

/// What no client library would send: names and keys that are no UTF-8, tables without end, and headers that fill a frame.
#[tokio::test(flavor = "multi_thread")]
async fn what_no_library_sends_is_archived_too() {
    let platform = Platform::new().await;
    platform.run_router();
    platform.nacking("order.audit.queue").await;
    platform.nacking("order.close.queue").await;
    let archive = Archive::of(&platform).await;
    archive.start();
    let mut raw = RawAmqp::connect(platform.vhost.amqp_url()).await;
    let body = |id: &str| envelope(id, "order.close.timeout", r#","maxRetries":0"#).into_bytes();
    let key = b"order.close.x";
    raw.publish("task.exchange", b"order.close.\xff", b"name\xff", &body("names"))
        .await;
    for (id, table) in [("deep", nested("deep", 5_000, b'F')), ("full", filling(90_000))] {
        raw.publish_table("task.exchange", key, &table, &body(id)).await;
    }
    // Straight to the dead letters: here the archivist is the first to read it.
    raw.publish_table("task.dead", b"\xff\0", &nested("deep", 5_000, b'A'), b"\xff")
        .await;
    let letters = archive.letters(7).await;
    let of = |id: &str| {
        letters
            .iter()
            .find(|letter| letter.task_id.as_deref() == Some(id))
            .unwrap()
            .properties()
    };
    let text = record::record(&of("deep"));
    assert!(
        text.matches("\"t\":\"F\"").count() >= 128 && text.contains("\"t\":\"x\""),
        "{} bytes",
        text.len()
    );
    assert!(record::record(&of("full")).len() > 90_000);
    assert!(letters.iter().any(|letter| letter.body == b"\xff"));
    platform.drained("task.dead.queue").await;
    archive.close().await;
    platform.close().await;
}
