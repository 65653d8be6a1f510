//! One delivery from arrival to settlement.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use chrono::Utc;
use futures::FutureExt;
use tidegate_core::{
    dispose::{Attempt, DeadReason, Disposition, Outcome, dispose, early_by, may_start},
    envelope::{Envelope, Limits},
    headers::{self, Origin},
    policy::RetryPolicy,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    handler::{Context, Entry, Handlers, TaskError},
    ledger::{Ask, End, Report, Verdict, client::Client},
};
use crate::{
    broker::{consumer::Incoming, message},
    publish::{
        reading::{Reading, known, read},
        resend::{Failure, Known},
        settle::{Settled, Settler, acknowledge},
    },
    telemetry::metrics,
};

/// What all attempts of one queue share.
pub(super) struct Station {
    /// The queue deliveries come from; retries go back to it and only there.
    pub(super) queue: Arc<str>,
    /// The business queue: the same, but for a high lane.
    pub(super) business: Arc<str>,
    pub(super) policy: RetryPolicy,
    pub(super) limits: Limits,
    /// How long a handler may run where the envelope says nothing.
    pub(super) default_timeout: Duration,
    pub(super) handlers: Handlers,
    pub(super) settler: Settler,
    /// Asked about tasks that came from the ledger.
    pub(super) ledger: Option<Client>,
    /// Cancelled when the worker begins to shut down.
    pub(super) shutdown: CancellationToken,
    /// Cancelled at the end of the grace period: what still runs is interrupted.
    pub(super) hurry: CancellationToken,
}

/// Longest wait for the ledger's word on a delivery. Then it goes to the ladder, so that deliveries which need no
/// word find a free slot.
const CLAIM_PATIENCE: Duration = Duration::from_secs(5);

/// How long it stays there: from this, to three times as long.
const CLAIM_PAUSE: Duration = Duration::from_secs(5);

/// What comes of asking for the ledger's word.
enum Claimed {
    Told(Verdict),
    /// The worker stops.
    Stopping,
    /// The ledger is away, or somebody keeps the row locked.
    Unanswered,
}

