//! What a replay keeps, drops and sets beside the body, and where it goes.

#![allow(clippy::unwrap_used, reason = "a test may panic, its helper functions too")]

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use tidegate_core::{
    dead_letter::DeadLetterId,
    dispose::DeadReason,
    envelope::Limits,
    headers,
    json_patch::Patch,
    ladder::Target,
    replay::{
        choice::{BodyEdit, Destination, KeyChoice, Retries, TaskIdChoice},
        edit::{Edit, EditRefused, Edited, Original},
        header::{HeaderFate, HeaderValue, header_fate},
    },
    task::TaskId,
};

const BODY: &str = r#"{ "taskId": "order-1", "taskType": "order.close",
  "payload": {"id": 9007199254740991, "price": 1.10, "note": "caf\u00e9 \/"}, "idempotency_key": "k-1" }"#;

fn now() -> DateTime<Utc> {
    "2025-04-02T12:00:00Z".parse().unwrap()
}

fn original(body: &[u8]) -> Original<'_> {
    Original {
        id: DeadLetterId([7; 16]),
        body,
        content_encoding: None,
    }
}

fn apply<'o>(body: &'o [u8], edit: &Edit<'_>) -> Result<Edited<'o>, EditRefused> {
    edit.apply(&original(body), &Limits::standard(), now())
}

fn unedited() -> Edit<'static> {
    Edit::none(Retries::Reset)
}

/// B80: an edited replay went out without its headers.
#[test]
fn headers_say_that_it_is_a_replay_and_whose() {
    let text = |text: &str| HeaderValue::Text(text.to_owned());
    let out = apply(BODY.as_bytes(), &unedited()).unwrap();
    let expected = [
        (headers::ORIGIN, text("replay")),
        (headers::REPLAY_OF, text("07070707-0707-0707-0707-070707070707")),
        (headers::ATTEMPT, HeaderValue::Integer(1)),
        (headers::TASK_TYPE, text("order.close")),
    ];
    assert_eq!(out.headers, expected);
    let out = apply(b"no json", &Edit::none(Retries::Keep)).unwrap();
    assert_eq!(out.headers, expected[..2]);
    // Another type is told in the header as well.
    let edit = r#"[{"op":"replace","path":"/taskType","value":"order.cancel"}]"#;
    let patch = Patch::parse(edit.as_bytes()).unwrap();
    let out = apply(
        BODY.as_bytes(),
        &Edit {
            body: BodyEdit::Patch(&patch),
            ..unedited()
        },
    )
    .unwrap();
    assert_eq!(out.headers[3].1, text("order.cancel"));
}

#[test]
fn what_describes_the_task_is_kept_and_what_tells_its_last_life_is_not() {
    use HeaderFate::{BrokersOwn, Counted, Kept, LastFailure, Passed, Replaced};
    for (name, reset, keep) in [
        (headers::TASK_TYPE, Kept, Kept),
        (headers::ROUTING_KEY, Kept, Kept),
        ("traceparent", Kept, Kept),
        ("tracestate", Kept, Kept),
        ("x-tenant", Kept, Kept),
        ("x-reply-queue", Kept, Kept),
        ("", Kept, Kept),
        (headers::ATTEMPT, Replaced, Kept),
        (headers::FIRST_FAILED_AT, LastFailure, Kept),
        (headers::ORIGIN, Replaced, Replaced),
        (headers::REPLAY_OF, Replaced, Replaced),
        (headers::FAILED_QUEUE, LastFailure, LastFailure),
        (headers::ERROR_KIND, LastFailure, LastFailure),
        (headers::ERROR, LastFailure, LastFailure),
        (headers::DEAD_REASON, LastFailure, LastFailure),
        (headers::DEAD_LETTER_ID, LastFailure, LastFailure),
        (headers::CRASHES, Counted, Counted),
        (headers::WAITS, Counted, Counted),
        (headers::DUE_AT, Passed, Passed),
        (headers::SCHEDULE_TIME, Passed, Passed),
        (headers::DELAY, Passed, Passed),
        ("x-death", BrokersOwn, BrokersOwn),
        ("x-first-death-queue", BrokersOwn, BrokersOwn),
        ("CC", BrokersOwn, BrokersOwn),
        (headers::DELIVERY_COUNT, BrokersOwn, BrokersOwn),
    ] {
        assert_eq!(
            (
                header_fate(name, Retries::Reset),
                header_fate(name, Retries::Keep)
            ),
            (reset, keep),
            "{name}"
        );
        assert!(!(reset.is_kept() && headers::is_never_republished(name)));
    }
}

#[test]
fn a_replay_goes_where_it_was_chosen_to_go() {
    use Destination::{FailedQueue, RoutingKey};
    let queue = Some("order.close.queue");
    let to = |name: &str| Some(Target::Queue(name.to_owned()));
    let key = |name: &str| Some(Target::Key(name.to_owned()));
    for (destination, reason, queue, routing_key, expected) in [
        (
            FailedQueue,
            DeadReason::Rejected,
            queue,
            Some("order.close"),
            to("order.close.queue"),
        ),
        (
            RoutingKey,
            DeadReason::Rejected,
            queue,
            Some("order.close"),
            key("order.close"),
        ),
        (
            FailedQueue,
            DeadReason::Unroutable,
            Some("x"),
            Some("order.close"),
            None,
        ),
        (
            RoutingKey,
            DeadReason::Unroutable,
            None,
            Some("order.close"),
            key("order.close"),
        ),
        (FailedQueue, DeadReason::Rejected, None, None, None),
        (FailedQueue, DeadReason::Rejected, Some(""), None, None),
        (RoutingKey, DeadReason::Rejected, queue, None, None),
    ] {
        assert_eq!(
            destination.target(reason, queue, routing_key),
            expected,
            "{destination:?} {reason}"
        );
    }
}

#[test]
fn every_choice_says_what_it_means() {
    let id = TaskId::parse("t").unwrap();
    let meanings = [
        TaskIdChoice::Keep.meaning(),
        TaskIdChoice::New(&id).meaning(),
        KeyChoice::Keep.meaning(),
        KeyChoice::New("k").meaning(),
        KeyChoice::Remove.meaning(),
        Retries::Reset.meaning(),
        Retries::Keep.meaning(),
        Destination::FailedQueue.meaning(),
        Destination::RoutingKey.meaning(),
        HeaderFate::Kept.meaning(),
        HeaderFate::BrokersOwn.meaning(),
        HeaderFate::LastFailure.meaning(),
        HeaderFate::Counted.meaning(),
        HeaderFate::Passed.meaning(),
        HeaderFate::Replaced.meaning(),
    ];
    assert_eq!(meanings.iter().collect::<HashSet<_>>().len(), meanings.len());
}
