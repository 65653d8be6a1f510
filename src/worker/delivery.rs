//! One delivery from arrival to settlement: read, is it a suspect, do its type's limits admit it, may it start, run,
//! dispose, settle.
//!
//! The steps in front of the handler live beside this file; each either lets the delivery pass or settles it. Killed
//! between any two of them, the broker delivers it again: the outcome is published before the delivery is acknowledged.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
    time::Duration,
};

use chrono::Utc;
use tidegate_core::{
    dispose::{Attempt, DeadReason, Disposition, Outcome, dispose, early_by},
    envelope::Limits,
    headers,
    policy::RetryPolicy,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    admission::{Admitted, Gates, Permits},
    claim::{CLAIM_PAUSE, Claimed, Followed},
    handled::Handlers,
    idempotency::{Ended, Keyed, Keyring},
    ledger::{End, Report, Verdict, client::Client},
    place::Place,
    repeats::Repeats,
    suspicion::{Cleared, jittered},
};
use crate::{
    broker::{consumer::Incoming, message},
    publish::{
        reading::{Reading, known, read},
        resend::{Failure, Known},
        settle::{Settled, Settler, acknowledge},
    },
    telemetry::{metrics, successes::Successes},
};

/// What all attempts of one queue share.
pub(super) struct Station {
    /// The queue deliveries come from; retries go back to it and only there.
    pub(super) queue: Arc<str>,
    /// The business queue: the same, but for a high lane.
    pub(super) business: Arc<str>,
    pub(super) policy: RetryPolicy,
    /// That of the types that have one of their own.
    pub(super) policies: HashMap<String, RetryPolicy>,
    /// Of the types handled here.
    pub(super) gates: Arc<Gates>,
    pub(super) limits: Limits,
    /// After how long the broker takes a delivery back.
    pub(super) broker_limit: Duration,
    pub(super) handlers: Handlers,
    /// Of the types handled here; set at the first delivery, when the service has surely installed its recorder.
    pub(super) successes: HashMap<String, OnceLock<Successes>>,
    pub(super) settler: Settler,
    /// Asked about tasks that came from the ledger.
    pub(super) ledger: Option<Client>,
    /// For types of which one key runs once.
    pub(super) keyring: Option<Arc<Keyring>>,
    /// What runs here and has run lately.
    pub(super) repeats: Repeats,
    /// Cancelled when the worker begins to shut down.
    pub(super) shutdown: CancellationToken,
    /// Cancelled at the end of the grace period: what still runs is interrupted.
    pub(super) hurry: CancellationToken,
}

