use std::io::Write;

use flate2::{Compression, write::GzEncoder};
use lapin::types::{AMQPValue, FieldTable};
use proptest::prelude::*;

use super::*;

fn now() -> DateTime<Utc> {
    "2026-11-30T12:00:00Z".parse().unwrap()
}

const FRESH: DeadLetterId = DeadLetterId([7; 16]);
const NAME: &str = "019ad4c0-0000-7abc-8def-0123456789ab";

fn text(value: &str) -> AMQPValue {
    AMQPValue::LongString(value.into())
}

fn with(headers: &[(&str, AMQPValue)]) -> Properties {
    let mut table = FieldTable::default();
    for (name, value) in headers {
        table.insert((*name).into(), value.clone());
    }
    Properties::default().with_headers(table)
}

/// As it comes from worker or router.
fn sent(more: &[(&str, AMQPValue)]) -> Properties {
    let ours = [
        (headers::DEAD_LETTER_ID, text(NAME)),
        (headers::FAILED_QUEUE, text("order.close.queue")),
        (headers::ROUTING_KEY, text("order.close.timeout")),
        (headers::DEAD_REASON, text("retries_exhausted")),
        (headers::ERROR_KIND, text("declined")),
        (headers::ERROR, text("card 4711 declined")),
        (headers::ATTEMPT, AMQPValue::LongLongInt(4)),
        (headers::FIRST_FAILED_AT, text("2026-11-30T11:00:00.000Z")),
    ];
    with(&[&ours, more].concat())
}

fn letter(properties: &Properties, body: &[u8]) -> NewDeadLetter {
    let arrived = Arrived {
        queue: "task.dead.queue",
        routing_key: "order.close.queue",
        properties,
        body: &Bytes::copy_from_slice(body),
    };
    read(&arrived, &Limits::standard(), FRESH, now())
}

/// The broker's record of a death.
fn recorded(reason: &str, queue: &str) -> AMQPValue {
    let mut death = FieldTable::default();
    death.insert("reason".into(), text(reason));
    death.insert("queue".into(), text(queue));
    death.insert(
        "routing-keys".into(),
        AMQPValue::FieldArray(vec![text("in.that.queue")].into()),
    );
    AMQPValue::FieldArray(vec![AMQPValue::FieldTable(death)].into())
}

const BODY: &[u8] = br#"{"taskId":"a-1","taskType":"order.close","payload":{}}"#;

#[test]
fn what_tidegate_sends_is_read_as_it_says() {
    let properties = sent(&[]);
    let letter = letter(&properties, BODY);
    assert_eq!(letter.died_at.timestamp_millis(), 0x019a_d4c0_0000);
    assert_ne!(letter.id, FRESH);
    assert_eq!(letter.task_id.as_deref(), Some("a-1"));
    assert_eq!(letter.body_task_id.as_ref().map(TaskId::as_str), Some("a-1"));
    assert_eq!(letter.task_type.as_deref(), Some("order.close"));
    assert_eq!(letter.queue, "order.close.queue");
    assert_eq!(letter.routing_key.as_deref(), Some("order.close.timeout"));
    assert_eq!(letter.reason, DeadReason::RetriesExhausted);
    assert_eq!(
        (letter.error_kind.as_str(), letter.error.as_str(), letter.attempts),
        ("declined", "card 4711 declined", 4)
    );
    assert_eq!(
        letter.first_failed_at,
        "2026-11-30T11:00:00Z".parse::<DateTime<Utc>>().ok()
    );
    assert_eq!(
        letter.fingerprint,
        Fingerprint::of(
            Some("order.close"),
            DeadReason::RetriesExhausted,
            "declined",
            "card 815 declined"
        )
    );
    assert_eq!(letter.body, BODY);
    assert_eq!(record::restore(&letter.properties).unwrap(), properties);
    assert_eq!(letter.replay_of, None);
}

/// Sent again with the headers of its first death, by a script or a shovel, and dead-lettered by a queue of somebody's own: taken
/// for the first death it would be in neither archive nor queue.
#[test]
fn a_death_that_the_broker_tells_of_has_no_name_of_an_earlier_one() {
    let first = letter(&sent(&[]), BODY);
    let second = letter(&sent(&[("x-death", recorded("rejected", "theirs"))]), BODY);
    assert_ne!(first.id, FRESH);
    assert_eq!(second.id, FRESH);
    assert_ne!(second.died_at, first.died_at);
}

