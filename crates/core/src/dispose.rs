//! What becomes of a task after an attempt: one pure decision for worker and router.
//!
//! Attempts are counted by us, in a header, because no broker count means the same on all versions. So
//! `maxRetries = 3` is four attempts everywhere, whether the worker is ours or nacks from another language.
//!
//! Three things are no failed attempt: a shutdown ([`Outcome::Interrupted`]), a queue that was full
//! ([`Outcome::Overflowed`]), and the death of the process, which [`crash`](crate::crash) counts apart and only for the task
//! that caused it.
//!
//! Imports only the policy and the ladder's limit. The decision has no effect of its own: the caller publishes,
//! waits for the confirm and then acknowledges, so that dying between the two gives a duplicate, never a loss.

use std::fmt;
use std::time::Duration;

use chrono::{DateTime, FixedOffset, Utc};

use crate::ladder;
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
    /// Its queue was full and let it go before any consumer saw it; `times` in a row, with this one.
    Overflowed {
        /// How often in a row, 1 for the first.
        times: u32,
    },
    /// The task killed `count` worker processes, which is more than [`crash::judge`](crate::crash::judge) forgives.
    Crashed {
        /// How many.
        count: u32,
    },
    /// No handler here knows the task type.
    UnknownTaskType,
    /// The body breaks a rule of the wire format.
    InvalidEnvelope,
    /// The body is larger than the limit.
    TooLarge,
    /// The payload is not what the handler of its type and version expects.
    ContractViolation,
    /// Somebody asked to cancel it while it ran, and the handler ended for that.
    Canceled,
    /// It was cancelled before it started; its handler was not entered.
    CanceledInFlight,
    /// Its queue has had it to success before; its handler was not entered.
    Duplicate,
}

impl Outcome {
    /// What counts once somebody has asked to cancel the running task: it is not tried again, so what would have
    /// led to another attempt ends it. Success, a business error and the rest stay what they are.
    #[must_use]
    pub const fn after_cancel(self) -> Self {
        match self {
            Self::Retry { .. } | Self::TimedOut | Self::Panicked => Self::Canceled,
            other => other,
        }
    }

    /// The outcome as a metrics label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Retry { .. } => "retry",
            Self::Reject => "rejected",
            Self::TimedOut => "timed_out",
            Self::Panicked => "panicked",
            Self::Interrupted => "interrupted",
            Self::Refused => "refused",
            Self::Expired => "expired",
            Self::DeliveryLimit => "delivery_limit",
            Self::Overflowed { .. } => "overflowed",
            Self::Crashed { .. } => "crashed",
            Self::UnknownTaskType => "unknown_task_type",
            Self::InvalidEnvelope => "invalid_envelope",
            Self::TooLarge => "too_large",
            Self::ContractViolation => "contract_violation",
            Self::Canceled => "canceled",
            Self::CanceledInFlight => "canceled_in_flight",
            Self::Duplicate => "duplicate",
        }
    }
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
    /// Publish to the ladder as the same attempt, then acknowledge: it was not tried.
    PutOff {
        /// Time until it is there again.
        delay: Duration,
    },
    /// Back to its queue at once, without counting an attempt.
    GiveBack,
}

impl Disposition {
    /// The reason, where it makes a dead letter.
    pub const fn dead_reason(self) -> Option<DeadReason> {
        match self {
            Self::Dead { reason } => Some(reason),
            _ => None,
        }
    }
}

/// Why a task is a dead letter; a closed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeadReason {
    /// The last allowed attempt failed.
    RetriesExhausted,
    /// The handler said that trying again is pointless: a business error.
    Rejected,
    /// The body breaks a rule of the wire format, so no handler has seen it.
    InvalidEnvelope,
    /// The payload doesn't fit the contract of its type and version.
    ContractViolation,
    /// No worker of its queue knows its type.
    UnknownTaskType,
    /// No binding took it.
    Unroutable,
    /// Its own time to live ended before a worker took it.
    Expired,
    /// The broker returned it more often than the queue allows.
    DeliveryLimit,
    /// Worker processes died while holding it.
    WorkerCrash,
    /// The body is larger than the limit, packed or unpacked.
    TooLarge,
    /// It was cancelled after it had left the ledger, and a worker refused to start it.
    CanceledInFlight,
}

