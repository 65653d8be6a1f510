//! A layer around every handler of the shop: it writes each run to the journal that the table at the end is made of.
//!
//! Imports `journal` of the example, `tidegate::worker` and tower.

use std::task::{Context, Poll};

use chrono::Utc;
use futures::future::BoxFuture;
use tidegate::worker::{TaskError, TaskRequest};
use tower::{Layer, Service};

use crate::journal::{Ended, Journal, Run};

/// Makes the service around a handler.
#[derive(Clone, Debug)]
pub(crate) struct Journaled(pub(crate) Journal);

/// A handler with its journal.
#[derive(Clone, Debug)]
pub(crate) struct Writing<H> {
    handler: H,
    journal: Journal,
}

impl<H> Layer<H> for Journaled {
    type Service = Writing<H>;

    fn layer(&self, handler: H) -> Writing<H> {
        Writing {
            handler,
            journal: self.0.clone(),
        }
    }
}

impl<H> Service<TaskRequest> for Writing<H>
where
    H: Service<TaskRequest, Response = (), Error = TaskError>,
    H::Future: Send + 'static,
{
    type Response = ();
    type Error = TaskError;
    type Future = BoxFuture<'static, Result<(), TaskError>>;

    fn poll_ready(&mut self, polling: &mut Context<'_>) -> Poll<Result<(), TaskError>> {
        self.handler.poll_ready(polling)
    }

    fn call(&mut self, task: TaskRequest) -> Self::Future {
        let (key, attempt) = (task.envelope().task_id.to_string(), task.context().attempt);
        let (journal, started) = (self.journal.clone(), Utc::now());
        let running = self.handler.call(task);
        Box::pin(async move {
            let result = running.await;
            let ended = match &result {
                Ok(()) => Ended::Done,
                // Nothing here is cancelled while it runs.
                Err(TaskError::Retry { .. } | TaskError::Canceled) => Ended::Failed,
                Err(TaskError::Reject { .. } | TaskError::Mismatch { .. }) => Ended::Rejected,
            };
            journal.ran(Run {
                key,
                attempt,
                started,
                ended,
            });
            result
        })
    }
}
