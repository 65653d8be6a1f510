//! One try of a task as layers and extractors see it. May import: `core`, `broker` for headers.

use std::{
    any::{Any, TypeId},
    fmt,
    sync::Arc,
};

use bytes::Bytes;
use tidegate_core::envelope::Envelope;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::broker::{consumer::Incoming, message};

/// The attempt a handler runs in.
#[derive(Clone, Debug)]
pub struct Context {
    /// The task as its producer described it.
    pub envelope: Arc<Envelope>,
    /// The queue it came from.
    pub queue: Arc<str>,
    /// Number of this attempt: 1 for the first. Quick retries are the same attempt.
    pub attempt: u32,
    /// When the runtime stops the handler.
    pub deadline: Instant,
    /// Cancelled when the worker shuts down: finish soon, or be given back at the end of the grace period.
    pub shutdown: CancellationToken,
    /// Cancelled within a second or two of somebody asking to cancel this task, where the worker has a ledger. The
    /// handler decides: it may finish, or undo what it did and answer [`TaskError::canceled`](super::TaskError::canceled).
    pub cancel: CancellationToken,
    pub(super) beside: Beside,
}

impl Context {
    /// What the ledger has put beside this run, if it is a `T`: with `idempotency = "database"` what
    /// `tidegate::ledger::Transaction::of` takes.
    pub fn beside<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.beside.0.clone()?.downcast().ok()
    }
}

/// Something of a type that the worker doesn't know.
#[derive(Clone, Default)]
pub(super) struct Beside(pub(super) Option<Arc<dyn Any + Send + Sync>>);

impl fmt::Debug for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Some(..)" } else { "None" })
    }
}

/// What a handler is called with, before its extractors take their part of it.
#[derive(Clone, Debug)]
pub struct TaskRequest {
    context: Context,
    body: Bytes,
    traceparent: Option<Box<str>>,
    tracestate: Option<Box<str>>,
    extensions: Extensions,
}

impl TaskRequest {
    pub(super) fn new(context: Context, incoming: &Incoming) -> Self {
        let header = |name| message::text(&incoming.properties, name).map(Into::into);
        Self {
            context,
            body: incoming.body.clone(),
            traceparent: header("traceparent"),
            tracestate: header("tracestate"),
            extensions: Extensions::default(),
        }
    }

    /// The attempt.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The task.
    pub fn envelope(&self) -> &Arc<Envelope> {
        &self.context.envelope
    }

    /// The body as it was sent, packed if it was.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The W3C header of that name, not to be trusted.
    pub fn traceparent(&self) -> Option<&str> {
        self.traceparent.as_deref()
    }

    /// The W3C header of that name, not to be trusted.
    pub fn tracestate(&self) -> Option<&str> {
        self.tracestate.as_deref()
    }

    /// The key under which the task is one: the envelope's, else its id.
    pub fn idempotency_key(&self) -> &str {
        let envelope = &self.context.envelope;
        envelope
            .idempotency_key
            .as_deref()
            .unwrap_or_else(|| envelope.task_id.as_str())
    }

    /// What layers have put there.
    pub fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// Where a layer puts what handlers take by [`Extension`](super::extract::Extension).
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.extensions
    }
}

/// At most one value of each type; there are few, so they are looked for one by one.
#[derive(Clone, Default)]
pub struct Extensions(Vec<(TypeId, Arc<dyn Any + Send + Sync>)>);

impl Extensions {
    /// Puts `value` there, in the place of another of its type.
    pub fn insert<T: Send + Sync + 'static>(&mut self, value: T) {
        self.0.retain(|(id, _)| *id != TypeId::of::<T>());
        self.0.push((TypeId::of::<T>(), Arc::new(value)));
    }

    /// The value of type `T`.
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        let (_, value) = self.0.iter().find(|(id, _)| *id == TypeId::of::<T>())?;
        value.downcast_ref()
    }
}

impl fmt::Debug for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Extensions({})", self.0.len())
    }
}
