//! The golden envelope of a contract: what a producer of its example sends, the same on every machine and at any time, so that
//! tests in other languages have a task to read.
//!
//! May import: `catalogue`, `envelope`, `idempotency`, `json_text`, `task`, chrono.

use chrono::DateTime;

use super::{Contract, ContractId, Violation};
use crate::{
    envelope::{Envelope, EnvelopeError, Limits as EnvelopeLimits},
    idempotency,
    json_text::{Document, Limits, Node},
};

/// Most bytes of the type in the task's id, which has at most 128 in all.
const MAX_TYPE_BYTES: usize = 100;

/// Longest `idempotencyKey` in characters.
const MAX_KEY_CHARS: usize = 256;

/// Why a contract has no golden envelope.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GoldenError {
    /// It has no example.
    #[error("there is no example to make an envelope of; add one to \"examples\"")]
    NoExample,
    /// Its first example isn't valid.
    #[error("the first example is not valid: {0}")]
    Invalid(Violation),
    /// Its first example is valid and can't be sent.
    #[error("the first example makes no envelope: {0}")]
    NoEnvelope(EnvelopeError),
}

/// The envelope of the contract's first example: JSON with two spaces per level and a line break at the end. Numbers and
/// texts stand in it as in the contract, but for characters that can't be seen, which are escaped.
///
/// # Errors
/// Nothing can be sent; see [`GoldenError`].
pub fn golden(id: &ContractId, contract: &Contract) -> Result<String, GoldenError> {
    let example = contract.examples().next().ok_or(GoldenError::NoExample)?;
    if let Some(violation) = contract.validate(example).into_iter().next() {
        return Err(GoldenError::Invalid(violation));
    }
    let task_type = id.task_type.as_str();
    // A type is ASCII, so the cut falls between characters.
    let short = task_type.get(..MAX_TYPE_BYTES).unwrap_or(task_type);
    let version = id.version;
    let text = |key: &str| {
        let body = format!(
            "{{\"taskId\":\"golden:{short}:{version}\",\"taskType\":\"{task_type}\",\"payloadVersion\":{version},{key}\"payload\":{example}}}"
        );
        let limits = Limits::standard();
        // The example was a part of a contract that was read, so this always is JSON; else the next parse refuses it.
        Document::parse(body.as_bytes(), &limits)
            .map_or(body.clone(), |document| format!("{}\n", document.pretty()))
    };
    let without = text("");
    let envelope = parse(&without)?;
    let field = contract.idempotency_key().map(|pointer| pointer.as_str());
    let key = idempotency::key(&envelope, field);
    if field.is_none() || key.is_fallback || key.text.chars().count() > MAX_KEY_CHARS {
        return Ok(without);
    }
    let with = text(&format!("\"idempotencyKey\":{},", Node::string(&key.text)));
    parse(&with)?;
    Ok(with)
}

fn parse(text: &str) -> Result<Envelope, GoldenError> {
    // Nothing in it depends on the time.
    Envelope::parse(text.as_bytes(), &EnvelopeLimits::standard(), DateTime::UNIX_EPOCH)
        .map_err(GoldenError::NoEnvelope)
}
