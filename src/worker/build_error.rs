//! Why a worker can't be built.
//!
//! May import: `core`.

use std::time::Duration;

use super::timeouts;

/// Why a worker can't be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The topology has no such queue.
    #[error("queue {0:?} is not in the topology; its queues are: {1}")]
    UnknownQueue(String, String),
    /// No queue was named.
    #[error("a worker needs at least one queue: call `queue`")]
    NoQueue,
    /// No handler was given.
    #[error("a worker needs at least one handler, or all that comes would be dead-lettered: call `handle`")]
    NoHandler,
    /// Two handlers for one type.
    #[error("task type {0:?} has two handlers")]
    TwoHandlers(String),
    /// Not a task type.
    #[error("{0:?}: {1}")]
    BadTaskType(String, tidegate_core::task::InvalidName),
    /// A number out of its range.
    #[error("{name} is {value}; use {allowed}")]
    OutOfRange {
        /// Which setting.
        name: &'static str,
        /// What was given.
        value: u64,
        /// What is allowed.
        allowed: &'static str,
    },
    /// A handler may run for longer than the broker waits for its acknowledgement.
    #[error("{}", timeouts::too_long(task_type, queue, *timeout, *broker, *typed))]
    TimeoutTooLong {
        /// The type.
        task_type: String,
        /// A queue that its tasks come by.
        queue: String,
        /// How long the handler may run.
        timeout: Duration,
        /// When the broker takes a delivery of the queue back.
        broker: Duration,
        /// Whether the type has a timeout of its own in the topology; else it is the worker's default.
        typed: bool,
    },
    /// A type's idempotency needs what the worker was not given.
    #[error(
        "task type {task_type:?} has idempotency = {mode:?} in the topology, and this worker has no ledger that offers \
         it: call `ledger`, e.g. with a `PostgresLedger`, or write idempotency = \"off\""
    )]
    NeedsLedger {
        /// The type.
        task_type: String,
        /// What the topology says.
        mode: &'static str,
    },
    /// The settings of the broker can't work.
    #[error("{0}")]
    Broker(String),
}
