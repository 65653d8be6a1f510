//! What a handler gets and what it answers.

use std::{collections::HashMap, error::Error, fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

use serde::de::DeserializeOwned;
use tidegate_core::envelope::Envelope;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The attempt a handler runs in.
#[derive(Clone, Debug)]
pub struct Context {
    /// The task as its producer described it.
    pub envelope: Arc<Envelope>,
    /// The queue it came from.
    pub queue: Arc<str>,
    /// Number of this attempt: 1 for the first.
    pub attempt: u32,
    /// When the runtime stops the handler.
    pub deadline: Instant,
    /// Cancelled when the worker shuts down: finish soon, or be given back at the end of the grace period.
    pub shutdown: CancellationToken,
    /// Cancelled within a second or two of somebody asking to cancel this task, where the worker has a ledger. The
    /// handler decides: it may finish, or undo what it did and answer [`TaskError::canceled`].
    pub cancel: CancellationToken,
}

/// A failed attempt: tried again, or not.
///
/// Any standard error converts into a retry, so `?` works in handlers.
pub enum TaskError {
    /// Try again, not before `after` where given.
    Retry {
        /// Shortest wait, e.g. from a `Retry-After` header.
        after: Option<Duration>,
        /// Low-cardinality kind, for headers and grouping.
        kind: String,
        /// What happened.
        message: String,
    },
    /// A business error: trying again is pointless, dead-letter it.
    Reject {
        /// Low-cardinality kind.
        kind: String,
        /// What happened.
        message: String,
    },
    /// Ended because somebody asked to cancel the task: acknowledged, and not tried again. Without such a request it
    /// is a failed attempt, or at a shutdown an interrupted one.
    Canceled,
}

impl TaskError {
    /// Ended because [`Context::cancel`] was cancelled.
    pub fn canceled() -> Self {
        Self::Canceled
    }

    /// Try again by the queue's policy.
    pub fn retry(kind: &str, message: impl fmt::Display) -> Self {
        Self::Retry {
            after: None,
            kind: kind.to_owned(),
            message: message.to_string(),
        }
    }

    /// Try again, not before `after`.
    pub fn retry_after(after: Duration, kind: &str, message: impl fmt::Display) -> Self {
        Self::Retry {
            after: Some(after),
            kind: kind.to_owned(),
            message: message.to_string(),
        }
    }

    /// Do not try again.
    pub fn reject(kind: &str, message: impl fmt::Display) -> Self {
        Self::Reject {
            kind: kind.to_owned(),
            message: message.to_string(),
        }
    }
}

impl fmt::Debug for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Retry { after, kind, message } => write!(f, "Retry({kind}: {message}, after {after:?})"),
            Self::Reject { kind, message } => write!(f, "Reject({kind}: {message})"),
            Self::Canceled => f.write_str("Canceled"),
        }
    }
}

impl<E: Error> From<E> for TaskError {
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(inner) = source {
            message.push_str(": ");
            message.push_str(&inner.to_string());
            source = inner.source();
        }
        Self::Retry {
            after: None,
            kind: "error".to_owned(),
            message,
        }
    }
}

/// How a handler could not even be entered.
pub(super) enum Entry {
    /// The payload is not what the handler takes.
    Mismatch(String),
}

pub(super) type Running = Pin<Box<dyn Future<Output = Result<(), TaskError>> + Send>>;
pub(super) type DynHandler = Arc<dyn Fn(Context) -> Result<Running, Entry> + Send + Sync>;

/// Handlers by task type.
pub(super) type Handlers = HashMap<String, DynHandler>;

/// `handler` with its payload type erased.
pub(super) fn erase<P, F, Fut>(handler: F) -> DynHandler
where
    P: DeserializeOwned,
    F: Fn(Context, P) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), TaskError>> + Send + 'static,
{
    Arc::new(move |context: Context| {
        let payload = serde_json::from_str(context.envelope.payload.as_str())
            .map_err(|error| Entry::Mismatch(error.to_string()))?;
        Ok(Box::pin(handler(context, payload)) as Running)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standard_error_becomes_a_retry_with_its_source_chain() {
        #[derive(Debug, thiserror::Error)]
        #[error("could not charge")]
        struct Charge(#[source] std::io::Error);
        let error = TaskError::from(Charge(std::io::Error::other("connection reset")));
        let TaskError::Retry {
            after: None,
            kind,
            message,
        } = error
        else {
            panic!("{error:?}")
        };
        assert_eq!(
            (kind.as_str(), message.as_str()),
            ("error", "could not charge: connection reset")
        );
    }
}
