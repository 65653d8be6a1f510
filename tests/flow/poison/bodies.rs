//! Bodies that are no task, and what their dead letters say: B13, B15, B21, and of B82–B84 what reaches a worker by AMQP.

use std::{fmt, io::Write};

use flate2::{Compression, write::GzEncoder};

use crate::platform::envelope;

/// One of them.
pub(super) struct Poison {
    /// The content encoding that it claims.
    pub(super) encoding: Option<&'static str>,
    pub(super) body: Vec<u8>,
    pub(super) reason: &'static str,
    /// Any of these.
    pub(super) kinds: &'static [&'static str],
}

impl fmt::Display for Poison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = String::from_utf8_lossy(&self.body[..self.body.len().min(60)]);
        write!(f, "{shown:?} ({} bytes, {:?})", self.body.len(), self.encoding)
    }
}

const INVALID: &str = "invalid_envelope";
const LARGE: &str = "too_large";

pub(super) fn poisons() -> Vec<Poison> {
    let plain = shapes()
        .into_iter()
        .chain(values())
        .chain(depths())
        .map(|(body, reason, kinds)| (None, body, reason, kinds));
    plain
        .chain(encodings())
        .map(|(encoding, body, reason, kinds)| Poison {
            encoding,
            body,
            reason,
            kinds,
        })
        .collect()
}

type Case = (Vec<u8>, &'static str, &'static [&'static str]);
type Encoded = (
    Option<&'static str>,
    Vec<u8>,
    &'static str,
    &'static [&'static str],
);

fn valid() -> String {
    envelope("x", "order.close.timeout", "")
}

fn in_payload(text: &str) -> Vec<u8> {
    valid().replace(r#""n":1"#, text).into_bytes()
}

pub(super) fn gzip(body: &[u8]) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::best());
    packer.write_all(body).unwrap();
    packer.finish().unwrap()
}

fn shapes() -> Vec<Case> {
    let wide: Vec<u8> = valid().encode_utf16().flat_map(u16::to_le_bytes).collect();
    vec![
        (b"".to_vec(), INVALID, &["syntax"]),
        (b"{".to_vec(), INVALID, &["syntax"]),
        (b"null".to_vec(), INVALID, &["not_an_object"]),
        (b"[]".to_vec(), INVALID, &["not_an_object"]),
        (b"42".to_vec(), INVALID, &["not_an_object"]),
        (wide, INVALID, &["not_utf8"]),
        (vec![0xff; 16], INVALID, &["not_utf8"]),
        (
            br#"{"taskId":"a","payload":{}}"#.to_vec(),
            INVALID,
            &["missing_field"],
        ),
        (
            valid().replace("taskId", "task_id\":\"a\",\"taskId").into_bytes(),
            INVALID,
            &["both_spellings"],
        ),
        (vec![b' '; 70_000], LARGE, &["too_large"]),
    ]
}

fn values() -> Vec<Case> {
    vec![
        (
            in_payload(r#""n":9007199254740993"#),
            INVALID,
            &["number_not_exact"],
        ),
        (
            in_payload(r#""n":18446744073709551615"#),
            INVALID,
            &["number_not_exact"],
        ),
        (in_payload(r#""n":1e400"#), INVALID, &["number_not_exact"]),
        (in_payload(r#""n":1,"n":2"#), INVALID, &["duplicate_key"]),
        (in_payload(r#""n":"a\u0000b""#), INVALID, &["nul"]),
        (in_payload(r#""n":"\ud800""#), INVALID, &["lone_surrogate"]),
    ]
}

/// B21: deeper than any stack, closed or not, within the limit of size and beyond it.
fn depths() -> Vec<Case> {
    let closed = |levels: usize| in_payload(&format!(r#""n":{}1{}"#, "[".repeat(levels), "]".repeat(levels)));
    let objects = format!(r#""n":{}1{}"#, r#"{"a":"#.repeat(9_000), "}".repeat(9_000));
    let beside = format!(r#","deep":{}1{}"#, "[".repeat(30_000), "]".repeat(30_000));
    vec![
        (closed(6), INVALID, &["too_deep"]),
        (closed(30_000), INVALID, &["too_deep"]),
        (in_payload(&objects), INVALID, &["too_deep"]),
        (
            envelope("x", "order.close.timeout", &beside).into_bytes(),
            INVALID,
            &["unknown_field"],
        ),
        (
            "[".repeat(60_000).into_bytes(),
            INVALID,
            &["syntax", "not_an_object"],
        ),
        (r#"{"a":"#.repeat(12_000).into_bytes(), INVALID, &["syntax"]),
        ("[".repeat(100_000).into_bytes(), LARGE, &["too_large"]),
    ]
}

/// B15: data that is corrupt, cut or not what it claims to be, and bombs.
fn encodings() -> Vec<Encoded> {
    const BAD: &[&str] = &["bad_encoding"];
    let good = gzip(valid().as_bytes());
    let damaged = |at: usize| {
        let mut body = good.clone();
        body[at] ^= 0xff;
        body
    };
    // 50 MiB in less than 64 KiB, and the same as a second member behind an honest one.
    let bomb = gzip(&vec![b' '; 50 << 20]);
    assert!(bomb.len() < 64 << 10);
    let second = [&gzip(b" ")[..], &bomb].concat();
    let gzip_of =
        |body: &[u8], reason, kinds: &'static [&'static str]| (Some("gzip"), gzip(body), reason, kinds);
    vec![
        (Some("gzip"), b"".to_vec(), INVALID, BAD),
        (Some("gzip"), valid().into_bytes(), INVALID, BAD),
        (Some("gzip"), vec![0x1f, 0x8b], INVALID, BAD),
        (Some("gzip"), good[..good.len() - 9].to_vec(), INVALID, BAD),
        (Some("gzip"), damaged(0), INVALID, BAD),
        (Some("gzip"), damaged(good.len() / 2), INVALID, BAD),
        (Some("gzip"), damaged(good.len() - 6), INVALID, BAD),
        (Some("gzip"), [&good[..], b"more"].concat(), INVALID, BAD),
        (Some("br"), valid().into_bytes(), INVALID, BAD),
        (Some("deflate"), good.clone(), INVALID, BAD),
        (Some("gzip, gzip"), gzip(&good), INVALID, BAD),
        (None, good.clone(), INVALID, &["not_utf8"]),
        gzip_of(&good, INVALID, &["not_utf8"]),
        gzip_of(b"{", INVALID, &["syntax"]),
        gzip_of(
            "[".repeat(60_000).as_bytes(),
            INVALID,
            &["syntax", "not_an_object"],
        ),
        gzip_of("[".repeat(100_000).as_bytes(), LARGE, &["too_large"]),
        (Some("gzip"), bomb, LARGE, &["too_large"]),
        (Some("gzip"), second, LARGE, &["too_large"]),
        (Some("gzip"), vec![0; 70_000], LARGE, &["too_large"]),
    ]
}
