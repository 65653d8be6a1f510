//! Texts that real brokers (3.10.8 and 4.3.6) sent.

use crate::topology::{Conflict, ObjectKind, ObjectName, Setting};

fn object(kind: ObjectKind) -> ObjectName {
    ObjectName {
        kind,
        name: "q".to_owned(),
    }
}

fn setting(value: Option<&str>) -> Setting {
    value.map_or(Setting::Unset, |value| Setting::Value(value.to_owned()))
}

#[test]
fn the_brokers_words_are_taken_apart() {
    type Row = (
        &'static str,
        &'static str,
        Option<&'static str>,
        Option<&'static str>,
    );
    let rows: [Row; 13] = [
        (
            "inequivalent arg 'x-message-ttl' for queue 'q' in vhost 'v': received '2000' but current is '1000'",
            "x-message-ttl",
            Some("1000"),
            Some("2000"),
        ),
        (
            "inequivalent arg 'x-message-ttl' for queue 'q' in vhost 'v': received the value '1000' of type 'signedint' but current is none",
            "x-message-ttl",
            None,
            Some("1000"),
        ),
        (
            "inequivalent arg 'x-message-ttl' for queue 'q' in vhost 'v': received none but current is the value '1000' of type 'signedint'",
            "x-message-ttl",
            Some("1000"),
            None,
        ),
        (
            "inequivalent arg 'x-dead-letter-exchange' for queue 'q' in vhost 'v': received 'other it's \"x\"' but current is 'task.failed'",
            "x-dead-letter-exchange",
            Some("task.failed"),
            Some("other it's \"x\""),
        ),
        (
            "inequivalent arg 'x-dead-letter-exchange' for queue 'q' in vhost 'v': received the value 'task.failed' of type 'longstr' but current is none",
            "x-dead-letter-exchange",
            None,
            Some("task.failed"),
        ),
        (
            "inequivalent arg 'durable' for queue 'q' in vhost 'v': received 'true' but current is 'false'",
            "durable",
            Some("false"),
            Some("true"),
        ),
        (
            "inequivalent arg 'auto_delete' for queue 'q' in vhost 'v': received 'false' but current is 'true'",
            "auto_delete",
            Some("true"),
            Some("false"),
        ),
        (
            "inequivalent arg 'x-single-active-consumer' for queue 'q' in vhost 'v': received the value 'true' of type 'bool' but current is none",
            "x-single-active-consumer",
            None,
            Some("true"),
        ),
        (
            "inequivalent arg 'x-overflow' for queue 'q' in vhost 'v': received 'drop-head' but current is 'reject-publish'",
            "x-overflow",
            Some("reject-publish"),
            Some("drop-head"),
        ),
        (
            "inequivalent arg 'x-queue-type' for queue 'q' in vhost 'v': received 'quorum' but current is 'stream'",
            "x-queue-type",
            Some("stream"),
            Some("quorum"),
        ),
        (
            "inequivalent arg 'type' for exchange 'q' in vhost 'v': received 'fanout' but current is 'topic'",
            "type",
            Some("topic"),
            Some("fanout"),
        ),
        (
            "inequivalent arg 'alternate-exchange' for exchange 'q' in vhost 'v': received none but current is the value 'a' of type 'longstr'",
            "alternate-exchange",
            Some("a"),
            None,
        ),
        (
            "inequivalent arg 'x-delivery-limit' for queue 'q' in vhost 'it's': received '21' but current is '20'",
            "x-delivery-limit",
            Some("20"),
            Some("21"),
        ),
    ];
    for (text, argument, current, wanted) in rows {
        let found = Conflict::parse(
            &object(ObjectKind::Queue),
            &format!("PRECONDITION_FAILED - {text}"),
        );
        let found = found.unwrap_or_else(|| panic!("not parsed: {text}"));
        assert_eq!(found.argument, argument, "{text}");
        assert_eq!(found.current, setting(current), "{text}");
        assert_eq!(found.wanted, setting(wanted), "{text}");
    }
}

#[test]
fn other_refusals_are_no_conflicts() {
    for text in [
        "PRECONDITION_FAILED - invalid arg 'x-max-priority' for queue 'q' in vhost 'v' of queue type rabbit_quorum_queue",
        "PRECONDITION_FAILED - invalid arg 'x-message-ttl' for queue 'q' in vhost 'v': \"expected integer, got longstr\"",
        "PRECONDITION_FAILED - invalid arg 'x-message-ttl' for queue 'q' in vhost 'v': {value_too_large,315360000001}",
        "PRECONDITION_FAILED - Topic binding key '#.a.#.b.#' uses 3 '#' wildcards, at most 2 are allowed",
        "ACCESS_REFUSED - access to queue 'q' in vhost 'v' refused for user 'low'",
        "NOT_FOUND - no queue 'q' in vhost 'v'",
        "",
    ] {
        assert_eq!(Conflict::parse(&object(ObjectKind::Queue), text), None, "{text}");
    }
}

#[test]
fn an_exclusive_queue_in_the_way_is_a_conflict() {
    let text = "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'q' in vhost 'v'. It could be originally declared on another connection or the exclusive property value does not match that of the original declaration.";
    let found = Conflict::parse(&object(ObjectKind::Queue), text).unwrap();
    assert_eq!(
        (found.argument.as_str(), found.current),
        ("exclusive", setting(Some("true")))
    );
}

#[test]
fn a_text_cut_short_still_names_the_argument() {
    let text =
        "PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue 'qqqqqqqqqqqqqqqqqqqqqqqqqqq";
    let found = Conflict::parse(&object(ObjectKind::Queue), text).unwrap();
    assert_eq!(
        (found.argument.as_str(), found.current, found.wanted),
        ("x-message-ttl", Setting::Unknown, Setting::Unknown)
    );
}

#[test]
fn a_report_says_both_values_and_the_way_out() {
    let text =
        "inequivalent arg 'x-message-ttl' for queue 'q' in vhost 'v': received '2000' but current is '1000'";
    let queue = Conflict::parse(&object(ObjectKind::Queue), text)
        .unwrap()
        .to_string();
    for part in [
        "queue q",
        "x-message-ttl \"1000\"",
        "wanted \"2000\"",
        "delete_queue q --if-empty --if-unused",
    ] {
        assert!(queue.contains(part), "{part}: {queue}");
    }
    let exchange = Conflict::parse(&object(ObjectKind::Exchange), text)
        .unwrap()
        .to_string();
    assert!(
        exchange.contains("exchange q") && !exchange.contains("delete_queue"),
        "{exchange}"
    );
}
