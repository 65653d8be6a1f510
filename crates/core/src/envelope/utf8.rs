//! Bytes to text, telling the usual wrong encodings apart so that the advice fits.

use super::error::{EnvelopeError, Rule};

/// The byte order mark of UTF-8.
pub(crate) const BOM: &[u8] = b"\xef\xbb\xbf";

/// `body` as text, without byte order mark.
pub(crate) fn decode(body: &[u8]) -> Result<&str, EnvelopeError> {
    let refused = |advice: String| Err(EnvelopeError::whole_body(Rule::NotUtf8, advice));
    if body.starts_with(BOM) {
        return refused("starts with a byte order mark; send UTF-8 without one".to_owned());
    }
    // JSON starts with an ASCII character, so a zero byte among the first two is a wider encoding of it.
    let wide = body.starts_with(b"\xff\xfe") || body.starts_with(b"\xfe\xff");
    if wide || body.iter().take(2).any(|b| *b == 0) {
        return refused("looks like UTF-16 or UTF-32; send UTF-8".to_owned());
    }
    if body.starts_with(b"\x1f\x8b") {
        return refused("looks like gzip; set content-encoding to gzip".to_owned());
    }
    std::str::from_utf8(body).or_else(|error| {
        refused(format!(
            "the byte at offset {} is not UTF-8; send UTF-8",
            error.valid_up_to()
        ))
    })
}
