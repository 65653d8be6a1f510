//! The step that runs a handler: its timeout, its panics, quick retries, the interruption at the end of the grace period.
//!
//! May import: `core`, `broker`, `publish`, `telemetry`. Killed while a handler runs, the broker delivers the task again.

use std::{panic::AssertUnwindSafe, sync::Arc};

use chrono::Utc;
use futures::FutureExt;
use tidegate_core::{dispose::Outcome, envelope::Envelope, headers, quick::Quick};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    claim::Followed,
    delivery::{Station, failure},
    handled::Handled,
    idempotency::Hold,
    request::{Beside, Context, TaskRequest},
    task_error::TaskError,
    timeouts::Limit,
};
use crate::{
    broker::{consumer::Incoming, message},
    publish::resend::Failure,
    telemetry::metrics,
};

impl Station {
    pub(super) async fn run(
        &self,
        incoming: &Incoming,
        envelope: &Arc<Envelope>,
        number: u32,
        followed: &Followed<'_>,
        hold: &Hold,
    ) -> (Outcome, Failure) {
        let watched = match followed {
            Followed::Yes { client, ask, .. } => Some(client.watch(&ask.task_id)),
            Followed::No => None,
        };
        let cancel = watched
            .as_ref()
            .map(|watched| watched.cancel.clone())
            .unwrap_or_default();
        let (outcome, failure) = self
            .attempt(incoming, envelope, number, cancel.clone(), hold)
            .await;
        if cancel.is_cancelled() {
            return (outcome.after_cancel(), failure);
        }
        (outcome, failure)
    }

    async fn attempt(
        &self,
        incoming: &Incoming,
        envelope: &Arc<Envelope>,
        number: u32,
        cancel: CancellationToken,
        hold: &Hold,
    ) -> (Outcome, Failure) {
        let task_type = envelope.task_type.as_str();
        let Some(handled) = self.handlers.get(task_type) else {
            let message = format!("no handler for {task_type} in this worker");
            return (Outcome::UnknownTaskType, failure("unknown_task_type", message));
        };
        let Some(limit) = self.limit(incoming, envelope) else {
            // It grew too old while the ledger was asked; as with an interrupted attempt, nothing is counted.
            return (Outcome::Interrupted, failure("", String::new()));
        };
        if let Some(due) = message::instant(&incoming.properties, headers::DUE_AT) {
            metrics::started(Some(task_type), (Utc::now() - due).to_std().unwrap_or_default());
        }
        let context = Context {
            envelope: envelope.clone(),
            queue: self.queue.clone(),
            attempt: number,
            deadline: Instant::now() + limit.timeout,
            shutdown: self.shutdown.clone(),
            cancel,
            beside: Beside::default(),
        };
        let mut used = 0;
        loop {
            let began = Instant::now();
            let entered = Context {
                beside: hold.enter(),
                ..context.clone()
            };
            let request = TaskRequest::new(entered, incoming);
            let (outcome, failure) = self.once(handled, request, &context, &limit).await;
            let quick = Quick {
                allowed: handled.quick_retries,
                used,
                pause: handled.quick_pause,
                took: began.elapsed(),
                left: context.deadline.saturating_duration_since(Instant::now()),
                stopping: self.shutdown.is_cancelled() || context.cancel.is_cancelled(),
            };
            if !quick.again(outcome) {
                return (outcome, failure);
            }
            tracing::debug!(task_id = %envelope.task_id, task_type, number, kind = failure.kind, "trying again at once");
            tokio::select! {
                biased;
                () = self.shutdown.cancelled() => return (outcome, failure),
                () = context.cancel.cancelled() => return (outcome, failure),
                () = tokio::time::sleep(handled.quick_pause) => {}
            }
            used += 1;
            metrics::quick_retried(task_type);
        }
    }

    /// One try.
    async fn once(
        &self,
        handled: &Handled,
        request: TaskRequest,
        context: &Context,
        limit: &Limit,
    ) -> (Outcome, Failure) {
        // Both the call and its future are the user's code and may panic.
        let mut running = match std::panic::catch_unwind(AssertUnwindSafe(|| handled.service.start(request)))
        {
            Ok(running) => running,
            Err(panic) => return (Outcome::Panicked, panicked(panic.as_ref())),
        };
        let ended = tokio::select! {
            biased;
            ended = AssertUnwindSafe(&mut running).catch_unwind() => match ended {
                Ok(Ok(())) => (Outcome::Done, failure("", String::new())),
                Ok(Err(TaskError::Retry { after, kind, message })) => {
                    (Outcome::Retry { after }, Failure { kind, message })
                }
                Ok(Err(TaskError::Reject { kind, message })) => (Outcome::Reject, Failure { kind, message }),
                Ok(Err(TaskError::Mismatch { message })) => {
                    (Outcome::ContractViolation, failure("payload_mismatch", message))
                }
                Ok(Err(TaskError::Canceled)) => self.ended_as_canceled(&context.cancel),
                Err(panic) => (Outcome::Panicked, panicked(panic.as_ref())),
            },
            () = tokio::time::sleep_until(context.deadline) => {
                (Outcome::TimedOut, failure("timeout", limit.exceeded(&self.business)))
            }
            () = self.hurry.cancelled() => (Outcome::Interrupted, failure("", String::new())),
        };
        // So may what it drops. That changes nothing about how it ended.
        if let Err(panic) = std::panic::catch_unwind(AssertUnwindSafe(|| drop(running))) {
            let Failure { message, .. } = panicked(panic.as_ref());
            tracing::warn!(
                task_id = %context.envelope.task_id, task_type = %context.envelope.task_type, message,
                "a handler panicked as it was dropped"
            );
        }
        ended
    }

    /// A handler may give up only what somebody asked to cancel: anything else would lose the task.
    fn ended_as_canceled(&self, cancel: &CancellationToken) -> (Outcome, Failure) {
        let outcome = if cancel.is_cancelled() {
            Outcome::Canceled
        } else if self.shutdown.is_cancelled() {
            Outcome::Interrupted
        } else {
            let message = "the handler ended as canceled, but nobody has asked to cancel the task".to_owned();
            return (Outcome::Retry { after: None }, failure("canceled", message));
        };
        (outcome, failure("", String::new()))
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Failure {
    let text = panic
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned());
    failure("panic", text)
}
