//! What a handler takes as its arguments, as in axum: each type here is made from the task at hand.
//!
//! May import: `request`, `task_error`, `core`. Taking an argument never waits; one that can't be had ends the attempt
//! with the [`TaskError`] it answers, and the handler is not entered.

mod extension;
mod payload;
mod state;

use std::{ops::Deref, sync::Arc};

use bytes::Bytes;
use tidegate_core::envelope::Envelope;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use extension::Extension;
pub use payload::Payload;
pub use state::{FromRef, State};

use super::{
    request::{Context, TaskRequest},
    task_error::TaskError,
};

/// A type that a handler may take as an argument; `S` is the worker's state.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be taken from a task",
    note = "a handler's arguments implement `FromTask<S>`: `Payload<T>`, `Context`, `State<T>`, …; wrap a payload type in \
            `Payload`"
)]
pub trait FromTask<S>: Sized {
    /// Makes the argument.
    ///
    /// # Errors
    /// What becomes of the task without it, as if its handler had answered so.
    fn from_task(task: &TaskRequest, state: &S) -> Result<Self, TaskError>;
}

impl<S> FromTask<S> for Context {
    fn from_task(task: &TaskRequest, _: &S) -> Result<Self, TaskError> {
        Ok(task.context().clone())
    }
}

impl<S> FromTask<S> for Arc<Envelope> {
    fn from_task(task: &TaskRequest, _: &S) -> Result<Self, TaskError> {
        Ok(task.envelope().clone())
    }
}

/// `None` where the argument can't be had, whatever the reason.
impl<S, E: FromTask<S>> FromTask<S> for Option<E> {
    fn from_task(task: &TaskRequest, state: &S) -> Result<Self, TaskError> {
        Ok(E::from_task(task, state).ok())
    }
}

/// With the reason where the argument can't be had.
impl<S, E: FromTask<S>> FromTask<S> for Result<E, TaskError> {
    fn from_task(task: &TaskRequest, state: &S) -> Result<Self, TaskError> {
        Ok(E::from_task(task, state))
    }
}

/// Number of the attempt: 1 for the first. Quick retries are the same attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt(pub u32);

impl<S> FromTask<S> for Attempt {
    fn from_task(task: &TaskRequest, _: &S) -> Result<Self, TaskError> {
        Ok(Self(task.context().attempt))
    }
}

/// When the runtime stops the handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline(pub Instant);

impl<S> FromTask<S> for Deadline {
    fn from_task(task: &TaskRequest, _: &S) -> Result<Self, TaskError> {
        Ok(Self(task.context().deadline))
    }
}

/// Cancelled when somebody asks to cancel this task, where the worker has a ledger; see [`Context::cancel`].
#[derive(Clone, Debug)]
pub struct Cancellation(pub CancellationToken);

impl Deref for Cancellation {
    type Target = CancellationToken;

    fn deref(&self) -> &CancellationToken {
        &self.0
    }
}

impl<S> FromTask<S> for Cancellation {
    fn from_task(task: &TaskRequest, _: &S) -> Result<Self, TaskError> {
        Ok(Self(task.context().cancel.clone()))
    }
}

/// The key under which the task is one: the envelope's `idempotencyKey`, else its `taskId`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyKey(pub String);

impl<S> FromTask<S> for IdempotencyKey {
    fn from_task(task: &TaskRequest, _: &S) -> Result<Self, TaskError> {
        Ok(Self(task.idempotency_key().to_owned()))
    }
}

/// The trace that the task belongs to. All three come from outside and are not checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The envelope's `traceId`.
    pub trace_id: Option<String>,
    /// The W3C header.
    pub traceparent: Option<String>,
    /// The W3C header.
    pub tracestate: Option<String>,
}

impl<S> FromTask<S> for Trace {
    fn from_task(task: &TaskRequest, _: &S) -> Result<Self, TaskError> {
        Ok(Self {
            trace_id: task.envelope().trace_id.clone(),
            traceparent: task.traceparent().map(ToOwned::to_owned),
            tracestate: task.tracestate().map(ToOwned::to_owned),
        })
    }
}

/// The body as it was sent, packed if it was; cheap to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawBody(pub Bytes);

impl<S> FromTask<S> for RawBody {
    fn from_task(task: &TaskRequest, _: &S) -> Result<Self, TaskError> {
        Ok(Self(task.body().clone()))
    }
}
