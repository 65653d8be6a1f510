//! The worker's side of idempotency keys: claims, completions and releases, each in batches.
//!
//! May import: `batcher`, `telemetry`. One per worker, shared by all its queues. A claim has no answer while the ledger is away:
//! nothing runs without one. A completion or release waits for a bounded time, and is then told in the background,
//! with its lease renewed meanwhile. What waits is in memory: if the process dies, the leases end by themselves.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use super::{
    Effect, Grant, Kept, KeyVerdict, Ledger, LedgerError, Wanted,
    leases::{Lease, Leases},
};
use crate::{
    batcher::{BatchLoop, Batcher, Statement, batcher},
    telemetry::{health::Health, metrics},
};

/// Longest wait for a success to be recorded before its delivery is acknowledged anyway: a second run would be certain
/// if it were not.
const PATIENCE: Duration = Duration::from_secs(15);

/// Longest wait for a key to be free before its retry is published anyway.
const RELEASE_PATIENCE: Duration = Duration::from_secs(2);

/// The same once the grace period is over.
const LAST_PATIENCE: Duration = Duration::from_millis(500);

/// Most completions, and most releases, that wait.
const RESULTS: usize = 4_096;

/// Most claims that wait beside those being asked; their deliveries are bounded by the workers' concurrency.
const CLAIMS: usize = 1_024;

/// A claim, with the text by which a batch has each key once.
#[derive(Clone)]
struct Claiming {
    wanted: Wanted,
    identity: String,
}

struct Claims {
    ledger: Arc<dyn Ledger>,
    releases: Batcher<Releases>,
    leases: Leases,
}

#[async_trait]
impl Statement for Claims {
    type Item = Claiming;
    type Answer = KeyVerdict;
    const KIND: &'static str = "claim";
    const PART: &'static str = "ledger keys";
    const OUTLIVES_CALLER: bool = false;

    fn task_id(item: &Claiming) -> &str {
        &item.identity
    }

    async fn perform(&self, items: &[Claiming]) -> Result<Vec<Option<KeyVerdict>>, LedgerError> {
        let wanted: Vec<Wanted> = items.iter().map(|item| item.wanted.clone()).collect();
        self.ledger.claim(&wanted).await
    }

    /// The claim was given up while it was on its way: its own delivery will want the key again.
    fn unheard(&self, item: Claiming, answer: KeyVerdict) {
        if let KeyVerdict::Granted { fence } = answer {
            let held = Held::new(grant(&item.wanted, fence), &self.leases);
            self.releases.try_submit(held);
        }
    }
}

fn grant(wanted: &Wanted, fence: i64) -> Grant {
    Grant {
        task_type: wanted.task_type.clone(),
        key: wanted.key.clone(),
        fence,
        lease: wanted.lease,
    }
}

/// A key that this process holds: its lease is renewed for as long as a copy of this lives.
#[derive(Clone)]
pub(in crate::worker) struct Held {
    lease: Arc<Lease>,
    identity: Arc<str>,
}

impl Held {
    fn new(grant: Grant, leases: &Leases) -> Self {
        Self {
            identity: grant.fence.to_string().into(),
            lease: Arc::new(leases.keep(grant)),
        }
    }

    pub(in crate::worker) fn grant(&self) -> &Grant {
        &self.lease.grant
    }
}

fn grants(items: &[Held]) -> Vec<Grant> {
    items.iter().map(|held| held.grant().clone()).collect()
}

/// Both kinds of results, which differ in the statement and in what a refusal means.
macro_rules! results {
    ($name:ident, $call:ident, $kind:literal, $part:literal) => {
        struct $name {
            ledger: Arc<dyn Ledger>,
        }

        #[async_trait]
        impl Statement for $name {
            type Item = Held;
            type Answer = Kept;
            const KIND: &'static str = $kind;
            const PART: &'static str = $part;
            const OUTLIVES_CALLER: bool = true;

            fn task_id(item: &Held) -> &str {
                &item.identity
            }

            async fn perform(&self, items: &[Held]) -> Result<Vec<Option<Kept>>, LedgerError> {
                self.ledger.$call(&grants(items)).await
            }

            fn unheard(&self, item: Held, answer: Kept) {
                if answer == Kept::Refused {
                    $name::refused_late(item.grant());
                }
            }

            fn refused(&self, item: &Held, why: &str) -> Option<Kept> {
                let grant = item.grant();
                tracing::error!(task_type = %grant.task_type, why, kind = $kind, "the ledger refuses what became of a key");
                Some(Kept::Refused)
            }
        }
    };
}

results!(Completions, complete, "complete", "ledger completions");
results!(Releases, release, "release", "ledger releases");

impl Completions {
    /// Acknowledged already: all that can be done is to say so.
    fn refused_late(grant: &Grant) {
        metrics::late_result_refused(&grant.task_type);
        tracing::warn!(task_type = %grant.task_type, "a success that was acknowledged while the ledger was away is not recorded: its key has another owner");
    }
}

impl Releases {
    /// It was free already.
    fn refused_late(_: &Grant) {}
}

/// What became of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::worker) enum Completed {
    Recorded,
    /// The key has another owner, or its row is gone.
    Refused,
    /// The ledger is away; it is told in the background.
    Unanswered,
}

