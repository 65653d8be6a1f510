//! From bytes to a task: placeholder doc, owner fills in.

use std::{fmt, time::Duration};

use chrono::{DateTime, FixedOffset, Utc};

use crate::task::{TaskId, TaskType};

/// Limits on what comes from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest body in bytes, both packed and unpacked.
    pub max_body_bytes: usize,
    /// Deepest nesting of the payload; the payload object itself is level 1.
    pub max_payload_depth: usize,
    /// How far ahead `scheduleTime` may lie.
    pub max_schedule_ahead: Duration,
}

impl Limits {
    /// The limits of the design: 64 KiB, 5 levels, 90 days.
    pub const fn standard() -> Self {
        Self { max_body_bytes: 64 * 1024, max_payload_depth: 5, max_schedule_ahead: Duration::from_secs(90 * 24 * 3600) }
    }
}

/// A payload as the producer wrote it: the raw text of a JSON object. `Debug` shows its length only.
#[derive(Clone, PartialEq, Eq)]
pub struct Payload(Box<str>);

impl Payload {
    /// The raw JSON text.
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
    /// Parses `body` (already unpacked), checking every rule of the wire format.
    pub fn parse(_body: &[u8], _limits: &Limits, _now: DateTime<Utc>) -> Result<Self, EnvelopeError> {
        unimplemented!()
    }
}

/// Why bytes are no task: one or more broken rules, never none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .violations.first().map(ToString::to_string).unwrap_or_default())]
pub struct EnvelopeError {
    /// The broken rules, in the order of the text.
    pub violations: Vec<Violation>,
}

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// JSON pointer (RFC 6901) to the offending value; empty for the whole body.
    pub pointer: String,
    /// What to do about it.
    pub advice: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.pointer, self.advice)
    }
}
