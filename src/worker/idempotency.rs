//! The step that lets one idempotency key run to success once: claimed before the handler, completed or released after.
//!
//! May import: `topology`, `telemetry`. Killed after the claim, the key is free once its lease has ended, and whoever
//! has the delivery then runs it. Killed after the completion, the delivery comes again and is acknowledged without
//! running. A success is acknowledged only once it is recorded, unless the ledger stays away. A result of a run that
//! has lost its key meanwhile counts for nothing.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use sha2::{Digest, Sha256};
use tidegate_core::{dispose::Outcome, envelope::Envelope, idempotency};
use tokio_util::sync::CancellationToken;

use super::{
    BuildError,
    claim::{CLAIM_PATIENCE, CLAIM_PAUSE, Followed},
    delivery::{Station, failure},
    handled::Handlers,
    ledger::{
        Committed, Effect, End, Ledger, Report,
        keys::{Answer, Completed, Held, KeyLoops, Keys, keys},
    },
    request::Beside,
};
use crate::{
    broker::consumer::Incoming,
    publish::{
        resend::{Failure, Known},
        settle::Settled,
    },
    telemetry::{health::Health, metrics},
    topology::{Idempotency, KeyRule, Topology},
};

/// Longest key in bytes as the ledger keeps it; a longer one is kept as its digest.
const MOST_KEY_BYTES: usize = 1_024;

/// The rule of one type.
struct Rule {
    task_type: Arc<str>,
    key: KeyRule,
    /// The handler works in a transaction of the ledger.
    in_transaction: bool,
}

/// The types of this worker of which one key runs once.
pub(super) struct Keyring {
    keys: Keys,
    rules: HashMap<String, Rule>,
}

impl Keyring {
    /// The keyring of a worker with these handlers; `None` where no type of theirs asks for idempotency.
    pub(super) fn new(
        handlers: &Handlers,
        topology: &Topology,
        ledger: Option<&Arc<dyn Ledger>>,
        health: &Health,
        hurry: &CancellationToken,
    ) -> Result<Option<(Arc<Self>, KeyLoops)>, BuildError> {
        let mut rules = HashMap::new();
        for name in handlers.keys() {
            let (key, mode) = match topology.types.get(name).map(|policy| &policy.idempotency) {
                Some(Idempotency::ByKey(key)) => (key, "key"),
                Some(Idempotency::Database(key)) => (key, "database"),
                Some(Idempotency::Off) | None => continue,
            };
            let in_transaction = mode == "database";
            if ledger.is_none_or(|ledger| in_transaction && ledger.effect().is_none()) {
                return Err(BuildError::NeedsLedger {
                    task_type: name.clone(),
                    mode,
                });
            }
            let rule = Rule {
                task_type: name.as_str().into(),
                key: key.clone(),
                in_transaction,
            };
            rules.insert(name.clone(), rule);
        }
        let Some(ledger) = ledger.filter(|_| !rules.is_empty()) else {
            return Ok(None);
        };
        let (keys, loops) = keys(ledger.clone(), health, hurry.clone());
        Ok(Some((Arc::new(Self { keys, rules }), loops)))
    }
}

/// What a run holds.
pub(super) enum Hold {
    /// Its type has no idempotency.
    Nothing,
    /// Its key.
    Key(Key),
}

/// A key that is held while its task runs.
pub(super) struct Key {
    keys: Keys,
    held: Held,
    in_transaction: bool,
    /// Of the handler's latest entry.
    effect: Mutex<Option<Box<dyn Effect>>>,
}

impl Hold {
    /// What the handler finds in its context, anew for each entry: what an earlier one did there is undone.
    pub(super) fn enter(&self) -> Beside {
        let Self::Key(key) = self else {
            return Beside::default();
        };
        let effect = key.in_transaction.then(|| key.keys.effect()).flatten();
        let beside = Beside(effect.as_ref().map(|effect| effect.extension()));
        // A poisoned lock only means that dropping the last one panicked.
        *key.effect.lock().unwrap_or_else(PoisonError::into_inner) = effect;
        beside
    }
}

/// What comes of claiming the key of a delivery.
pub(super) enum Keyed {
    /// Run it.
    Run(Hold),
    /// It was processed to success before.
    Done,
    /// Not now: after this pause; or, where there is none, never here, because the worker stops.
    Wait(Option<Duration>),
}

/// How a run ended, once its key has been settled.
pub(super) enum Ended {
    As(Outcome, Failure),
    /// It can't be said: the delivery claims its key anew after this pause.
    Again(Duration),
}

fn pause() -> Duration {
    CLAIM_PAUSE.mul_f64(1.0 + 2.0 * rand::random::<f64>())
}