impl Station {
    /// Runs one delivery to its end; it keeps its place until then.
    pub(super) async fn process(&self, incoming: Incoming, place: &mut Place) -> Settled {
        let number = message::attempt(&incoming.properties);
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
        let mut known = known(&envelope, &self.queue);
        match self.successes(Some(envelope.task_type.as_str())) {
            Some(successes) => successes.consumed(),
            None => metrics::consumed(known.task_type.as_deref(), &self.queue),
        }
        // Our own senders have seen to the time and say so; a plain client may have published it here straight away.
        let placed = message::instant(&incoming.properties, headers::DUE_AT).is_some();
        if let Some(delay) = early_by(envelope.schedule_time, placed, Utc::now()) {
            return self.later(incoming, &known, "early", delay).await;
        }
        if self.limit(&incoming, &envelope).is_none() {
            metrics::too_old(&self.queue);
            let none = failure("", String::new());
            return self
                .settler
                .settle(
                    incoming,
                    &known,
                    &self.queue,
                    number,
                    Disposition::GiveBack,
                    &none,
                )
                .await;
        }
        if self.repeated(&incoming, &envelope, number, place).await {
            return acknowledge(incoming, true);
        }
        let policy = self.policy(known.task_type.as_deref());
        let allowed = policy.allowed_retries(envelope.max_retries);
        let mut crashed = None;
        match self.clear(&incoming, &mut known, allowed, place).await {
            Cleared::Go => {}
            Cleared::Later(pause) => return self.later(incoming, &known, "suspect", pause).await,
            Cleared::Stopping => return self.give_back(incoming).await,
            Cleared::Dead(deaths) => crashed = (!self.has_succeeded(&envelope).await).then_some(deaths),
        }
        let permits = match self.admit(&incoming, &mut known, number, crashed, place).await {
            Admitted::In(permits) => permits,
            Admitted::Later { why, stay } => return self.later(incoming, &known, why, stay).await,
            Admitted::Closed => return self.give_back(incoming).await,
        };
        let _run = self.repeats.begin(envelope.task_id.as_str(), number);
        let mut followed = self.followed(&incoming, &known);
        let mut started = Instant::now();
        let (outcome, failure) = if let Some(deaths) = crashed {
            let message = format!("{deaths} worker processes died while they ran it");
            (
                Outcome::Crashed { count: deaths },
                failure("worker_crash", message),
            )
        } else {
            let verdict = match self.claim(&mut followed).await {
                Claimed::Told(verdict) => verdict,
                Claimed::Stopping => return self.give_back(incoming).await,
                Claimed::Unanswered => {
                    return self
                        .later(incoming, &known, "ledger", jittered(CLAIM_PAUSE))
                        .await;
                }
            };
            started = Instant::now();
            match verdict {
                Verdict::Start { .. } => match self.claim_key(&envelope).await {
                    Keyed::Run(hold) => {
                        let ended = self.run(&incoming, &envelope, number, &followed, &hold).await;
                        match self.settle_key(hold, ended).await {
                            Ended::As(outcome, failure) => (outcome, failure),
                            Ended::Again(pause) => {
                                return self.not_run(incoming, &known, followed, Some(pause)).await;
                            }
                        }
                    }
                    Keyed::Done => (Outcome::Duplicate, failure("", String::new())),
                    Keyed::Wait(pause) => return self.not_run(incoming, &known, followed, pause).await,
                },
                Verdict::Canceled => {
                    let message = "cancelled after it had left the ledger and before it started".to_owned();
                    (Outcome::CanceledInFlight, failure("canceled", message))
                }
                Verdict::Done => (Outcome::Duplicate, failure("", String::new())),
            }
        };
        drop(permits);
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

    fn successes(&self, task_type: Option<&str>) -> Option<&Successes> {
        let (name, successes) = self.successes.get_key_value(task_type?)?;
        Some(successes.get_or_init(|| Successes::of(name, &self.queue)))
    }

    /// The retry policy of a type in this queue.
    fn policy(&self, task_type: Option<&str>) -> &RetryPolicy {
        task_type
            .and_then(|name| self.policies.get(name))
            .unwrap_or(&self.policy)
    }

    /// Asks the limits of its type; one that is not handled here has none, and a suspect stands alone already.
    async fn admit(
        &self,
        incoming: &Incoming,
        known: &mut Known,
        number: u32,
        crashed: Option<u32>,
        place: &mut Place,
    ) -> Admitted {
        let gate = known.task_type.as_ref().and_then(|name| self.gates.get(name));
        let gate = gate.filter(|gate| !gate.is_open(number) && crashed.is_none() && !place.is_alone());
        let admitted = match gate {
            Some(gate) => {
                let waits = message::integer(&incoming.properties, headers::WAITS);
                let waits = waits.and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
                known.waits = Some(waits.saturating_add(1));
                gate.admit(number, waits, place).await
            }
            None => Admitted::In(Permits::default()),
        };
        match admitted {
            Admitted::In(_) if crashed.is_none() && place.is_closed() => Admitted::Closed,
            admitted => admitted,
        }
    }

    /// Sends a delivery that can't start now to the ladder, as the same attempt.
    pub(super) async fn later(
        &self,
        incoming: Incoming,
        known: &Known,
        why: &'static str,
        pause: Duration,
    ) -> Settled {
        metrics::deferred(known.task_type.as_deref(), why);
        Box::pin(self.settler.defer(incoming, known, &self.queue, pause)).await
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
        match self.successes(known.task_type.as_deref()) {
            Some(successes) if outcome == Outcome::Done => successes.ended(took),
            _ => metrics::attempt_ended(known.task_type.as_deref(), outcome.as_str(), Some(took)),
        }
        if !failure.kind.is_empty() {
            metrics::attempt_failed(known.task_type.as_deref(), &failure.kind);
        }
        let attempt = Attempt {
            number,
            max_retries,
            jitter: rand::random(),
        };
        let disposition = dispose(&attempt, self.policy(known.task_type.as_deref()), outcome);
        tracing::debug!(task_id = known.task_id.as_deref(), queue = %self.queue, number, outcome = outcome.as_str(), ?disposition, "attempt ended");
        let published = self
            .settler
            .publish(&incoming, known, &self.queue, number, disposition, failure)
            .await;
        // Not before the outcome is durable, and before the acknowledgement: dying in between repeats, never forgets.
        if published
            && let Followed::Yes { client, ask, run } = followed
            && let Some(end) = end_of(outcome, disposition, run)
        {
            let report = Report {
                task_id: ask.task_id,
                queue: ask.queue,
                run,
                end,
                error: failure.line(disposition.dead_reason()),
            };
            client.report(report).await;
        }
        if published && let Some(task_id) = &known.task_id {
            self.repeats.ended(task_id, number, took);
        }
        acknowledge(incoming, published)
    }
}

/// What the ledger is told; `None`: it knows.
fn end_of(outcome: Outcome, disposition: Disposition, run: Option<i32>) -> Option<End> {
    match disposition {
        Disposition::Ack => match outcome {
            // Started by the ledger, and then found to be another task's duplicate: the success is its own too.
            Outcome::Duplicate => run.map(|_| End::Success),
            Outcome::Canceled => Some(End::Canceled),
            _ => Some(End::Success),
        },
        Disposition::Retry { .. } => Some(End::Retrying),
        Disposition::Dead {
            reason: DeadReason::CanceledInFlight,
        } => None,
        Disposition::Dead { .. } => Some(End::Failed),
        Disposition::PutOff { .. } | Disposition::GiveBack => Some(End::GivenBack),
    }
}

pub(super) fn failure(kind: &str, message: String) -> Failure {
    Failure {
        kind: kind.to_owned(),
        message,
    }
}
