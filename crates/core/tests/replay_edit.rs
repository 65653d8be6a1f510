//! What goes out for one dead letter, to the byte, and what doesn't.

#![allow(clippy::unwrap_used, reason = "a test may panic, its helper functions too")]

use std::{borrow::Cow, io::Write};

use chrono::{DateTime, Utc};
use proptest::prelude::*;
use tidegate_core::{
    dead_letter::DeadLetterId,
    envelope::{Limits, Rule},
    headers,
    json_patch::Patch,
    replay::{
        choice::{BodyEdit, KeyChoice, Retries, TaskIdChoice},
        edit::{Edit, EditRefused, Edited, Original},
        header::HeaderValue,
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

fn patched(body: &str, patch: &str, edit: Edit<'_>) -> Result<String, EditRefused> {
    let patch = Patch::parse(patch.as_bytes()).unwrap();
    apply(
        body.as_bytes(),
        &Edit {
            body: BodyEdit::Patch(&patch),
            ..edit
        },
    )
    .map(|edited| text(&edited))
}

fn text(edited: &Edited<'_>) -> String {
    String::from_utf8(edited.body.to_vec()).unwrap()
}

fn unedited() -> Edit<'static> {
    Edit::none(Retries::Reset)
}

/// B82: a number beside the edited field was rounded on its way back.
#[test]
fn an_edit_changes_what_it_says_and_no_other_byte() {
    let out = patched(
        BODY,
        r#"[{"op":"replace","path":"/payload/price","value":1.20}]"#,
        unedited(),
    )
    .unwrap();
    assert_eq!(out, BODY.replace("1.10", "1.20"));
    let out = apply(
        BODY.as_bytes(),
        &Edit {
            body: BodyEdit::Payload(b" {\"id\" :1} "),
            ..unedited()
        },
    )
    .unwrap();
    let start = BODY.find("{\"id\"").unwrap();
    let end = BODY.find(", \"idem").unwrap();
    assert_eq!(
        text(&out),
        format!("{}{{\"id\" :1}}{}", &BODY[..start], &BODY[end..])
    );
    assert_eq!(out.envelope.unwrap().payload.as_str(), "{\"id\" :1}");
}

#[test]
fn ids_keys_and_versions_are_set_where_they_stand() {
    let id = TaskId::parse("order-1-again").unwrap();
    let edit = Edit {
        task_id: TaskIdChoice::New(&id),
        key: KeyChoice::New("k-2\""),
        payload_version: Some(2),
        ..unedited()
    };
    let out = apply(BODY.as_bytes(), &edit).unwrap();
    let expected = BODY
        .replace("\"order-1\"", "\"order-1-again\"")
        .replace("\"k-1\" }", "\"k-2\\\"\", \"payloadVersion\": 2 }");
    assert_eq!(text(&out), expected);
    let envelope = out.envelope.unwrap();
    assert_eq!(
        (envelope.task_id.as_str(), envelope.payload_version),
        ("order-1-again", 2)
    );
    assert_eq!(envelope.idempotency_key.as_deref(), Some("k-2\""));
    let out = apply(
        BODY.as_bytes(),
        &Edit {
            key: KeyChoice::Remove,
            ..unedited()
        },
    )
    .unwrap();
    assert_eq!(text(&out), BODY.replace(", \"idempotency_key\": \"k-1\"", ""));
}

#[test]
fn what_nobody_edits_goes_out_as_it_came() {
    for body in [
        &b"\x00\xff not json"[..],
        b"",
        b"{\"a\":1,\"a\":2}",
        BODY.as_bytes(),
        &[b'['; 300_000],
    ] {
        let out = apply(body, &unedited()).unwrap();
        assert!(matches!(out.body, Cow::Borrowed(same) if same == body));
        assert_eq!(out.envelope, None);
    }
}

#[test]
fn what_is_no_task_afterwards_is_refused_with_the_envelopes_own_errors() {
    for (patch, pointer, rule) in [
        (
            r#"[{"op":"remove","path":"/payload"}]"#,
            "/payload",
            Rule::MissingField,
        ),
        (
            r#"[{"op":"add","path":"/payload/n","value":9007199254740993}]"#,
            "/payload/n",
            Rule::NumberNotExact,
        ),
        (
            r#"[{"op":"add","path":"/colour","value":1}]"#,
            "/colour",
            Rule::UnknownField,
        ),
        (
            r#"[{"op":"replace","path":"/taskType","value":"Order"}]"#,
            "/taskType",
            Rule::BadFormat,
        ),
        (
            r#"[{"op":"add","path":"/payload/n","value":"\u0000"}]"#,
            "/payload/n",
            Rule::Nul,
        ),
        (
            r#"[{"op":"replace","path":"","value":[]}]"#,
            "",
            Rule::NotAnObject,
        ),
    ] {
        // A new id and key, so that the body is what is wrong.
        let id = TaskId::parse("new").unwrap();
        let edit = match pointer {
            "" => Edit {
                key: KeyChoice::Remove,
                ..unedited()
            },
            _ => Edit {
                task_id: TaskIdChoice::New(&id),
                ..unedited()
            },
        };
        match (patched(BODY, patch, edit), pointer) {
            (Err(EditRefused::NotAnEnvelope(error)), _) => {
                assert_eq!(
                    (error.violations[0].pointer.as_str(), error.violations[0].rule),
                    (pointer, rule)
                );
            }
            (Err(EditRefused::TaskIdChanged), "") => {}
            (other, _) => panic!("{patch}: {other:?}"),
        }
    }
}

#[test]
fn identity_is_chosen_and_never_a_by_product() {
    let refused = |patch: &str, edit| patched(BODY, patch, edit).unwrap_err();
    let replace = |path: &str| format!(r#"[{{"op":"replace","path":"{path}","value":"x"}}]"#);
    assert_eq!(
        refused(&replace("/taskId"), unedited()),
        EditRefused::TaskIdChanged
    );
    assert_eq!(
        refused(r#"[{"op":"remove","path":"/taskId"}]"#, unedited()),
        EditRefused::TaskIdChanged
    );
    assert_eq!(
        refused(&replace("/idempotency_key"), unedited()),
        EditRefused::KeyChanged
    );
    assert_eq!(
        refused(r#"[{"op":"remove","path":"/idempotency_key"}]"#, unedited()),
        EditRefused::KeyChanged
    );
    // The same content in other escapes and in the other spelling is the same.
    let other = r#"[{"op":"move","from":"/idempotency_key","path":"/idempotencyKey"},{"op":"replace","path":"/taskId","value":"order\u002d1"}]"#;
    assert!(patched(BODY, other, unedited()).is_ok());
    // Chosen, it may.
    let id = TaskId::parse("order-2").unwrap();
    let edit = Edit {
        task_id: TaskIdChoice::New(&id),
        ..unedited()
    };
    assert!(
        patched(BODY, &replace("/taskId"), edit)
            .unwrap()
            .contains("order-2")
    );
    for (version, current) in [(1, 1), (0, 1)] {
        let edit = Edit {
            payload_version: Some(version),
            ..unedited()
        };
        assert_eq!(
            apply(BODY.as_bytes(), &edit).unwrap_err(),
            EditRefused::NotRaised { current }
        );
    }
    let at_seven = BODY.replace("\"payload\"", "\"payload_version\": 7, \"payload\"");
    let raised = apply(
        at_seven.as_bytes(),
        &Edit {
            payload_version: Some(8),
            ..unedited()
        },
    )
    .unwrap();
    assert_eq!(text(&raised), at_seven.replace(": 7", ": 8"));
}

#[test]
fn a_body_that_is_no_json_can_be_replaced_and_only_that() {
    let poison = b"please close order 1\xff";
    let whole = Edit {
        body: BodyEdit::Whole(BODY.as_bytes()),
        ..unedited()
    };
    assert_eq!(text(&apply(poison, &whole).unwrap()), BODY);
    let payload = Edit {
        body: BodyEdit::Payload(b"{}"),
        ..unedited()
    };
    assert!(
        matches!(apply(poison, &payload), Err(EditRefused::Unreadable(why)) if why.rule == Rule::NotUtf8)
    );
    let twice = b"{\"taskId\":\"a\",\"taskId\":\"b\"}";
    assert!(matches!(apply(twice, &payload), Err(EditRefused::Unreadable(why)) if why.pointer == "/taskId"));
    let broken = Edit {
        body: BodyEdit::Whole(b"{"),
        ..unedited()
    };
    assert!(matches!(
        apply(BODY.as_bytes(), &broken),
        Err(EditRefused::NotJson(_))
    ));
    // The id that a broken body still says is kept as well.
    let cut = br#"{"taskId":"order-9","taskType":"order.close","payl"#;
    assert_eq!(apply(cut, &whole).unwrap_err(), EditRefused::TaskIdChanged);
}

#[test]
fn a_packed_body_is_edited_unpacked_and_one_that_was_too_large_can_be_cut_down() {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(BODY.as_bytes()).unwrap();
    let packed = gzip.finish().unwrap();
    let original = Original {
        content_encoding: Some("gzip"),
        ..original(&packed)
    };
    let edit = Edit {
        body: BodyEdit::Payload(b"{}"),
        ..unedited()
    };
    let out = edit.apply(&original, &Limits::standard(), now()).unwrap();
    assert!(text(&out).contains("\"payload\": {}") && out.envelope.is_some());
    let out = unedited().apply(&original, &Limits::standard(), now()).unwrap();
    assert_eq!(out.body, packed);
    assert!(
        out.headers
            .contains(&(headers::TASK_TYPE, HeaderValue::Text("order.close".to_owned())))
    );
    let large = BODY.replace("caf", &"x".repeat(100_000));
    let out = patched(&large, r#"[{"op":"remove","path":"/payload/note"}]"#, unedited()).unwrap();
    assert!(out.len() < 1_000);
    let nothing = patched(&large, r#"[{"op":"remove","path":"/payload/id"}]"#, unedited());
    assert!(matches!(nothing, Err(EditRefused::NotAnEnvelope(error)) if error.is_too_large()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_bytes_and_no_edit_make_it_panic_and_what_goes_out_edited_is_an_envelope(
        bytes in prop::collection::vec(any::<u8>(), 0..80),
        near in r#"\{("taskId":"[a-c]"|"task_type":"a\.b"|"payload":\{\}|"payload":[0-9]|"idempotencyKey":("k"|1|null)|"payloadVersion":[0-9e-]{1,3}|,){0,9}\}"#,
        version in prop::option::of(any::<u32>()),
        key in any::<String>(),
        encoding in prop::option::of("gzip|identity|x"),
    ) {
        let id = TaskId::parse("new-1").unwrap();
        for body in [&bytes, near.as_bytes(), BODY.as_bytes()] {
            for edited in [BodyEdit::None, BodyEdit::Payload(&bytes), BodyEdit::Payload(b"{\"n\":1}"), BodyEdit::Whole(near.as_bytes())] {
                for (task_id, key) in [(TaskIdChoice::Keep, KeyChoice::Keep), (TaskIdChoice::New(&id), KeyChoice::New(&key)), (TaskIdChoice::Keep, KeyChoice::Remove)] {
                    let edit = Edit { body: edited, task_id, key, payload_version: version, retries: Retries::Reset };
                    let original = Original { content_encoding: encoding.as_deref(), ..original(body) };
                    match edit.apply(&original, &Limits::standard(), now()) {
                        Ok(out) => prop_assert_eq!(out.envelope.is_none(), edit.keeps_body()),
                        Err(why) => prop_assert!(!why.to_string().is_empty()),
                    }
                }
            }
        }
    }
}
