//! One delivery from arrival to settlement.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use chrono::Utc;
use futures::FutureExt;
use tidegate_core::{
    dispose::{Attempt, Disposition, Outcome, dispose, may_start},
    envelope::{Envelope, Limits},
    headers,
    policy::RetryPolicy,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::handler::{Context, Entry, Handlers, TaskError};
use crate::{
    broker::{consumer::Incoming, message},
    publish::{
        reading::{Reading, known, read},
        resend::{Failure, Known},
        settle::{Settled, Settler},
    },
    telemetry::metrics,
};

/// What all attempts of one queue share.
pub(super) struct Station {
    /// The queue deliveries come from; retries go back to it and only there.
    pub(super) queue: Arc<str>,
    pub(super) policy: RetryPolicy,
    pub(super) limits: Limits,
    /// How long a handler may run where the envelope says nothing.
    pub(super) default_timeout: Duration,
    pub(super) handlers: Handlers,
    pub(super) settler: Settler,
    /// Cancelled when the worker begins to shut down.
    pub(super) shutdown: CancellationToken,
    /// Cancelled at the end of the grace period: what still runs is interrupted.
    pub(super) hurry: CancellationToken,
}

impl Station {
    /// Runs one delivery to its end.
    pub(super) async fn process(&self, incoming: Incoming) -> Settled {
        let number = message::attempt(&incoming.properties);
        let crashes = message::returns(&incoming.properties);
        let envelope = match read(&incoming, Some(&self.queue), &self.limits) {
            Reading::Valid(envelope) => envelope,
            Reading::Invalid {
                known,
                outcome,
                failure,
            } => {
                metrics::consumed(known.task_type.as_deref(), &self.queue);
                return self
                    .end(incoming, &known, number, None, outcome, &failure, Duration::ZERO)
                    .await;
            }
        };
        let known = known(&envelope, &self.queue);
        metrics::consumed(known.task_type.as_deref(), &self.queue);
        let allowed = self.policy.allowed_retries(envelope.max_retries);
        let started = Instant::now();
        let (outcome, failure) = if may_start(crashes, allowed) {
            self.run(&incoming, &envelope, number).await
        } else {
            let message =
                format!("the broker took it back {crashes} times from workers that died holding it");
            (
                Outcome::Crashed { count: crashes },
                failure("worker_crash", message),
            )
        };
        self.end(
            incoming,
            &known,
            number,
            envelope.max_retries,
            outcome,
            &failure,
            started.elapsed(),
        )
        .await
    }

    /// Gives a delivery back that was not started.
    pub(super) async fn give_back(&self, incoming: Incoming) -> Settled {
        let known = match read(&incoming, Some(&self.queue), &self.limits) {
            Reading::Valid(envelope) => known(&envelope, &self.queue),
            Reading::Invalid { known, .. } => known,
        };
        let none = failure("", String::new());
        self.settler
            .settle(incoming, &known, &self.queue, 1, Disposition::GiveBack, &none)
            .await
    }

    async fn run(&self, incoming: &Incoming, envelope: &Arc<Envelope>, number: u32) -> (Outcome, Failure) {
        let Some(handler) = self.handlers.get(envelope.task_type.as_str()) else {
            let message = format!("no handler for {} in this worker", envelope.task_type);
            return (Outcome::UnknownTaskType, failure("unknown_task_type", message));
        };
        let task_type = Some(envelope.task_type.as_str());
        if let Some(due) = message::instant(&incoming.properties, headers::DUE_AT) {
            metrics::started(task_type, (Utc::now() - due).to_std().unwrap_or_default());
        }
        let timeout = envelope.timeout.unwrap_or(self.default_timeout);
        let context = Context {
            envelope: envelope.clone(),
            queue: self.queue.clone(),
            attempt: number,
            deadline: Instant::now() + timeout,
            shutdown: self.shutdown.clone(),
        };
        let deadline = context.deadline;
        // Both the call and its future are the user's code and may panic.
        let entered = std::panic::catch_unwind(AssertUnwindSafe(|| handler(context)));
        let running = match entered {
            Ok(Ok(running)) => running,
            Ok(Err(Entry::Mismatch(why))) => {
                return (Outcome::ContractViolation, failure("payload_mismatch", why));
            }
            Err(panic) => return (Outcome::Panicked, panicked(panic.as_ref())),
        };
        tokio::select! {
            biased;
            ended = AssertUnwindSafe(running).catch_unwind() => match ended {
                Ok(Ok(())) => (Outcome::Done, failure("", String::new())),
                Ok(Err(TaskError::Retry { after, kind, message })) => {
                    (Outcome::Retry { after }, Failure { kind, message })
                }
                Ok(Err(TaskError::Reject { kind, message })) => (Outcome::Reject, Failure { kind, message }),
                Err(panic) => (Outcome::Panicked, panicked(panic.as_ref())),
            },
            () = tokio::time::sleep_until(deadline) => {
                (Outcome::TimedOut, failure("timeout", format!("ran longer than {timeout:?}")))
            }
            () = self.hurry.cancelled() => (Outcome::Interrupted, failure("", String::new())),
        }
    }

    #[allow(clippy::too_many_arguments, reason = "one call, made twice above")]
    async fn end(
        &self,
        incoming: Incoming,
        known: &Known,
        number: u32,
        max_retries: Option<u32>,
        outcome: Outcome,
        failure: &Failure,
        took: Duration,
    ) -> Settled {
        metrics::attempt_ended(known.task_type.as_deref(), outcome.as_str(), took);
        let attempt = Attempt {
            number,
            max_retries,
            jitter: rand::random(),
        };
        let disposition = dispose(&attempt, &self.policy, outcome);
        tracing::debug!(task_id = known.task_id.as_deref(), queue = %self.queue, number, outcome = outcome.as_str(), ?disposition, "attempt ended");
        self.settler
            .settle(incoming, known, &self.queue, number, disposition, failure)
            .await
    }
}

fn failure(kind: &str, message: String) -> Failure {
    Failure {
        kind: kind.to_owned(),
        message,
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
