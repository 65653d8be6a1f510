//! How a handler fails, and how errors of others become that. May import: `core`.

use std::{error::Error, fmt, time::Duration};

use tidegate_core::headers::MAX_ERROR_BYTES;

/// Any error, as tower's layers hand them on.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Most errors of a chain of sources that are told.
const MOST_SOURCES: usize = 16;

/// A failed attempt: tried again, or not.
///
/// Any standard error converts into a retry, so `?` works in handlers.
pub enum TaskError {
    /// Try again, not before `after` where given.
    Retry {
        /// Shortest wait, e.g. from a `Retry-After` header.
        after: Option<Duration>,
        /// Low-cardinality kind, for headers, metrics and grouping: a word such as `payment_declined`.
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
    /// The payload is not what the handler takes: dead-lettered as `contract_violation`.
    Mismatch {
        /// What does not fit.
        message: String,
    },
    /// Ended because somebody asked to cancel the task: acknowledged, and not tried again. Without such a request it
    /// is a failed attempt, or at a shutdown an interrupted one.
    Canceled,
}

impl TaskError {
    /// Ended because the task's cancellation was asked for; see [`Cancellation`](super::extract::Cancellation).
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

    /// The payload does not fit; trying again would not change it.
    pub fn mismatch(message: impl fmt::Display) -> Self {
        Self::Mismatch {
            message: message.to_string(),
        }
    }

    /// The error of a layer or of a library that boxes its errors. A `TaskError` that was boxed comes out as it was,
    /// any other error is a retry.
    pub fn from_boxed(error: BoxError) -> Self {
        match error.downcast::<Boxed>() {
            Ok(boxed) => boxed.0,
            Err(error) => Self::of(error.as_ref()),
        }
    }

    fn of(error: &dyn Error) -> Self {
        Self::Retry {
            after: None,
            kind: "error".to_owned(),
            message: chain(error),
        }
    }
}

/// The error with what caused it, no longer than it matters: a header takes [`MAX_ERROR_BYTES`] of it.
fn chain(error: &dyn Error) -> String {
    let mut message = error.to_string();
    let sources = std::iter::successors(error.source(), |inner| (*inner).source());
    for inner in sources.take(MOST_SOURCES) {
        if message.len() > MAX_ERROR_BYTES {
            break;
        }
        message.push_str(": ");
        message.push_str(&inner.to_string());
    }
    message
}

impl fmt::Debug for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Retry { after, kind, message } => write!(f, "Retry({kind}: {message}, after {after:?})"),
            Self::Reject { kind, message } => write!(f, "Reject({kind}: {message})"),
            Self::Mismatch { message } => write!(f, "Mismatch({message})"),
            Self::Canceled => f.write_str("Canceled"),
        }
    }
}

impl<E: Error> From<E> for TaskError {
    fn from(error: E) -> Self {
        Self::of(&error)
    }
}

/// A [`TaskError`] on its way through layers that know boxed errors only. `TaskError` itself is no
/// [`Error`]: then not every error could be converted into it.
#[derive(Debug)]
struct Boxed(TaskError);

impl fmt::Display for Boxed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl Error for Boxed {}

impl From<TaskError> for BoxError {
    fn from(error: TaskError) -> Self {
        Box::new(Boxed(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("could not charge")]
    struct Charge(#[source] std::io::Error);

    fn told(error: TaskError) -> (String, String) {
        match error {
            TaskError::Retry {
                after: None,
                kind,
                message,
            } => (kind, message),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_standard_error_becomes_a_retry_with_its_source_chain() {
        let error = || Charge(std::io::Error::other("connection reset"));
        let expected = (
            "error".to_owned(),
            "could not charge: connection reset".to_owned(),
        );
        assert_eq!(told(error().into()), expected);
        assert_eq!(told(TaskError::from_boxed(Box::new(error()))), expected);
    }

    #[test]
    fn a_task_error_passes_layers_unchanged() {
        let boxed: BoxError = TaskError::reject("no_such_order", "order 7").into();
        assert_eq!(boxed.to_string(), "Reject(no_such_order: order 7)");
        let TaskError::Reject { kind, .. } = TaskError::from_boxed(boxed) else {
            panic!("still a rejection")
        };
        assert_eq!(kind, "no_such_order");
    }

    #[test]
    fn a_chain_without_end_is_told_in_part() {
        #[derive(Debug)]
        struct Round;
        impl fmt::Display for Round {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("again")
            }
        }
        impl Error for Round {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                Some(&Self)
            }
        }
        assert_eq!(told(Round.into()).1.matches("again").count(), MOST_SOURCES + 1);
    }
}
