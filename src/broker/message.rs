//! What travels beside the body: AMQP properties and headers, read without trust and written anew.
//!
//! May import: `core`, lapin. Headers come from strangers: a value of an unexpected type, non-UTF-8 text or an
//! absurd number is treated as absent.

use std::borrow::Cow;

use chrono::{DateTime, SecondsFormat, Utc};
use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldTable, ShortString},
};
use tidegate_core::{crash::Returns, headers};

/// The properties of a message, headers included.
pub use lapin::BasicProperties as Properties;

/// Most bytes of header text that are carried from one publish to the next; beyond it the largest foreign headers
/// are left behind, because a header frame over the connection's `frame_max` (128 KiB) kills the connection.
const MAX_CARRIED_HEADER_BYTES: usize = 96 * 1024;

/// A text header, if it is there and is UTF-8.
pub fn text<'a>(properties: &'a BasicProperties, name: &str) -> Option<&'a str> {
    match properties.headers().as_ref()?.inner().get(name)? {
        AMQPValue::LongString(text) => std::str::from_utf8(text.as_bytes()).ok(),
        AMQPValue::ShortString(text) => Some(text.as_str()),
        _ => None,
    }
}

/// A text header, if it is there; bytes that are no UTF-8 are replaced.
pub fn lossy_text<'a>(properties: &'a BasicProperties, name: &str) -> Option<Cow<'a, str>> {
    match properties.headers().as_ref()?.inner().get(name)? {
        AMQPValue::LongString(text) => Some(String::from_utf8_lossy(text.as_bytes())),
        AMQPValue::ShortString(text) => Some(Cow::Borrowed(text.as_str())),
        _ => None,
    }
}

/// A number header of any AMQP integer type, or a number written as text.
pub fn integer(properties: &BasicProperties, name: &str) -> Option<i64> {
    match properties.headers().as_ref()?.inner().get(name)? {
        AMQPValue::ShortShortInt(n) => Some((*n).into()),
        AMQPValue::ShortShortUInt(n) => Some((*n).into()),
        AMQPValue::ShortInt(n) => Some((*n).into()),
        AMQPValue::ShortUInt(n) => Some((*n).into()),
        AMQPValue::LongInt(n) => Some((*n).into()),
        AMQPValue::LongUInt(n) => Some((*n).into()),
        AMQPValue::LongLongInt(n) => Some(*n),
        AMQPValue::Timestamp(n) => i64::try_from(*n).ok(),
        AMQPValue::LongString(text) => std::str::from_utf8(text.as_bytes()).ok()?.trim().parse().ok(),
        _ => None,
    }
}

/// `content_encoding`, if there is one.
pub fn encoding(properties: &BasicProperties) -> Option<&str> {
    properties.content_encoding().as_ref().map(ShortString::as_str)
}

/// The `x-delay` header as text, whatever AMQP type a client wrote it as; `None` if there is none.
pub fn delay_header(properties: &BasicProperties) -> Option<String> {
    Some(
        match properties.headers().as_ref()?.inner().get(headers::DELAY)? {
            AMQPValue::LongString(text) => text.to_string(),
            AMQPValue::ShortString(text) => text.to_string(),
            AMQPValue::Float(number) => number.to_string(),
            AMQPValue::Double(number) => number.to_string(),
            // An instant is no number of milliseconds.
            AMQPValue::Timestamp(_) => "a timestamp".to_owned(),
            _ => match integer(properties, headers::DELAY) {
                Some(number) => number.to_string(),
                None => "a value that is no number".to_owned(),
            },
        },
    )
}

/// An instant written as RFC 3339.
pub fn instant(properties: &BasicProperties, name: &str) -> Option<DateTime<Utc>> {
    Some(
        DateTime::parse_from_rfc3339(text(properties, name)?)
            .ok()?
            .to_utc(),
    )
}

/// Number of this attempt: 1 where the header is absent or absurd.
pub fn attempt(properties: &BasicProperties) -> u32 {
    integer(properties, headers::ATTEMPT)
        .and_then(|n| u32::try_from(n).ok())
        .unwrap_or(1)
        .max(1)
}