#[test]
fn a_body_is_named_by_itself_or_else_by_its_headers() {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(BODY).unwrap();
    let packed = packed.finish().unwrap();
    let named = Properties::default()
        .with_message_id("m-1".into())
        .with_type("by.property".into());
    let by_header = with(&[(headers::TASK_TYPE, text("by.header"))]).with_type("by.property".into());
    type Case<'a> = (&'a [u8], Properties, Option<&'a str>, Option<&'a str>);
    let table: &[Case<'_>] = &[
        (BODY, named.clone(), Some("a-1"), Some("order.close")),
        (
            &packed,
            named.clone().with_content_encoding("gzip".into()),
            Some("a-1"),
            Some("order.close"),
        ),
        // Packed and not told so, or told so and not packed: read as it is.
        (&packed, named.clone(), Some("m-1"), Some("by.property")),
        (
            BODY,
            named.clone().with_content_encoding("gzip".into()),
            Some("a-1"),
            Some("order.close"),
        ),
        (b"no json", named, Some("m-1"), Some("by.property")),
        (b"", by_header, None, Some("by.header")),
        (
            b"\0\xff",
            with(&[]).with_message_id("no id at all".into()),
            None,
            None,
        ),
        (
            br#"{"taskId":"cut-off","taskType":"a.b","payl"#,
            with(&[]),
            Some("cut-off"),
            Some("a.b"),
        ),
    ];
    for (body, properties, task_id, task_type) in table {
        let letter = letter(properties, body);
        let shown = String::from_utf8_lossy(body);
        assert_eq!(letter.task_id.as_deref(), *task_id, "{shown:?}");
        assert_eq!(letter.task_type.as_deref(), *task_type, "{shown:?}");
    }
    let by_property = letter(&Properties::default().with_message_id("m-1".into()), b"");
    assert_eq!(
        by_property.body_task_id, None,
        "what no body says proves no lineage"
    );
}

#[test]
fn a_strangers_message_is_a_dead_letter_all_the_same() {
    let letter = letter(&Properties::default(), b"hello");
    assert_eq!((letter.id, letter.died_at), (FRESH, now()));
    assert_eq!(letter.queue, "task.dead.queue");
    assert_eq!(letter.routing_key.as_deref(), Some("order.close.queue"));
    assert_eq!(
        (letter.reason, letter.error_kind.as_str(), letter.attempts),
        (DeadReason::Rejected, "no_reason", 1)
    );
}

/// What a queue dead-letters straight into `task.dead` has our headers of an earlier failure, which are not why it is here.
#[test]
fn the_brokers_record_counts_more_than_copied_headers() {
    for (reason, expected) in [
        ("expired", DeadReason::Expired),
        ("delivery_limit", DeadReason::DeliveryLimit),
        ("rejected", DeadReason::Rejected),
        ("maxlen", DeadReason::Rejected),
    ] {
        let letter = letter(&sent(&[("x-death", recorded(reason, "theirs"))]), BODY);
        assert_eq!((letter.queue.as_str(), letter.reason), ("theirs", expected));
        assert_eq!(letter.error_kind, reason);
        assert!(letter.error.contains("theirs"), "{}", letter.error);
        // As first published, which our header knows.
        assert_eq!(letter.routing_key.as_deref(), Some("order.close.timeout"));
    }
    let letter = letter(&with(&[("x-death", recorded("rejected", "theirs"))]), BODY);
    assert_eq!(letter.routing_key.as_deref(), Some("in.that.queue"));
}

/// B84 and the like: nothing in a text is refused by Postgres, or longer than its column.
#[test]
fn texts_are_made_to_fit() {
    let nul = "a\0b";
    let letter = letter(
        &sent(&[
            (headers::FAILED_QUEUE, text(nul)),
            (headers::ROUTING_KEY, text(&"é\0".repeat(200))),
            (headers::ERROR_KIND, text(nul)),
            (
                headers::ERROR,
                AMQPValue::LongString(b"half \xff\0".to_vec().into()),
            ),
            (headers::FIRST_FAILED_AT, text("yesterday")),
            (headers::ATTEMPT, text("-3")),
            (headers::DEAD_REASON, text("because")),
        ]),
        BODY,
    );
    assert_eq!(letter.queue, "a\u{fffd}b");
    assert!(letter.routing_key.unwrap().len() <= 255);
    assert_eq!(
        (letter.error_kind.as_str(), letter.error.as_str()),
        ("a b", "half \u{fffd}\\u0000")
    );
    assert_eq!((letter.first_failed_at, letter.attempts), (None, 1));
    assert_eq!(letter.reason, DeadReason::Rejected);
}

proptest! {
    #[test]
    fn any_message_has_a_row(
        body in any::<Vec<u8>>(), key in ".{0,300}",
        values in prop::collection::vec((0..9usize, any::<Vec<u8>>()), 0..9),
    ) {
        const NAMES: [&str; 9] = [
            headers::DEAD_LETTER_ID, headers::FAILED_QUEUE, headers::ROUTING_KEY, headers::DEAD_REASON, headers::ERROR_KIND,
            headers::ERROR, headers::ATTEMPT, headers::REPLAY_OF, headers::TASK_TYPE,
        ];
        let headers: Vec<_> = values
            .into_iter()
            .map(|(n, value)| (NAMES[n], AMQPValue::LongString(value.into())))
            .collect();
        let properties = with(&headers);
        let arrived = Arrived {
            queue: "task.dead.queue",
            routing_key: &key,
            properties: &properties,
            body: &body.into(),
        };
        let letter = read(&arrived, &Limits::standard(), FRESH, now());
        let texts = [
            Some(&letter.queue), Some(&letter.error_kind), Some(&letter.error), Some(&letter.properties),
            letter.routing_key.as_ref(), letter.task_id.as_ref(), letter.task_type.as_ref(),
        ];
        prop_assert!(texts.iter().flatten().all(|text| !text.contains('\0')));
        prop_assert!(letter.queue.len() <= 255 && letter.routing_key.is_none_or(|key| key.len() <= 255));
        prop_assert!(letter.error.len() <= 16_384 && letter.died_at <= now());
    }
}