/// The keys as stations use them; cheap to clone.
#[derive(Clone)]
pub(in crate::worker) struct Keys {
    ledger: Arc<dyn Ledger>,
    claims: Batcher<Claims>,
    completions: Batcher<Completions>,
    releases: Batcher<Releases>,
    leases: Leases,
    /// This process, by a name that no other has.
    process: Arc<str>,
    serial: Arc<AtomicU64>,
    hurry: CancellationToken,
}

/// What works behind [`Keys`].
pub(in crate::worker) struct KeyLoops {
    claims: BatchLoop<Claims>,
    completions: BatchLoop<Completions>,
    releases: BatchLoop<Releases>,
    leases: Leases,
    ledger: Arc<dyn Ledger>,
    health: Health,
}

/// The keys of `ledger` and what works behind them, whose parts `health` shows.
pub(in crate::worker) fn keys(
    ledger: Arc<dyn Ledger>,
    health: &Health,
    hurry: CancellationToken,
) -> (Keys, KeyLoops) {
    for part in [Claims::PART, Completions::PART, Releases::PART] {
        health.expect(part);
    }
    let leases = Leases::default();
    let completions = Completions {
        ledger: ledger.clone(),
    };
    let (completions, completing) = batcher(completions, RESULTS, health.clone());
    let releases = Releases {
        ledger: ledger.clone(),
    };
    let (releases, releasing) = batcher(releases, RESULTS, health.clone());
    let claims = Claims {
        ledger: ledger.clone(),
        releases: releases.clone(),
        leases: leases.clone(),
    };
    let (claims, claiming) = batcher(claims, CLAIMS, health.clone());
    let keys = Keys {
        ledger: ledger.clone(),
        claims,
        completions,
        releases,
        leases: leases.clone(),
        process: format!("{}/{:016x}", std::process::id(), rand::random::<u64>()).into(),
        serial: Arc::default(),
        hurry,
    };
    let loops = KeyLoops {
        claims: claiming,
        completions: completing,
        releases: releasing,
        leases,
        ledger,
        health: health.clone(),
    };
    (keys, loops)
}

/// What the ledger says to a claim, with what a granted one needs.
pub(in crate::worker) enum Answer {
    Granted(Held),
    Done,
    Held(Duration),
}

impl Keys {
    /// Claims a key, however long the ledger is away. Dropped before it ends, the key counts as not claimed.
    pub(in crate::worker) async fn claim(
        &self,
        task_type: &Arc<str>,
        key: &Arc<str>,
        task_id: &str,
        lease: Duration,
    ) -> Answer {
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        let wanted = Wanted {
            task_type: task_type.clone(),
            key: key.clone(),
            task_id: task_id.to_owned(),
            owner: format!("{}#{serial}", self.process),
            lease,
        };
        let claiming = Claiming {
            // A space is in no task type.
            identity: format!("{task_type} {key}"),
            wanted,
        };
        loop {
            let Some(answer) = self.claims.submit(claiming.clone()).await else {
                // The loop ends after all stations only.
                return std::future::pending().await;
            };
            // No answer: the ledger panicked. Ask again.
            return match answer.await {
                Err(_) => continue,
                Ok(KeyVerdict::Granted { fence }) => {
                    Answer::Granted(Held::new(grant(&claiming.wanted, fence), &self.leases))
                }
                Ok(KeyVerdict::Done) => Answer::Done,
                Ok(KeyVerdict::Held(left)) => Answer::Held(left),
            };
        }
    }

    /// What a handler is to work in, anew for each entry of one.
    pub(in crate::worker) fn effect(&self) -> Option<Box<dyn Effect>> {
        self.ledger.effect()
    }

    /// Records success, and waits a bounded time for the answer.
    pub(in crate::worker) async fn complete(&self, held: Held) -> Completed {
        match self.tell(&self.completions, held, PATIENCE).await {
            Some(Kept::Yes) => Completed::Recorded,
            Some(Kept::Refused) => Completed::Refused,
            None => {
                metrics::ledger_result_late();
                Completed::Unanswered
            }
        }
    }

    /// Frees the key, and waits a short time for the answer: a retry that finds it held waits for the lease.
    pub(in crate::worker) async fn release(&self, held: Held) {
        self.tell(&self.releases, held, RELEASE_PATIENCE).await;
    }

    async fn tell<S>(&self, batcher: &Batcher<S>, held: Held, patience: Duration) -> Option<Kept>
    where
        S: Statement<Item = Held, Answer = Kept>,
    {
        let told = async {
            // No answer: the ledger panicked. What it was told is lost, and told again.
            loop {
                if let Ok(kept) = batcher.submit(held.clone()).await?.await {
                    return Some(kept);
                }
            }
        };
        tokio::select! {
            biased;
            kept = told => kept,
            () = tokio::time::sleep(patience) => None,
            () = async {
                self.hurry.cancelled().await;
                tokio::time::sleep(LAST_PATIENCE).await;
            } => None,
        }
    }
}

impl KeyLoops {
    /// Works until every user of the keys is gone and everything is told. Dropped, it stops renewing too.
    pub(in crate::worker) async fn run(self) {
        let _renewing = self.leases.renew_beside(self.ledger, self.health);
        tokio::join!(self.claims.run(), self.completions.run(), self.releases.run());
    }
}
