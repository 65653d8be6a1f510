//! What becomes of a task after an attempt: one pure decision for worker and router.

use std::time::Duration;

use crate::policy::RetryPolicy;

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The handler succeeded.
    Done,
    /// The handler failed and may be tried again, not before `after` where given.
    Retry {
        /// Shortest wait the handler asks for, e.g. from `Retry-After`.
        after: Option<Duration>,
    },
    /// The handler says that trying again is pointless.
    Reject,
    /// The handler ran past its timeout.
    TimedOut,
    /// The handler panicked.
    Panicked,
    /// The worker is shutting down; the attempt does not count.
    Interrupted,
    /// A client that is no worker of ours nacked or rejected it (seen by the router).
    Refused,
    /// The message's own TTL ended in a business queue.
    Expired,
    /// The broker's delivery limit was reached.
    DeliveryLimit,
    /// The worker process died `count` times while holding the task.
    Crashed {
        /// Returns counted by the broker.
        count: u32,
    },
    /// No handler here knows the task type.
    UnknownTaskType,
    /// The body breaks a rule of the wire format.
    InvalidEnvelope,
    /// The body is larger than the limit.
    TooLarge,
}

/// What the caller must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Acknowledge: the outcome is durable.
    Ack,
    /// Publish to the ladder, then acknowledge.
    Retry {
        /// Time until the next attempt.
        delay: Duration,
    },
    /// Publish to `task.dead`, then acknowledge.
    Dead {
        /// Why.
        reason: DeadReason,
    },
    /// Back to its queue at once, without counting an attempt.
    GiveBack,
}

/// Why a task is a dead letter; a closed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum DeadReason {
    RetriesExhausted,
    Rejected,
    InvalidEnvelope,
    ContractViolation,
    UnknownTaskType,
    Unroutable,
    Expired,
    DeliveryLimit,
    WorkerCrash,
    TooLarge,
    CanceledInFlight,
}

/// What is known about the attempt that just ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attempt {
    /// Number of this attempt: 1 for the first.
    pub number: u32,
    /// `maxRetries` of the envelope, where it has one.
    pub max_retries: Option<u32>,
    /// A random sample in `0.0..1.0` for the jitter.
    pub jitter: f64,
}

/// Decides what becomes of a task.
pub fn dispose(_attempt: &Attempt, _policy: &RetryPolicy, _outcome: Outcome) -> Disposition {
    unimplemented!()
}