/// How often the broker has taken the message back from a consumer since it was published.
///
/// Up to 4.2 a quorum queue counts every return; 4.3 counts only those that say something about the message, and leaves
/// the header out while there is none. A classic queue marks a message as redelivered and counts nothing.
pub fn returns(properties: &BasicProperties, redelivered: bool) -> Returns {
    // What comes for the first time has no count, whatever its producer wrote.
    if !redelivered {
        return Returns::Counted(0);
    }
    let count = |name| integer(properties, name).and_then(|n| u32::try_from(n).ok());
    match (count(headers::DELIVERY_COUNT), count(headers::ACQUIRED_COUNT)) {
        (Some(returned), _) => Returns::Counted(returned),
        (None, Some(_)) => Returns::Counted(0),
        (None, None) => Returns::Uncounted,
    }
}

/// Properties and headers of a message that is published again: what the producer set, without what belongs to
/// the broker, persistent, and with no TTL of its own.
///
/// `user_id` is dropped because the broker refuses a message that names another connection's user.
pub fn carried(properties: &BasicProperties) -> (BasicProperties, Headers) {
    let mut carried = BasicProperties::default().with_delivery_mode(2);
    macro_rules! keep {
        ($($get:ident => $set:ident),*) => {
            $(if let Some(value) = properties.$get().clone() { carried = carried.$set(value); })*
        };
    }
    keep!(content_type => with_content_type, content_encoding => with_content_encoding,
        correlation_id => with_correlation_id, reply_to => with_reply_to, message_id => with_message_id,
        timestamp => with_timestamp, kind => with_type, app_id => with_app_id, priority => with_priority);
    let foreign = properties.headers().iter().flat_map(|table| table.inner());
    let mut kept: Vec<_> = foreign
        .filter(|(name, _)| !headers::is_never_republished(name.as_str()))
        .collect();
    let mut total: usize = kept.iter().map(|(name, value)| size(name, value)).sum();
    if total > MAX_CARRIED_HEADER_BYTES {
        kept.sort_by_key(|(name, value)| size(name, value));
        while total > MAX_CARRIED_HEADER_BYTES {
            let Some((name, value)) = kept.pop() else { break };
            total -= size(name, value);
        }
    }
    let mut table = FieldTable::default();
    for (name, value) in kept {
        table.insert(name.clone(), value.clone());
    }
    (carried, Headers(table))
}

fn size(name: &ShortString, value: &AMQPValue) -> usize {
    let inside = match value {
        AMQPValue::LongString(text) => text.len(),
        AMQPValue::ShortString(text) => text.as_str().len(),
        AMQPValue::ByteArray(bytes) => bytes.as_slice().len(),
        AMQPValue::FieldTable(table) => table.inner().iter().map(|(n, v)| size(n, v)).sum(),
        AMQPValue::FieldArray(items) => items
            .as_slice()
            .iter()
            .map(|v| size(&ShortString::default(), v))
            .sum(),
        _ => 8,
    };
    name.as_str().len() + 6 + inside
}

/// Headers being written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Headers(FieldTable);

impl Headers {
    /// Sets a text header.
    #[must_use]
    pub fn text(mut self, name: &'static str, value: &str) -> Self {
        self.0
            .insert(name.into(), AMQPValue::LongString(value.as_bytes().into()));
        self
    }

    /// Whether a header is there.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Sets a text header unless it is there already.
    #[must_use]
    pub fn text_if_absent(self, name: &'static str, value: &str) -> Self {
        if self.has(name) {
            self
        } else {
            self.text(name, value)
        }
    }

    /// Takes a header out.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        let table = std::mem::take(&mut self.0);
        let kept = table.inner().iter().filter(|(key, _)| key.as_str() != name);
        for (key, value) in kept {
            self.0.insert(key.clone(), value.clone());
        }
        self
    }

    /// Only those whose names `keep` says.
    #[must_use]
    pub fn only(self, keep: impl Fn(&str) -> bool) -> Self {
        let mut table = FieldTable::default();
        for (name, value) in self.0.inner().iter().filter(|(name, _)| keep(name.as_str())) {
            table.insert(name.clone(), value.clone());
        }
        Self(table)
    }

    /// Sets a number header.
    #[must_use]
    pub fn integer(mut self, name: &'static str, value: i64) -> Self {
        self.0.insert(name.into(), AMQPValue::LongLongInt(value));
        self
    }

    /// Sets an instant, as RFC 3339 with milliseconds.
    #[must_use]
    pub fn instant(self, name: &'static str, value: DateTime<Utc>) -> Self {
        self.text(name, &value.to_rfc3339_opts(SecondsFormat::Millis, true))
    }

    /// The table for `BasicProperties::with_headers`.
    pub fn into_table(self) -> FieldTable {
        self.0
    }
}

