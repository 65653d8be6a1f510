//! The bytes of a body for people: unpacked where they are packed, laid out where they are JSON, written out where they are
//! no text.
//!
//! Pure. May import: `core`. Bytes come from anybody, and are shown on the terminal of whoever is on call: nothing that a
//! terminal would obey is passed on, and what is unpacked and shown has a limit. Numbers and strings stay as they were written.

use std::borrow::Cow;

use tidegate_core::{
    envelope::{self, unpack},
    json_text::{Document, Limits, MAX_DEPTH},
    printable,
};

/// Largest body that is unpacked or laid out, in bytes: the most that a deployment can be set to accept.
const MAX_BYTES: usize = 1024 * 1024;

/// Most characters of a body that is no JSON.
const MAX_CHARS: usize = 64 * 1024;

/// A body for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// What it is.
    pub kind: Kind,
    /// Whether it had to be unpacked.
    pub unpacked: bool,
    /// Bytes of it, unpacked.
    pub bytes: usize,
    /// Its text, safe for a terminal, in several lines.
    pub text: String,
}

/// What the bytes of a body are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One JSON value, laid out.
    Json,
    /// UTF-8.
    Text,
    /// No UTF-8: such bytes are shown as `\xff`.
    Binary,
    /// Packed in a way that can't be undone; the packed bytes are shown.
    Packed,
    /// Nothing.
    Empty,
}

impl Kind {
    /// A word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Text => "text",
            Self::Binary => "binary",
            Self::Packed => "packed",
            Self::Empty => "empty",
        }
    }
}

/// `body` for people; `encoding` is its AMQP `content-encoding`.
pub fn shown(body: &[u8], encoding: Option<&str>) -> Shown {
    let limits = envelope::Limits {
        max_body_bytes: MAX_BYTES,
        ..envelope::Limits::standard()
    };
    let unpacked = match unpack(body, encoding, &limits) {
        Ok(unpacked) => unpacked,
        Err(_) => {
            return Shown {
                kind: Kind::Packed,
                unpacked: false,
                bytes: body.len(),
                text: printable::bytes(body, MAX_CHARS),
            };
        }
    };
    let (kind, text) = laid_out(&unpacked);
    Shown {
        kind,
        unpacked: matches!(unpacked, Cow::Owned(_)),
        bytes: unpacked.len(),
        text,
    }
}

fn laid_out(body: &[u8]) -> (Kind, String) {
    if body.is_empty() {
        return (Kind::Empty, String::new());
    }
    let limits = Limits {
        max_bytes: MAX_BYTES,
        max_depth: MAX_DEPTH,
    };
    match Document::parse(body, &limits) {
        Ok(document) => (Kind::Json, document.pretty()),
        Err(_) if std::str::from_utf8(body).is_ok() => (Kind::Text, printable::bytes(body, MAX_CHARS)),
        Err(_) => (Kind::Binary, printable::bytes(body, MAX_CHARS)),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn packed(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn numbers_stay_as_they_were_written() {
        let body = br#"{"orderId":9007199254740993,"amount":1.10,"n":1e400}"#;
        let shown = shown(body, None);
        assert_eq!(shown.kind, Kind::Json);
        assert_eq!(
            shown.text,
            "{\n  \"orderId\": 9007199254740993,\n  \"amount\": 1.10,\n  \"n\": 1e400\n}"
        );
    }

    #[test]
    fn a_packed_body_is_unpacked_and_a_bomb_is_not() {
        let text = br#"{"a":1}"#;
        let gzip = shown(&packed(text), Some("gzip"));
        assert_eq!(
            (gzip.kind, gzip.unpacked, gzip.bytes),
            (Kind::Json, true, text.len())
        );
        let bomb = packed(&vec![b' '; 64 * MAX_BYTES]);
        let shown_bomb = shown(&bomb, Some("gzip"));
        assert_eq!((shown_bomb.kind, shown_bomb.bytes), (Kind::Packed, bomb.len()));
        assert_eq!(shown(text, Some("zstd")).kind, Kind::Packed);
    }

    /// No byte of any body reaches the terminal as a control.
    #[test]
    fn nothing_steers_a_terminal() {
        let mut every: Vec<u8> = (0..=255).collect();
        every.extend("\u{202e}\u{200b}\u{9b}".as_bytes());
        for body in [
            every.as_slice(),
            b"\x1b[2Jhello\0",
            "{\"a\u{202e}\":\"\u{9b}31m\"}".as_bytes(),
            b"",
            &"[".repeat(10_000).into_bytes(),
        ] {
            for encoding in [None, Some("gzip"), Some("br")] {
                let shown = shown(body, encoding);
                let steers = |c: char| c != '\n' && c != '\t' && printable::is_unsafe(c);
                assert!(!shown.text.contains(steers), "{shown:?}");
            }
        }
        assert_eq!(shown(b"\xff\x00a", None).text, "\\xff\\u{0}a");
        assert_eq!(shown(b"not json", None).kind, Kind::Text);
    }
}
