//! RFC 3339 with offset, to the letter of its grammar.

use chrono::{DateTime, FixedOffset};

/// Longest text looked at; the longest that means anything has nine digits of fraction.
const MAX_BYTES: usize = 64;

/// `text` as an instant; `None` if it is not RFC 3339 or no date of the calendar.
///
/// chrono also takes a space for the `T` and U+2212 for the minus sign; parsers in other languages do not.
pub(crate) fn parse(text: &str) -> Option<DateTime<FixedOffset>> {
    let strict =
        text.len() <= MAX_BYTES && text.is_ascii() && matches!(text.as_bytes().get(10), Some(b'T' | b't'));
    if !strict {
        return None;
    }
    DateTime::parse_from_rfc3339(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rfc_3339_with_offset_is_a_time() {
        for ok in [
            "2025-09-11T12:45:00+08:00",
            "2025-04-02T12:00:01Z",
            "2025-04-02t12:00:01.123456789z",
            "2016-12-31T23:59:60Z",
            "2025-04-02T12:00:01-00:00",
        ] {
            assert!(parse(ok).is_some(), "{ok}");
        }
        for bad in [
            "",
            "2025-04-02",
            "2025-04-02T12:00:01",
            "2025-04-02T12:00Z",
            "2025-04-02 12:00:01Z",
            "2025-02-30T12:00:01Z",
            "2025-04-02T12:00:01+0800",
            "2025-04-02T12:00:01+08",
            "2025-04-02T12:00:01 +08:00",
            "1743595201",
            "2025-04-02T12:00:01\u{2212}08:00",
            "2025-04-02T12:00:01Z ",
            "2025-04-02T24:00:00Z",
            "2025-04-02T12:00:01+24:00",
            "2025-04-02T12:00:01.Z",
            "+2025-04-02T12:00:01Z",
        ] {
            assert!(parse(bad).is_none(), "{bad}");
        }
    }
}
