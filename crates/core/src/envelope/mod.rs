//! From bytes to a task, with every rule of the wire format and a pointer to whatever breaks one.
//!
//! The way of a body is [`unpack`] → [`Envelope::parse`]; a body that fails there goes to the dead letters under
//! the names that [`peek`] still finds in it. `serde_json` decides whether the text is JSON, without recursion;
//! `walk` then goes over the valid text for what `serde_json` cannot tell: pointers, duplicate keys, the exactness
//! of numbers, depth. The producer's text is never written anew: [`Payload`] is a slice of it.
//!
//! The same rules, as test vectors for other languages, are in `conformance/envelope/`.
//!
//! May import: `task`, `printable`, serde_json, chrono, flate2, memchr.

mod error;
mod field;
pub(crate) mod number;
mod peek;
pub(crate) mod pointer;
mod read;
pub(crate) mod scan;
pub(crate) mod time;
mod unpack;
pub(crate) mod utf8;
mod walk;

use std::{fmt, time::Duration};

use chrono::{DateTime, FixedOffset, Utc};
use serde::de::IgnoredAny;

pub use error::{EnvelopeError, Rule, Violation};
pub use peek::{Peek, peek};
pub use unpack::unpack;

use crate::task::{TaskId, TaskType};

/// Limits on what comes from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest body in bytes, both packed and unpacked.
    pub max_body_bytes: usize,
    /// Deepest nesting of the payload; the payload object itself is level 1. Values above 64 count as 64.
    pub max_payload_depth: usize,
    /// How far ahead `scheduleTime` may lie.
    pub max_schedule_ahead: Duration,
}

impl Limits {
    /// The limits of the design: 64 KiB, 5 levels, 90 days.
    pub const fn standard() -> Self {
        Self {
            max_body_bytes: 64 * 1024,
            max_payload_depth: 5,
            max_schedule_ahead: Duration::from_secs(90 * 24 * 3600),
        }
    }
}

/// A payload as the producer wrote it: the raw text of a JSON object. `Debug` shows its length only.
#[derive(Clone, PartialEq, Eq)]
pub struct Payload(Box<str>);

impl Payload {
    /// The raw JSON text, byte for byte what stood in the body.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.0.len())
    }
}

/// A valid task as its producer described it.
///
/// There is no retry count: producers may send `retryCount`, but attempts are counted in headers of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Unique id.
    pub task_id: TaskId,
    /// Type.
    pub task_type: TaskType,
    /// Version of the payload's contract, 1 by default.
    pub payload_version: u32,
    /// The payload, untouched.
    pub payload: Payload,
    /// When to run; `None` is now.
    pub schedule_time: Option<DateTime<FixedOffset>>,
    /// How long the handler may run.
    pub timeout: Option<Duration>,
    /// Overrides the queue's policy within its cap.
    pub max_retries: Option<u32>,
    /// 0 to 255, 100 by default.
    pub priority: u8,
    /// Key under which the task is processed once.
    pub idempotency_key: Option<String>,
    /// Who produced it.
    pub producer: Option<String>,
    /// Trace of the request that caused it.
    pub trace_id: Option<String>,
    /// When it was produced.
    pub timestamp: Option<DateTime<FixedOffset>>,
}

impl Envelope {
    /// Parses `body` (already unpacked), checking every rule of the wire format; `now` is what
    /// `max_schedule_ahead` counts from.
    ///
    /// # Errors
    /// All broken rules at once, in the order of the text and missing fields last, up to
    /// [`EnvelopeError::MAX_VIOLATIONS`]. A body that is too large, not UTF-8, not JSON or not an object has that
    /// one violation only.
    pub fn parse(body: &[u8], limits: &Limits, now: DateTime<Utc>) -> Result<Self, EnvelopeError> {
        if body.len() > limits.max_body_bytes {
            return Err(EnvelopeError::too_large(limits.max_body_bytes));
        }
        let text = utf8::decode(body)?;
        let mut json = serde_json::Deserializer::from_str(text);
        // `IgnoredAny` checks the grammar iteratively, so nesting costs no stack here.
        serde::Deserialize::deserialize(&mut json)
            .and_then(|IgnoredAny| json.end())
            .map_err(|error| EnvelopeError::syntax(text, &error))?;
        read::envelope(text, limits, now)
    }
}
