//! The vectors of `conformance/envelope/`, which SDKs in other languages run too.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test may panic, its helper functions too"
)]

use std::{collections::HashSet, fs, path::PathBuf};

use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use tidegate_core::envelope::{Envelope, EnvelopeError, Limits, Rule, peek, unpack};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../conformance/envelope")
}

fn vectors() -> Vec<Value> {
    serde_json::from_slice(&fs::read(folder().join("vectors.json")).unwrap()).unwrap()
}

fn base64(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for c in text.bytes().filter(|c| *c != b'=') {
        let six = ALPHABET.iter().position(|a| *a == c).expect("base64 letter");
        bits = bits << 6 | u32::try_from(six).unwrap();
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).unwrap());
        }
    }
    bytes
}

fn parts(parts: &Value) -> String {
    let part = |p: &Value| {
        p["text"]
            .as_str()
            .unwrap()
            .repeat(p["times"].as_u64().unwrap_or(1).try_into().unwrap())
    };
    parts.as_array().unwrap().iter().map(part).collect()
}

fn body(vector: &Value) -> Vec<u8> {
    if let Some(text) = vector["body"].as_str() {
        text.into()
    } else if let Some(text) = vector["body_base64"].as_str() {
        base64(text)
    } else if let Some(file) = vector["body_file"].as_str() {
        fs::read(folder().join(file)).unwrap()
    } else {
        parts(&vector["body_parts"]).into()
    }
}

fn parse(vector: &Value) -> Result<Envelope, EnvelopeError> {
    let now: DateTime<Utc> = vector["now"].as_str().unwrap().parse().unwrap();
    let limits = Limits::standard();
    let body = body(vector);
    let unpacked = unpack(&body, vector["content_encoding"].as_str(), &limits)?;
    Envelope::parse(&unpacked, &limits, now)
}

/// The envelope as the vectors write it; times as instants with their offset in seconds.
fn shown(envelope: &Envelope) -> Value {
    let mut fields = json!({
        "taskId": envelope.task_id.as_str(),
        "taskType": envelope.task_type.as_str(),
        "payloadVersion": envelope.payload_version,
        "payload": envelope.payload.as_str(),
        "priority": envelope.priority,
    });
    let optional = [
        (
            "scheduleTime",
            envelope.schedule_time.map(|t| json!(t.to_rfc3339())),
        ),
        (
            "timeoutMs",
            envelope
                .timeout
                .map(|t| json!(u64::try_from(t.as_millis()).unwrap())),
        ),
        ("maxRetries", envelope.max_retries.map(|n| json!(n))),
        (
            "idempotencyKey",
            envelope.idempotency_key.as_ref().map(|s| json!(s)),
        ),
        ("producer", envelope.producer.as_ref().map(|s| json!(s))),
        ("traceId", envelope.trace_id.as_ref().map(|s| json!(s))),
        ("timestamp", envelope.timestamp.map(|t| json!(t.to_rfc3339()))),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            fields[name] = value;
        }
    }
    fields
}

/// `ok` with its times in one spelling and its payload in one piece.
fn expected(ok: &Value) -> Value {
    let mut fields = ok.clone();
    for time in ["scheduleTime", "timestamp"] {
        if let Some(text) = ok[time].as_str() {
            fields[time] = json!(DateTime::parse_from_rfc3339(text).unwrap().to_rfc3339());
        }
    }
    if let Some(payload) = ok.get("payload_parts") {
        fields["payload"] = json!(parts(payload));
        fields.as_object_mut().unwrap().remove("payload_parts");
    }
    fields
}

#[test]
fn every_vector_holds() {
    let vectors = vectors();
    assert!(vectors.len() > 250, "only {} vectors", vectors.len());
    let mut failures = Vec::new();
    for vector in &vectors {
        let got = match parse(vector) {
            Ok(envelope) => json!({"ok": shown(&envelope)}),
            Err(error) => {
                let violation = |v: &tidegate_core::envelope::Violation| json!({"pointer": v.pointer, "rule": v.rule.as_str()});
                json!({"violations": error.violations.iter().map(violation).collect::<Vec<_>>()})
            }
        };
        let want = match vector["expect"].get("ok") {
            Some(ok) => json!({"ok": expected(ok)}),
            None => vector["expect"].clone(),
        };
        if got != want {
            failures.push(format!("{}\n   want {want}\n    got {got}", vector["name"]));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn every_rule_has_a_refused_example() {
    let vectors = vectors();
    let refused: HashSet<&str> = vectors
        .iter()
        .filter_map(|v| v["expect"]["violations"].as_array())
        .flatten()
        .filter_map(|v| v["rule"].as_str())
        .collect();
    for rule in Rule::ALL {
        assert!(refused.contains(rule.as_str()), "{rule}");
    }
}

#[test]
fn the_payload_is_a_slice_of_the_bytes_that_were_sent() {
    let mut accepted = 0;
    for vector in vectors().iter().filter(|v| v.get("content_encoding").is_none()) {
        if let Ok(envelope) = parse(vector) {
            let body = String::from_utf8(body(vector)).unwrap();
            assert!(body.contains(envelope.payload.as_str()), "{}", vector["name"]);
            accepted += 1;
        }
    }
    assert!(accepted > 50, "only {accepted}");
}

#[test]
fn every_error_is_one_bounded_line_with_advice_and_every_body_can_be_peeked_at() {
    for vector in vectors() {
        peek(&body(&vector));
        let Err(error) = parse(&vector) else { continue };
        let line = error.to_string();
        assert!(
            !line.is_empty() && line.len() <= EnvelopeError::MAX_DISPLAY_BYTES,
            "{line}"
        );
        assert!(!line.contains(char::is_control), "{line:?}");
        assert!(error.violations.iter().all(|v| v.advice.len() > 10), "{line}");
        assert_eq!(error.is_too_large(), line.contains("too_large"), "{line}");
    }
}