/// What the ledger has to do with a delivery.
enum Followed<'a> {
    /// Nothing: there is no ledger, the task did not come from it, or it follows another delivery.
    No,
    /// Its end is reported; `run` numbers the start, if there was one.
    Yes {
        client: &'a Client,
        ask: Ask,
        run: Option<i32>,
    },
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
                let followed = self.followed(&incoming, &known);
                return self
                    .end(
                        incoming,
                        &known,
                        number,
                        None,
                        outcome,
                        &failure,
                        Duration::ZERO,
                        followed,
                    )
                    .await;
            }
        };
        let known = known(&envelope, &self.queue);
        metrics::consumed(known.task_type.as_deref(), &self.queue);
        // Our own senders have seen to the time and say so; a plain client may have published it here straight away.
        let placed = message::instant(&incoming.properties, headers::DUE_AT).is_some();
        if let Some(delay) = early_by(envelope.schedule_time, placed, Utc::now()) {
            return self.settler.defer(incoming, &known, &self.queue, delay).await;
        }
        let allowed = self.policy.allowed_retries(envelope.max_retries);
        let mut followed = self.followed(&incoming, &known);
        let mut started = Instant::now();
        let (outcome, failure) = if may_start(crashes, allowed) {
            let verdict = match self.claim(&mut followed).await {
                Claimed::Told(verdict) => verdict,
                Claimed::Stopping => return self.give_back(incoming).await,
                Claimed::Unanswered => {
                    let pause = CLAIM_PAUSE.mul_f64(1.0 + 2.0 * rand::random::<f64>());
                    return self.settler.defer(incoming, &known, &self.queue, pause).await;
                }
            };
            started = Instant::now();
            match verdict {
                Verdict::Start { .. } => self.run(&incoming, &envelope, number, &followed).await,
                Verdict::Canceled => {
                    let message = "cancelled after it had left the ledger and before it started".to_owned();
                    (Outcome::CanceledInFlight, failure("canceled", message))
                }
                Verdict::Done => (Outcome::Duplicate, failure("", String::new())),
            }
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
            followed,
        )
        .await
    }

    fn followed(&self, incoming: &Incoming, known: &Known) -> Followed<'_> {
        let origin = message::text(&incoming.properties, headers::ORIGIN).and_then(Origin::parse);
        match (&self.ledger, &known.task_id) {
            (Some(client), Some(task_id)) if origin.is_some_and(Origin::has_row) => Followed::Yes {
                client,
                ask: Ask {
                    task_id: task_id.clone(),
                    queue: self.business.to_string(),
                },
                run: None,
            },
            _ => Followed::No,
        }
    }

    /// Asks whether the delivery may start; one that the ledger has nothing to do with may.
    async fn claim(&self, followed: &mut Followed<'_>) -> Claimed {
        let Followed::Yes { client, ask, run } = followed else {
            return Claimed::Told(Verdict::Start { run: None });
        };
        let verdict = tokio::select! {
            biased;
            () = self.shutdown.cancelled() => return Claimed::Stopping,
            verdict = client.start(ask) => verdict,
            () = tokio::time::sleep(CLAIM_PATIENCE) => return Claimed::Unanswered,
        };
        match verdict {
            Verdict::Start { run: None } => *followed = Followed::No,
            Verdict::Start { run: number } => *run = number,
            Verdict::Canceled | Verdict::Done => {}
        }
        Claimed::Told(verdict)
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

    async fn run(
        &self,
        incoming: &Incoming,
        envelope: &Arc<Envelope>,
        number: u32,
        followed: &Followed<'_>,
    ) -> (Outcome, Failure) {
        let watched = match followed {
            Followed::Yes { client, ask, .. } => Some(client.watch(&ask.task_id)),
            Followed::No => None,
        };
        let cancel = watched
            .as_ref()
            .map(|watched| watched.cancel.clone())
            .unwrap_or_default();
        let (outcome, failure) = self.attempt(incoming, envelope, number, cancel.clone()).await;
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
    ) -> (Outcome, Failure) {
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
            cancel: cancel.clone(),
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
                Ok(Err(TaskError::Canceled)) => self.ended_as_canceled(&cancel),
                Err(panic) => (Outcome::Panicked, panicked(panic.as_ref())),
            },
            () = tokio::time::sleep_until(deadline) => {
                (Outcome::TimedOut, failure("timeout", format!("ran longer than {timeout:?}")))
            }
            () = self.hurry.cancelled() => (Outcome::Interrupted, failure("", String::new())),
        }
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
        followed: Followed<'_>,
    ) -> Settled {
        metrics::attempt_ended(known.task_type.as_deref(), outcome.as_str(), Some(took));
        let attempt = Attempt {
            number,
            max_retries,
            jitter: rand::random(),
        };
        let disposition = dispose(&attempt, &self.policy, outcome);
        tracing::debug!(task_id = known.task_id.as_deref(), queue = %self.queue, number, outcome = outcome.as_str(), ?disposition, "attempt ended");
        let published = self
            .settler
            .publish(&incoming, known, &self.queue, number, disposition, failure)
            .await;
        // Not before the outcome is durable, and before the acknowledgement: dying in between repeats, never forgets.
        if published
            && let Followed::Yes { client, ask, run } = followed
            && let Some(end) = end_of(outcome, disposition)
        {
            let report = Report {
                task_id: ask.task_id,
                queue: ask.queue,
                run,
                end,
                error: error_text(disposition, failure),
            };
            client.report(report).await;
        }
        acknowledge(incoming, published).await
    }
}

/// What the ledger is told; `None`: it knows.
fn end_of(outcome: Outcome, disposition: Disposition) -> Option<End> {
    match disposition {
        Disposition::Ack => match outcome {
            Outcome::Duplicate => None,
            Outcome::Canceled => Some(End::Canceled),
            _ => Some(End::Success),
        },
        Disposition::Retry { .. } => Some(End::Retrying),
        Disposition::Dead {
            reason: DeadReason::CanceledInFlight,
        } => None,
        Disposition::Dead { .. } => Some(End::Failed),
        Disposition::GiveBack => Some(End::GivenBack),
    }
}

/// Reason, kind and text, bounded as they are in headers.
fn error_text(disposition: Disposition, failure: &Failure) -> Option<String> {
    let reason = match disposition {
        Disposition::Dead { reason } => reason.as_str(),
        _ => "",
    };
    let parts: Vec<&str> = [reason, &failure.kind, &failure.message]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect();
    (!parts.is_empty()).then(|| headers::cut_error(&parts.join(": ")))
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
