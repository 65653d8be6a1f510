//! A body as it travels to the body as it was written: gzip or nothing, with a cap on both sides.

use std::{borrow::Cow, io::Read};

use flate2::bufread::MultiGzDecoder;

use super::{
    Limits,
    error::{EnvelopeError, Rule},
};

/// Unpacks `body` by its AMQP `content-encoding`.
///
/// `gzip` is unpacked; none, the empty text and `identity` pass the body on. So does `utf-8`, which is no encoding
/// but a charset: spring-amqp and kombu put it there on every JSON message. Letters may be of either case.
///
/// # Errors
/// [`Rule::TooLarge`] if the body is over `max_body_bytes`, packed or unpacked; unpacking stops at the limit, so
/// that a bomb costs no more memory than an honest body. [`Rule::BadEncoding`] if the encoding is unknown or the
/// data corrupt.
pub fn unpack<'a>(
    body: &'a [u8],
    content_encoding: Option<&str>,
    limits: &Limits,
) -> Result<Cow<'a, [u8]>, EnvelopeError> {
    if body.len() > limits.max_body_bytes {
        return Err(EnvelopeError::too_large(limits.max_body_bytes));
    }
    let encoding = content_encoding.unwrap_or_default().trim();
    if ["", "identity", "utf-8", "utf8"]
        .iter()
        .any(|plain| encoding.eq_ignore_ascii_case(plain))
    {
        return Ok(Cow::Borrowed(body));
    }
    if !encoding.eq_ignore_ascii_case("gzip") {
        return Err(EnvelopeError::whole_body(
            Rule::BadEncoding,
            "the content encoding is unknown; send gzip, or plain JSON with no content encoding",
        ));
    }
    gunzip(body, limits.max_body_bytes).map(Cow::Owned)
}

fn gunzip(packed: &[u8], max: usize) -> Result<Vec<u8>, EnvelopeError> {
    let mut unpacked = Vec::new();
    // One byte over the limit tells "too large" from "just fits".
    let cap = u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1);
    MultiGzDecoder::new(packed)
        .take(cap)
        .read_to_end(&mut unpacked)
        .map_err(|_| {
            EnvelopeError::whole_body(
                Rule::BadEncoding,
                "the content encoding says gzip, but the data is corrupt or no gzip; send it anew",
            )
        })?;
    if unpacked.len() > max {
        return Err(EnvelopeError::too_large(max));
    }
    Ok(unpacked)
}