impl DeadReason {
    /// All reasons, in the order of the documentation.
    pub const ALL: [Self; 11] = [
        Self::RetriesExhausted,
        Self::Rejected,
        Self::InvalidEnvelope,
        Self::ContractViolation,
        Self::UnknownTaskType,
        Self::Unroutable,
        Self::Expired,
        Self::DeliveryLimit,
        Self::WorkerCrash,
        Self::TooLarge,
        Self::CanceledInFlight,
    ];

    /// The reason as it stands in headers, tables and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RetriesExhausted => "retries_exhausted",
            Self::Rejected => "rejected",
            Self::InvalidEnvelope => "invalid_envelope",
            Self::ContractViolation => "contract_violation",
            Self::UnknownTaskType => "unknown_task_type",
            Self::Unroutable => "unroutable",
            Self::Expired => "expired",
            Self::DeliveryLimit => "delivery_limit",
            Self::WorkerCrash => "worker_crash",
            Self::TooLarge => "too_large",
            Self::CanceledInFlight => "canceled_in_flight",
        }
    }

    /// The reason that `text` names; `None` outside the closed set.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text)
    }
}

impl fmt::Display for DeadReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What is known about the attempt that just ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attempt {
    /// Number of this attempt: 1 for the first. It comes from a header, so 0 is read as 1.
    pub number: u32,
    /// `maxRetries` of the envelope, where it has one.
    pub max_retries: Option<u32>,
    /// A random sample in `0.0..1.0` for the jitter.
    pub jitter: f64,
}

/// Decides what becomes of a task.
pub fn dispose(attempt: &Attempt, policy: &RetryPolicy, outcome: Outcome) -> Disposition {
    let dead = |reason| Disposition::Dead { reason };
    match outcome {
        Outcome::Done | Outcome::Canceled | Outcome::Duplicate => Disposition::Ack,
        Outcome::Interrupted => Disposition::GiveBack,
        Outcome::Retry { after } => retry_or(attempt, policy, after, DeadReason::RetriesExhausted),
        Outcome::TimedOut | Outcome::Panicked | Outcome::Refused => {
            retry_or(attempt, policy, None, DeadReason::RetriesExhausted)
        }
        // During a rolling deployment a newer worker of the same queue may know it.
        Outcome::UnknownTaskType => retry_or(attempt, policy, None, DeadReason::UnknownTaskType),
        // A full queue says nothing about the task: it comes back for as long as that takes, ever more slowly.
        Outcome::Overflowed { times } => Disposition::PutOff {
            delay: policy.backoff(times, attempt.jitter),
        },
        Outcome::Reject => dead(DeadReason::Rejected),
        Outcome::Expired => dead(DeadReason::Expired),
        Outcome::DeliveryLimit => dead(DeadReason::DeliveryLimit),
        Outcome::Crashed { .. } => dead(DeadReason::WorkerCrash),
        Outcome::InvalidEnvelope => dead(DeadReason::InvalidEnvelope),
        Outcome::TooLarge => dead(DeadReason::TooLarge),
        Outcome::ContractViolation => dead(DeadReason::ContractViolation),
        Outcome::CanceledInFlight => dead(DeadReason::CanceledInFlight),
    }
}

/// How long a task that has just arrived must still wait for its `scheduleTime`; `None` if it may start.
///
/// `placed` says that whoever sent it has seen to the time already: then the clocks of two machines decide nothing
/// twice.
pub fn early_by(
    schedule_time: Option<DateTime<FixedOffset>>,
    placed: bool,
    now: DateTime<Utc>,
) -> Option<Duration> {
    let ahead = (schedule_time.filter(|_| !placed)?.to_utc() - now)
        .to_std()
        .ok()?;
    (!ahead.is_zero()).then_some(ahead)
}

fn retry_or(
    attempt: &Attempt,
    policy: &RetryPolicy,
    after: Option<Duration>,
    exhausted: DeadReason,
) -> Disposition {
    let number = attempt.number.max(1);
    if number > policy.allowed_retries(attempt.max_retries) {
        return Disposition::Dead { reason: exhausted };
    }
    let delay = policy
        .backoff(number, attempt.jitter)
        .max(after.unwrap_or_default())
        .min(ladder::MAX_DELAY);
    Disposition::Retry { delay }
}
