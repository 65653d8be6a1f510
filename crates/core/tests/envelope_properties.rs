//! What holds for any bytes, any payload and any key.

#![allow(clippy::unwrap_used, reason = "a test may panic, its helper functions too")]

use std::io::Write;

use chrono::{DateTime, Utc};
use proptest::prelude::*;
use serde_json::Value;
use tidegate_core::envelope::{Envelope, EnvelopeError, Limits, Rule, peek, unpack};

fn now() -> DateTime<Utc> {
    "2025-04-02T12:00:00Z".parse().unwrap()
}

fn parse(body: &[u8]) -> Result<Envelope, EnvelopeError> {
    Envelope::parse(body, &Limits::standard(), now())
}

/// White space that JSON allows between tokens.
fn space() -> impl Strategy<Value = String> {
    "[ \t\r\n]{0,2}"
}

/// A string literal, escaped in one of the ways producers do.
fn literal(text: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    (text, any::<bool>()).prop_map(|(text, ascii)| {
        let plain = serde_json::to_string(&text).unwrap();
        if !ascii {
            return plain;
        }
        plain
            .encode_utf16()
            .fold(String::new(), |out, unit| match char::from_u32(unit.into()) {
                Some(c) if c.is_ascii() => out + &c.to_string(),
                _ => out + &format!("\\u{unit:04x}"),
            })
    })
}

fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        (-(1_i64 << 53)..=(1_i64 << 53)).prop_map(|n| n.to_string()),
        (-99_999_i64..99_999, 0_u32..100_000).prop_map(|(whole, fraction)| format!("{whole}.{fraction}")),
        (1_i64..999, -300_i32..12).prop_map(|(mantissa, exponent)| format!("{mantissa}E{exponent:+}")),
    ]
}

/// The text of a valid payload: at most five levels, unique keys, exact numbers.
fn payload() -> impl Strategy<Value = String> {
    let scalar = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        number(),
        literal("[^\0]{0,12}")
    ];
    let value = scalar.prop_recursive(4, 12, 3, |inner| {
        let array = prop::collection::vec((space(), inner.clone(), space()), 0..4).prop_map(|items| {
            let items: Vec<_> = items.into_iter().map(|(a, v, b)| a + &v + &b).collect();
            format!("[{}]", items.join(","))
        });
        prop_oneof![array, object(inner, 3)]
    });
    object(value, 20)
}

fn object(value: impl Strategy<Value = String>, most: usize) -> impl Strategy<Value = String> {
    prop::collection::vec((literal("[^\0]{0,4}"), space(), value, space()), 0..=most).prop_map(|members| {
        let member = |(at, (key, a, v, b)): (usize, (String, String, String, String))| {
            // The index behind the last `!` makes the key unique.
            format!("{a}{}!{at}\"{b}:{a}{v}{b}", &key[..key.len() - 1])
        };
        let members: Vec<_> = members.into_iter().enumerate().map(member).collect();
        format!("{{{}}}", members.join(","))
    })
}

fn envelope(payload: &str) -> String {
    format!(r#"{{"taskId":"t-1","taskType":"order.close","payload":{payload},"traceId":"x"}}"#)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let error = parse(&bytes).unwrap_err();
        prop_assert!(!error.violations.is_empty());
        peek(&bytes);
        for encoding in [None, Some("gzip"), Some("x")] {
            let _ = unpack(&bytes, encoding, &Limits::standard());
        }
    }

    #[test]
    fn no_text_that_is_nearly_json_makes_it_panic(
        text in r#"([\{\}\[\],:"\\]|"[a-z\\]{0,3}"|\\u[0dD][08-9a-f]00|-?[0-9.e+-]{1,4}|true|null|é| ){0,40}"#,
    ) {
        let bodies =
            [text.clone(), envelope(&text), envelope(&format!("{{\"a\":{text}}}")), format!("{{\"taskId\":{text}")];
        for body in bodies {
            if let Err(error) = parse(body.as_bytes()) {
                prop_assert!(!error.violations.is_empty());
                prop_assert!(error.violations.len() <= EnvelopeError::MAX_VIOLATIONS);
                prop_assert!(error.to_string().len() <= EnvelopeError::MAX_DISPLAY_BYTES);
            }
            peek(body.as_bytes());
        }
    }

    #[test]
    fn a_valid_envelope_keeps_its_payload_to_the_byte(payload in payload()) {
        let body = envelope(&payload);
        let parsed = parse(body.as_bytes());
        prop_assert_eq!(parsed.as_ref().map(|e| e.payload.as_str()), Ok(payload.as_str()));
        let parsed = parsed.unwrap();
        prop_assert_eq!(parsed.trace_id.as_deref(), Some("x"));
        // And it survives the journey packed.
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(body.as_bytes()).unwrap();
        let packed = gzip.finish().unwrap();
        let unpacked = unpack(&packed, Some("gzip"), &Limits::standard()).unwrap();
        prop_assert_eq!(&*unpacked, body.as_bytes());
    }

    #[test]
    fn a_pointer_leads_to_the_number_it_refuses(payload in payload(), key in r"[~/a-zé]{1,8}") {
        let mut value: Value = serde_json::from_str(&payload).unwrap();
        let marker = 9_007_199_254_740_995_u64;
        value.as_object_mut().unwrap().insert(key, Value::from(vec![marker]));
        let body: Value = serde_json::from_str(&envelope(&value.to_string())).unwrap();
        let error = parse(body.to_string().as_bytes()).unwrap_err();
        prop_assert_eq!(error.violations.len(), 1);
        prop_assert_eq!(error.violations[0].rule, Rule::NumberNotExact);
        prop_assert_eq!(body.pointer(&error.violations[0].pointer), Some(&Value::from(marker)));
    }

    #[test]
    fn an_integer_is_exact_if_a_double_counts_to_it(n in any::<i64>(), near in -4_i64..=4) {
        for n in [n, (1 << 53) + near, -(1 << 53) + near] {
            let accepted = parse(envelope(&format!("{{\"n\":{n}}}")).as_bytes()).is_ok();
            prop_assert_eq!(accepted, n.unsigned_abs() <= 1 << 53, "{}", n);
        }
    }

    #[test]
    fn a_double_as_it_is_printed_is_exact(n in any::<f64>()) {
        // Large ones are brought below 2^53.
        let n = if n.abs() > 9_007_199_254_740_992.0 { 1.0 / n } else { n };
        for text in [format!("{n}"), format!("{n:e}"), format!("{n:.16e}")] {
            prop_assert!(parse(envelope(&format!("{{\"n\":{text}}}")).as_bytes()).is_ok(), "{}", text);
        }
    }
}
