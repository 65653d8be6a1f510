//! What an error tells, what it must not tell, and what a broken body still says about itself.

#![allow(clippy::unwrap_used, reason = "a test may panic, its helper functions too")]

use std::time::{Duration, Instant};

use tidegate_core::envelope::{Envelope, EnvelopeError, Limits, Rule, Violation, peek};

fn parse(body: &str) -> Result<Envelope, EnvelopeError> {
    Envelope::parse(
        body.as_bytes(),
        &Limits::standard(),
        "2025-04-02T12:00:00Z".parse().unwrap(),
    )
}

fn refused(body: &str) -> EnvelopeError {
    parse(body).unwrap_err()
}

#[test]
fn an_error_names_place_advice_and_rule_of_every_violation() {
    let error = refused(
        r#"{"taskid":"t-1","taskType":"order.close","payload":{"amount":12345678901234567890},"timeoutMs":null}"#,
    );
    assert_eq!(
        error.to_string(),
        "/taskid: no such field; taskId is probably meant (unknown_field); \
         /payload/amount: a double cannot hold this number as written (above 2^53, over 17 digits, or too small); \
         send as a string (number_not_exact); \
         /timeoutMs: is null; must be an integer from 1 to 86400000, and an optional field with no value is left out \
         (wrong_type); \
         /taskId: the field is required; send it (missing_field)"
    );
    assert!(!error.is_too_large());
}

#[test]
fn a_limit_is_named_in_its_advice() {
    let limits = Limits {
        max_payload_depth: 2,
        max_schedule_ahead: Duration::from_secs(90),
        max_body_bytes: 200,
    };
    let parse = |body: &str| {
        let now = "2025-04-02T12:00:00Z".parse().unwrap();
        Envelope::parse(body.as_bytes(), &limits, now)
            .unwrap_err()
            .to_string()
    };
    let body = r#"{"taskId":"t-1","taskType":"order.close","payload":{"a":{"b":[]}},"scheduleTime":"2025-04-02T12:02:00Z"}"#;
    let error = parse(body);
    assert!(
        error.contains("deeper than 2 levels") && error.contains("more than 90 seconds ahead"),
        "{error}"
    );
    let error = parse(&" ".repeat(201));
    assert!(error.contains("over 200 bytes"), "{error}");
    let error = refused(&body.replace("2025-04-02", "2026-04-02")).to_string();
    assert!(error.contains("more than 90 days ahead"), "{error}");
}

#[test]
fn a_wrong_encoding_is_told_by_its_name() {
    let body = r#"{"taskId":"t-1"}"#;
    let wide = |bytes: fn(u16) -> [u8; 2]| body.encode_utf16().flat_map(bytes).collect::<Vec<u8>>();
    let marked = |mark: &[u8], body: Vec<u8>| [mark, &body].concat();
    for (bytes, name) in [
        (wide(u16::to_le_bytes), "UTF-16"),
        (wide(u16::to_be_bytes), "UTF-16"),
        (marked(b"\xff\xfe", wide(u16::to_le_bytes)), "UTF-16"),
        (marked(b"\xfe\xff", wide(u16::to_be_bytes)), "UTF-16"),
        (marked(b"\xef\xbb\xbf", body.into()), "byte order mark"),
        (marked(b"\x1f\x8b\x08", Vec::new()), "gzip"),
        (marked(b"{\"a\":\"caf\xe9\"}", Vec::new()), "offset 9 "),
    ] {
        let now = "2025-04-02T12:00:00Z".parse().unwrap();
        let error = Envelope::parse(&bytes, &Limits::standard(), now).unwrap_err();
        assert_eq!(error.violations[0].rule, Rule::NotUtf8);
        assert!(error.violations[0].advice.contains(name), "{error}");
    }
}