impl Station {
    /// Claims the key of a delivery that is to be run.
    pub(super) async fn claim_key(&self, envelope: &Envelope) -> Keyed {
        let task_type = envelope.task_type.as_str();
        let rule = self
            .keyring
            .as_ref()
            .and_then(|ring| Some((ring, ring.rules.get(task_type)?)));
        let Some((ring, rule)) = rule else {
            return Keyed::Run(Hold::Nothing);
        };
        let key = key(envelope, rule);
        let task_id = envelope.task_id.as_str();
        let answer = tokio::select! {
            biased;
            () = self.shutdown.cancelled() => return Keyed::Wait(None),
            answer = ring.keys.claim(&rule.task_type, &key, task_id, rule.key.lease) => answer,
            () = tokio::time::sleep(CLAIM_PATIENCE) => return Keyed::Wait(Some(pause())),
        };
        match answer {
            Answer::Granted(held) => {
                metrics::key_claimed(task_type, "granted");
                Keyed::Run(Hold::Key(Key {
                    keys: ring.keys.clone(),
                    held,
                    in_transaction: rule.in_transaction,
                    effect: Mutex::default(),
                }))
            }
            Answer::Done => {
                metrics::key_claimed(task_type, "done");
                tracing::debug!(
                    task_id,
                    task_type,
                    "its key is done: acknowledged without running"
                );
                Keyed::Done
            }
            Answer::Held(left) => {
                metrics::key_claimed(task_type, "held");
                Keyed::Wait(Some(idempotency::wait(left, rand::random())))
            }
        }
    }

    /// Whether the key of a delivery is done: another copy of it may have succeeded, or this one, before its
    /// acknowledgement got through.
    pub(super) async fn has_succeeded(&self, envelope: &Envelope) -> bool {
        match self.claim_key(envelope).await {
            Keyed::Done => true,
            Keyed::Run(Hold::Key(key)) => {
                key.keys.release(key.held).await;
                false
            }
            Keyed::Run(Hold::Nothing) | Keyed::Wait(_) => false,
        }
    }

    /// Settles the key of a run: nothing is acknowledged as a success before it is recorded, and a failed run leaves
    /// its key free for its own retry.
    pub(super) async fn settle_key(&self, hold: Hold, (outcome, why): (Outcome, Failure)) -> Ended {
        let Hold::Key(key) = hold else {
            return Ended::As(outcome, why);
        };
        let effect = key.effect.into_inner().unwrap_or_else(PoisonError::into_inner);
        if outcome != Outcome::Done {
            // Undone first: the retry must not wait for what this run has locked.
            drop(effect);
            key.keys.release(key.held).await;
            return Ended::As(outcome, why);
        }
        let committed = match effect {
            Some(effect) => effect.commit(key.held.grant()).await,
            None => Committed::Unused,
        };
        let completed = match committed {
            Committed::Unused => key.keys.complete(key.held.clone()).await,
            Committed::Yes => Completed::Recorded,
            Committed::Refused => Completed::Refused,
            Committed::Failed(text) => {
                key.keys.release(key.held).await;
                return Ended::As(Outcome::Retry { after: None }, failure("transaction", text));
            }
            Committed::Unknown(text) => {
                tracing::warn!(
                    text,
                    "can't say whether a handler's transaction is committed; its key will tell"
                );
                // If it is, nothing is released.
                key.keys.release(key.held).await;
                return Ended::Again(pause());
            }
        };
        match completed {
            Completed::Recorded | Completed::Unanswered => Ended::As(outcome, why),
            Completed::Refused => {
                let grant = key.held.grant();
                metrics::late_result_refused(&grant.task_type);
                tracing::warn!(
                    task_type = %grant.task_type, fence = grant.fence, queue = %self.queue,
                    "a late result is refused: the key of this run was taken over, or its row deleted"
                );
                Ended::Again(idempotency::wait(Duration::ZERO, rand::random()))
            }
        }
    }

    /// Puts off a delivery that the ledger may believe to be running, as the same attempt; without a `pause` it goes
    /// back to its queue.
    pub(super) async fn not_run(
        &self,
        incoming: Incoming,
        known: &Known,
        followed: Followed<'_>,
        pause: Option<Duration>,
    ) -> Settled {
        if let Followed::Yes { client, ask, run } = followed {
            let report = Report {
                task_id: ask.task_id,
                queue: ask.queue,
                run,
                end: End::GivenBack,
                error: None,
            };
            client.report(report).await;
        }
        match pause {
            Some(pause) => self.later(incoming, known, "idempotency", pause).await,
            None => self.give_back(incoming).await,
        }
    }
}

/// The key of a task as the ledger keeps it.
fn key(envelope: &Envelope, rule: &Rule) -> Arc<str> {
    let key = idempotency::key(envelope, rule.key.field.as_deref());
    if key.is_fallback {
        metrics::key_missing(&rule.task_type);
    }
    if key.text.len() <= MOST_KEY_BYTES {
        return key.text.as_ref().into();
    }
    let digest = Sha256::digest(key.text.as_bytes());
    let hexadecimal: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hexadecimal}").into()
}
