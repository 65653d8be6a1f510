//! Under which key a task is processed once, and how long a delivery waits whose key somebody else holds.
//!
//! May import: `envelope`, serde_json. Pure. The key is text: of a string its characters, however they were escaped;
//! of anything else the JSON as it stands, so that a number keeps every digit.

use std::{borrow::Cow, fmt, time::Duration};

use serde::{
    Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::envelope::Envelope;

/// Longest wait of a delivery before the key is asked for again: its holder may be done long before its lease ends.
pub const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Shortest wait.
const SHORTEST_WAIT: Duration = Duration::from_millis(100);

/// The key of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key<'e> {
    /// Its text, of any length.
    pub text: Cow<'e, str>,
    /// The payload has no such member, or it is null or an empty string: the task id took its place.
    pub is_fallback: bool,
}

/// The envelope's `idempotencyKey`; else what the payload has at `field`, a JSON pointer; else the task id.
pub fn key<'e>(envelope: &'e Envelope, field: Option<&str>) -> Key<'e> {
    if let Some(text) = &envelope.idempotency_key {
        return Key {
            text: Cow::Borrowed(text),
            is_fallback: false,
        };
    }
    match field.map(|field| member(envelope.payload.as_str(), field)) {
        Some(Some(text)) => Key {
            text,
            is_fallback: false,
        },
        missing => Key {
            text: Cow::Borrowed(envelope.task_id.as_str()),
            is_fallback: missing.is_some(),
        },
    }
}

/// How long to wait for a key whose lease lasts `left` more; `jitter` in 0..1 spreads those that wait together.
pub fn wait(left: Duration, jitter: f64) -> Duration {
    let spread = 0.2 * jitter.clamp(0.0, 1.0);
    let until = left.max(SHORTEST_WAIT).min(LONGEST_WAIT).mul_f64(1.0 + spread);
    // At the cap the spread goes the other way.
    if until > LONGEST_WAIT {
        LONGEST_WAIT.mul_f64(1.0 - spread)
    } else {
        until
    }
}

fn member<'e>(payload: &'e str, pointer: &str) -> Option<Cow<'e, str>> {
    let mut text = payload;
    for step in pointer.strip_prefix('/')?.split('/') {
        let step = step.replace("~1", "/").replace("~0", "~");
        let found = serde_json::Deserializer::from_str(text).deserialize_any(Step(&step));
        text = found.ok().flatten()?.get();
    }
    let text = text.trim();
    if text.starts_with('"') {
        let decoded: Cow<'e, str> = match text.get(1..text.len() - 1) {
            Some(plain) if !plain.contains('\\') => Cow::Borrowed(plain),
            _ => Cow::Owned(serde_json::from_str(text).ok()?),
        };
        return (!decoded.is_empty()).then_some(decoded);
    }
    (text != "null").then_some(Cow::Borrowed(text))
}

/// Finds one member or item, and reads over the rest of the value around it.
struct Step<'s>(&'s str);

impl<'de> Visitor<'de> for Step<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or an array")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(matches) = map.next_key_seed(Matches(self.0))? {
            if matches {
                found = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        // RFC 6901: digits without a leading zero.
        let plain = self.0 == "0" || !self.0.starts_with('0');
        let digits = plain && self.0.bytes().all(|b| b.is_ascii_digit());
        let index: usize = self
            .0
            .parse()
            .ok()
            .filter(|_| digits)
            .ok_or_else(|| A::Error::custom("no index"))?;
        let (mut found, mut at) = (None, 0);
        while let Some(item) = items.next_element::<&'de RawValue>()? {
            if at == index {
                found = Some(item);
            }
            at += 1;
        }
        Ok(found)
    }
}

struct Matches<'s>(&'s str);

impl<'de> DeserializeSeed<'de> for Matches<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Matches<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<bool, E> {
        Ok(key == self.0)
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;
    use crate::envelope::Limits;

    fn of(payload: &str, more: &str, field: Option<&str>) -> (String, bool) {
        let body = format!(r#"{{"taskId":"t-1","taskType":"order.close","payload":{payload}{more}}}"#);
        let envelope = Envelope::parse(body.as_bytes(), &Limits::standard(), DateTime::UNIX_EPOCH).unwrap();
        let key = key(&envelope, field);
        (key.text.into_owned(), key.is_fallback)
    }

    #[test]
    fn the_envelope_comes_first_then_the_payload_then_the_task_id() {
        let payload = r#"{"orderId": 90071992547409910, "s":"A\u002d17", "empty":"", "none":null, "deep":{"a/b":[1,{"~":"x"}]}, "o":{"a": 1}}"#;
        let payload = payload.replace("90071992547409910", "9007199254740991");
        for (field, text, is_fallback) in [
            (None, "t-1", false),
            (Some("/orderId"), "9007199254740991", false),
            (Some("/s"), "A-17", false),
            (Some("/deep/a~1b/1/~0"), "x", false),
            (Some("/deep/a~1b/0"), "1", false),
            (Some("/o"), r#"{"a": 1}"#, false),
            (Some("/deep/a~1b/00"), "t-1", true),
            (Some("/deep/a~1b/2"), "t-1", true),
            (Some("/orderId/x"), "t-1", true),
            (Some("/absent"), "t-1", true),
            (Some("/none"), "t-1", true),
            (Some("/empty"), "t-1", true),
        ] {
            assert_eq!(
                of(&payload, "", field),
                (text.to_owned(), is_fallback),
                "{field:?}"
            );
            let by_envelope = of(&payload, r#","idempotencyKey":"K""#, field);
            assert_eq!(by_envelope, ("K".to_owned(), false), "{field:?}");
        }
    }

    #[test]
    fn a_number_keeps_its_digits() {
        for number in ["1.10", "1e2", "-0", "0.1234567890123456"] {
            assert_eq!(of(&format!(r#"{{"n":{number}}}"#), "", Some("/n")).0, number);
        }
    }

    #[test]
    fn a_wait_reaches_the_end_of_the_lease_or_the_cap() {
        let seconds = Duration::from_secs_f64;
        for (left, jitter, expected) in [
            (10.0, 0.0, 10.0),
            (10.0, 1.0, 12.0),
            (0.0, 0.0, 0.1),
            (30.0, 0.5, 27.0),
            (3_600.0, 0.0, 30.0),
            (3_600.0, 1.0, 24.0),
        ] {
            assert_eq!(wait(seconds(left), jitter), seconds(expected), "{left} {jitter}");
        }
    }
}
