//! What the parts of a run share while it is worked on: when to end, what to tell, what was refused.
//!
//! May import: `core`, `store` (its rows and errors).

use std::sync::{Mutex, PoisonError};

use chrono::{DateTime, TimeDelta, Utc};
use tidegate_core::{
    dead_letter::DeadLetterId,
    replay::plan::{Batch, Outcomes},
};
use tokio_util::sync::CancellationToken;

use super::told::{Event, Progress, Refusals, Tell};
use crate::store::{StoreError, dead_letters::runs::RunRow};

/// Why the work on a run was broken off.
#[derive(Debug)]
pub(super) enum Fault {
    Store(StoreError),
    TakenOver,
    /// This process shall let go of the run.
    LetGo,
    /// The run can never go on.
    Impossible(String),
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// What the parts of a run share.
pub(super) struct Watched<'w> {
    /// The run shall end.
    pub(super) stop: &'w CancellationToken,
    /// Only this process shall.
    pub(super) let_go: &'w CancellationToken,
    tell: Tell<'w>,
    progress: Mutex<Progress>,
    refusals: Mutex<Refusals>,
    broken: Mutex<Option<String>>,
    /// How far the database's clock is before ours.
    ahead: Mutex<TimeDelta>,
}

impl<'w> Watched<'w> {
    pub(super) fn new(stop: &'w CancellationToken, let_go: &'w CancellationToken, tell: Tell<'w>) -> Self {
        Self {
            stop,
            let_go,
            tell,
            progress: Mutex::default(),
            refusals: Mutex::default(),
            broken: Mutex::default(),
            ahead: Mutex::new(TimeDelta::zero()),
        }
    }

    /// Whether nothing new is begun.
    pub(super) fn is_over(&self) -> bool {
        self.stop.is_cancelled() || self.let_go.is_cancelled()
    }

    pub(super) async fn over(&self) {
        tokio::select! {
            () = self.stop.cancelled() => {}
            () = self.let_go.cancelled() => {}
        }
    }

    /// The database's time, about.
    pub(super) fn now(&self) -> DateTime<Utc> {
        Utc::now() + *lock(&self.ahead)
    }

    pub(super) fn refused(&self, id: DeadLetterId, why: &str) {
        lock(&self.refusals).add(id, why);
        (self.tell)(&Event::Refused { id, why });
    }

    pub(super) fn trouble(&self, why: &str) {
        tracing::warn!(why, "a replay can't go on for now");
        (self.tell)(&Event::Trouble(why));
    }

    /// Something is wrong that concerns every message.
    pub(super) fn broken(&self, why: &str) {
        lock(&self.broken).get_or_insert_with(|| why.to_owned());
    }

    pub(super) fn is_broken(&self) -> bool {
        lock(&self.broken).is_some()
    }

    /// What is wrong, if anything is; it is told once.
    pub(super) fn what_is_broken(&self) -> Option<String> {
        lock(&self.broken).take()
    }

    pub(super) fn progress(&self) -> Progress {
        *lock(&self.progress)
    }

    pub(super) fn refusals(&self) -> Refusals {
        lock(&self.refusals).clone()
    }

    pub(super) fn watching(&self, until: DateTime<Utc>, outcomes: Outcomes) {
        (self.tell)(&Event::Watching { until, outcomes });
    }

    pub(super) fn advance(&self, batch: &Batch) {
        let now = {
            let mut progress = lock(&self.progress);
            progress.sent += batch.sent;
            progress.refused += batch.refused;
            *progress
        };
        (self.tell)(&Event::Progress(now));
    }

    pub(super) fn begin(&self, row: &RunRow) {
        *lock(&self.ahead) = row.now - Utc::now();
        *lock(&self.progress) = Progress {
            planned: row.planned,
            sent: row.sent,
            refused: row.refused,
        };
    }
}

/// No code panics while it holds one of these.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