/// `text` as an AMQP short string, if it is at most 255 bytes.
pub fn short(text: &str) -> Option<ShortString> {
    ShortString::try_new(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_header(name: &str, value: AMQPValue) -> BasicProperties {
        let mut table = FieldTable::default();
        table.insert(name.into(), value);
        BasicProperties::default().with_headers(table)
    }

    #[test]
    fn absurd_attempts_count_as_the_first() {
        let cases = [
            (AMQPValue::LongLongInt(4), 4),
            (AMQPValue::LongString("3".into()), 3),
            (AMQPValue::LongLongInt(0), 1),
            (AMQPValue::LongLongInt(-7), 1),
            (AMQPValue::LongLongInt(i64::MAX), 1),
            (AMQPValue::Boolean(true), 1),
            (AMQPValue::LongString(vec![0xff, 0x8d].into()), 1),
        ];
        for (value, expected) in cases {
            assert_eq!(
                attempt(&with_header(headers::ATTEMPT, value.clone())),
                expected,
                "{value:?}"
            );
        }
        assert_eq!(attempt(&BasicProperties::default()), 1);
    }

    #[test]
    fn returns_are_read_as_each_kind_of_queue_tells_them() {
        let count = |name, n| with_header(name, AMQPValue::LongLongInt(n));
        let table = [
            (BasicProperties::default(), false, Returns::Counted(0)),
            (BasicProperties::default(), true, Returns::Uncounted),
            (count(headers::DELIVERY_COUNT, 3), true, Returns::Counted(3)),
            (count(headers::DELIVERY_COUNT, 3), false, Returns::Counted(0)),
            (count(headers::DELIVERY_COUNT, -3), true, Returns::Uncounted),
            (count(headers::ACQUIRED_COUNT, 2), true, Returns::Counted(0)),
        ];
        for (properties, redelivered, expected) in table {
            assert_eq!(
                returns(&properties, redelivered),
                expected,
                "{properties:?} {redelivered}"
            );
        }
    }

    #[test]
    fn a_republish_carries_the_producers_headers_only() {
        let mut table = FieldTable::default();
        for name in [
            "x-death",
            "x-delivery-count",
            "CC",
            "x-delay",
            "tenant",
            headers::ATTEMPT,
        ] {
            table.insert(name.into(), AMQPValue::LongString("v".into()));
        }
        let properties = BasicProperties::default()
            .with_headers(table)
            .with_message_id("id".into())
            .with_expiration("10".into())
            .with_user_id("somebody".into())
            .with_delivery_mode(1);
        let (carried, kept) = carried(&properties);
        let names: Vec<_> = kept
            .into_table()
            .inner()
            .keys()
            .map(ToString::to_string)
            .collect();
        assert_eq!(names, ["tenant", headers::ATTEMPT]);
        assert_eq!(carried.message_id().as_ref().unwrap().as_str(), "id");
        assert_eq!(*carried.delivery_mode(), Some(2));
        assert!(carried.expiration().is_none() && carried.user_id().is_none());
    }

    #[test]
    fn too_many_header_bytes_leave_the_largest_behind() {
        let mut table = FieldTable::default();
        for i in 0..40 {
            table.insert(
                format!("h{i}").as_str().into(),
                AMQPValue::LongString(vec![b'x'; 4096].into()),
            );
        }
        table.insert("small".into(), AMQPValue::LongString("kept".into()));
        let (_, kept) = carried(&BasicProperties::default().with_headers(table));
        let table = kept.into_table();
        assert!(table.contains_key("small"));
        let total: usize = table.inner().iter().map(|(n, v)| size(n, v)).sum();
        assert!(total <= MAX_CARRIED_HEADER_BYTES && total > MAX_CARRIED_HEADER_BYTES - 5_000);
    }
}