#[test]
fn a_deep_limit_does_not_overflow_the_stack() {
    let limits = Limits {
        max_payload_depth: usize::MAX,
        ..Limits::standard()
    };
    let deep = |levels: usize| {
        let (open, close) = ("[".repeat(levels - 1), "]".repeat(levels - 1));
        let body = format!(r#"{{"taskId":"t-1","taskType":"order.close","payload":{{"a":{open}{close}}}}}"#);
        Envelope::parse(body.as_bytes(), &limits, "2025-04-02T12:00:00Z".parse().unwrap())
    };
    assert!(deep(64).is_ok());
    assert_eq!(deep(65).unwrap_err().violations[0].rule, Rule::TooDeep);
    assert_eq!(deep(30_000).unwrap_err().violations[0].rule, Rule::TooDeep);
}

#[test]
fn no_value_is_ever_echoed() {
    let secret = "hunter2";
    for body in [
        r#"{"taskId":"hunter2 hunter2","taskType":"HUNTER2.hunter2","payload":"hunter2"}"#,
        r#"{"x":"hunter2","scheduleTime":"hunter2","priority":"hunter2","idempotencyKey":"hunter2\u0000"}"#,
        r#"{"payload":{"a":"hunter2\u0000","b":"\ud800hunter2","b":"hunter2"}}"#,
        r#"{"payload":{"a":hunter2}}"#,
        r#"{"payload":{"a":"hunter2"#,
        "\"hunter2\"",
        "hunter2",
    ] {
        let error = refused(body);
        assert!(
            !format!("{error} {error:?}").to_lowercase().contains(secret),
            "{error:?}"
        );
    }
    let fine = parse(r#"{"taskId":"t-1","taskType":"a.b","payload":{"a":"hunter2"}}"#).unwrap();
    assert!(!format!("{fine:?}").contains(secret));
    assert!(format!("{fine:?}").contains("Payload(15 bytes)"));
}

#[test]
fn the_display_of_many_long_violations_is_cut_and_says_so() {
    let many: Vec<_> = (10..40)
        .map(|i| format!("\"{i}{}\":1", "é".repeat(300)))
        .collect();
    let error = refused(&format!("{{{}}}", many.join(",")));
    assert_eq!(error.violations.len(), EnvelopeError::MAX_VIOLATIONS);
    let line = error.to_string();
    assert!(line.len() <= EnvelopeError::MAX_DISPLAY_BYTES, "{}", line.len());
    let shown = line.matches("(unknown_field)").count();
    assert!(
        shown > 3 && line.ends_with(&format!("; and {} more", 20 - shown)),
        "{line}"
    );
    // An error built elsewhere stays within the bound too.
    let advice = "x".repeat(10_000);
    let long = EnvelopeError {
        violations: vec![Violation {
            pointer: String::new(),
            rule: Rule::Syntax,
            advice,
        }],
    };
    assert!(long.to_string().len() <= EnvelopeError::MAX_DISPLAY_BYTES);
}

#[test]
fn many_keys_are_not_compared_each_with_each() {
    let keys: Vec<_> = (0..6_500).map(|i| format!("\"{i:x}\":0")).collect();
    let body = format!(
        r#"{{"taskId":"t-1","taskType":"a.b","payload":{{{}}}}}"#,
        keys.join(",")
    );
    let started = Instant::now();
    for _ in 0..10 {
        assert!(parse(&body).is_ok());
    }
    // 65,000 keys take tens of milliseconds in a debug build; two hundred million comparisons take many seconds.
    assert!(
        started.elapsed() < Duration::from_secs(2),
        "{:?}",
        started.elapsed()
    );
}

fn names(body: &[u8]) -> (Option<String>, Option<String>) {
    let peek = peek(body);
    (
        peek.task_id.map(|id| id.to_string()),
        peek.task_type.map(|kind| kind.to_string()),
    )
}

#[test]
fn a_broken_body_is_labelled_by_what_it_still_says() {
    let both = (Some("t-1".to_owned()), Some("order.close".to_owned()));
    let bodies: [&[u8]; 9] = [
        br#"{"taskId":"t-1","taskType":"order.close"}"#,
        br#" { "task_id" : "t-1", "payload":{"taskId":"no","a":["}"]}, "task_type":"order.close", "x":"#,
        br#"{"taskId":"t-1","taskType":"order.close","payload":{"a":"#,
        br#"{"taskId":"t\u002d1","taskType":"order.close","#,
        br#"{"x":[[{"a":"\"]"}]],"y":1e400,"z":null,"taskId":"t-1","taskType":"order.close"}"#,
        b"\xef\xbb\xbf{\"taskId\":\"t-1\",\"taskType\":\"order.close\"}",
        b"{\"note\":\"caf\xe9\",\"taskId\":\"t-1\",\"taskType\":\"order.close\"}",
        br#"{"taskId":7,"taskId":"t-1","taskId":"t-2","taskType":"order.close"}"#,
        br#"{"taskId":"no good","task_id":"t-1","taskType":"order.close","taskType":"order.open"}"#,
    ];
    for body in bodies {
        assert_eq!(names(body), both, "{}", String::from_utf8_lossy(body));
    }
}

#[test]
fn a_body_that_says_nothing_is_not_labelled() {
    let far = format!(r#"{{"x":"{}","taskId":"t-1"}}"#, "x".repeat(64 * 1024));
    let deep = "[".repeat(100_000);
    let bodies: [&[u8]; 8] = [
        b"",
        b"{",
        b"null",
        br#"[{"taskId":"t-1","taskType":"order.close"}]"#,
        br#"{"payload":{"taskId":"t-1","taskType":"order.close"}}"#,
        br#"{"taskId":"\ud800","taskType":"order"}"#,
        far.as_bytes(),
        deep.as_bytes(),
    ];
    for body in bodies {
        assert_eq!(
            names(body),
            (None, None),
            "{}",
            String::from_utf8_lossy(&body[..body.len().min(80)])
        );
    }
}
