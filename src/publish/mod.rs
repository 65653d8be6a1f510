//! The only way to send a task.

use std::time::Duration;

use bytes::Bytes;
use tidegate_core::{headers::Origin, ladder::LadderError};

/// A task ready to be sent.
#[derive(Clone, Debug)]
pub struct Task {
    /// The envelope's bytes, sent as they are.
    pub body: Bytes,
    /// `taskId`.
    pub task_id: String,
    /// `taskType`.
    pub task_type: String,
    /// `producer`.
    pub producer: Option<String>,
    /// `traceId`.
    pub trace_id: Option<String>,
    /// `priority`.
    pub priority: u8,
    /// Planned time, for the header and for lateness; RFC 3339.
    pub schedule_time: Option<String>,
    /// Exchange to publish to; `None` is the platform's.
    pub exchange: Option<String>,
    /// Routing key; `None` is the task type.
    pub routing_key: Option<String>,
    /// How the task came in.
    pub origin: Origin,
}

/// Why a task was not sent, or may not have been.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// No queue is bound for it: nothing was stored. Fix the topology or the key.
    #[error("no queue takes routing key {key:?} on exchange {exchange:?}")]
    Unroutable {
        /// Exchange.
        exchange: String,
        /// Routing key.
        key: String,
    },
    /// The delay or the key can't be carried: the same task will never be accepted.
    #[error(transparent)]
    Refused(#[from] LadderError),
    /// The broker refused to store it (queue full or failing): try again later.
    #[error("the broker refused the message (nack)")]
    Nacked,
    /// No confirm in time (blocked, away, slow): it may or may not be stored; send it again with the same id.
    #[error("no confirm from the broker in time: {0}")]
    Unknown(String),
}

/// Sends tasks; cheap to clone.
#[derive(Clone, Debug)]
pub struct TaskPublisher {}

impl TaskPublisher {
    /// Sends `task` to arrive `delay` from now (zero: at once). `Ok` means confirmed by a durable queue.
    pub async fn send(&self, _task: Task, _delay: Duration) -> Result<(), SendError> {
        unimplemented!()
    }
}
