//! What a worker asks of the ledger and tells it. The worker knows no database: whoever builds it hands in a
//! [`Ledger`], such as [`crate::ledger::PostgresLedger`].
//!
//! May import: `core`. A worker asks before it starts a task that came from the ledger, and tells how it
//! ended before it acknowledges, so what the ledger says is never ahead of what happened. Both go in batches.
//! Killed after a claim, the task is `RUNNING` until the broker delivers it again, and is claimed anew; killed after
//! a result, it is delivered again, and a task that had succeeded is then acknowledged without running.

pub(super) mod batch;
pub(super) mod client;

use async_trait::async_trait;
pub use tidegate_core::lifecycle::End;

/// The ledger failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// It is away or not ready: the same call may succeed later.
    #[error("{0}")]
    Away(String),
    /// It refuses this call, and would again.
    #[error("{0}")]
    Refused(String),
}

/// A delivery that is to be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The task.
    pub task_id: String,
    /// The business queue it was delivered by; the high lane counts as its queue.
    pub queue: String,
}

/// What the ledger says to an [`Ask`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Start it. `run` numbers this start for the [`Report`]; `None`: nothing needs to be reported, because the
    /// ledger doesn't know the task, or follows its delivery by another queue.
    Start {
        /// Number of this start.
        run: Option<i32>,
    },
    /// It was cancelled: don't start it.
    Canceled,
    /// This queue has had it to success: don't start it again.
    Done,
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The task.
    pub task_id: String,
    /// The business queue it was delivered by.
    pub queue: String,
    /// The number from [`Verdict::Start`]; `None` where it ended without having been started.
    pub run: Option<i32>,
    /// How it ended.
    pub end: End,
    /// Why, as it travels in headers: bounded, and without a NUL character.
    pub error: Option<String>,
}

/// The ledger as a worker needs it. Calls come one at a time per kind, never with the same task twice, and with at
/// most 200 tasks. They must not wait for one task at the others' cost, and must end: each is given up after 15 s.
#[async_trait]
pub trait Ledger: Send + Sync {
    /// Claims deliveries. Answers in their order: `None` says that somebody else is changing the task at this moment,
    /// ask again. An empty call asks only whether the ledger is there.
    async fn start(&self, asked: &[Ask]) -> Result<Vec<Option<Verdict>>, LedgerError>;

    /// Writes results down. Answers in their order: `false` says to tell it again later. May be called again with
    /// what has been written already.
    async fn report(&self, reports: &[Report]) -> Result<Vec<bool>, LedgerError>;

    /// Which of these running tasks somebody has asked to cancel.
    async fn cancel_requested(&self, task_ids: &[String]) -> Result<Vec<String>, LedgerError>;
}
