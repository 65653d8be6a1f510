//! What a worker asks of the ledger and tells it. The worker knows no database: whoever builds it hands in a
//! [`Ledger`], such as [`crate::ledger::PostgresLedger`].
//!
//! May import: `core`, `batcher`. A worker asks before it starts a task that came from the ledger, and tells how it
//! ended before it acknowledges, so what the ledger says is never ahead of what happened. Both go in batches.
//! Killed after a claim, the task is `RUNNING` until the broker delivers it again, and is claimed anew; killed after
//! a result, it is delivered again, and a task that had succeeded is then acknowledged without running. The same holds
//! for idempotency keys, whose claims end with a lease.

pub(super) mod client;
pub(super) mod keys;
pub(super) mod leases;

use std::{any::Any, sync::Arc, time::Duration};

use async_trait::async_trait;
pub use tidegate_core::lifecycle::End;

pub use crate::batcher::LedgerError;

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

/// An idempotency key that is to be claimed before its task is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Task type; a key is of its type.
    pub task_type: Arc<str>,
    /// The key, at most 1,024 bytes.
    pub key: Arc<str>,
    /// The task that wants it.
    pub task_id: String,
    /// Names this claim, at most 255 bytes: sent again, it is granted again.
    pub owner: String,
    /// How long it holds unless it is renewed.
    pub lease: Duration,
}

/// What the ledger says to a [`Wanted`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyVerdict {
    /// Run. The number is greater than that of any earlier claim of this key.
    Granted {
        /// Without it nothing can be said about the key.
        fence: i64,
    },
    /// The key was processed to success before.
    Done,
    /// Somebody else has it, for so long unless they renew it.
    Held(Duration),
}

/// A granted claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Task type.
    pub task_type: Arc<str>,
    /// The key.
    pub key: Arc<str>,
    /// The number from [`KeyVerdict::Granted`].
    pub fence: i64,
    /// How long it holds once it is renewed.
    pub lease: Duration,
}

/// What a ledger answers to a completion, a release or a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It is as asked for.
    Yes,
    /// The key is no longer held under this number.
    Refused,
}

/// What became of a handler's [`Effect`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Committed {
    /// The handler did not use it: there is nothing to commit, and success is still to be recorded.
    Unused,
    /// Committed, and with it that the key is done.
    Yes,
    /// The key is no longer held: rolled back.
    Refused,
    /// It can't be committed and was rolled back: a failed attempt.
    Failed(String),
    /// The ledger went away meanwhile: nobody knows, until the key is claimed again.
    Unknown(String),
}

/// Something that a handler finds in its context, such as a transaction of the ledger, so that its effect and the record
/// that its key is done become durable together. One per entry of a handler; dropped, it is undone.
#[async_trait]
pub trait Effect: Send + Sync {
    /// What the handler finds, by [`Context::beside`](crate::worker::Context::beside).
    fn extension(&self) -> Arc<dyn Any + Send + Sync>;

    /// Records that the key of `grant` is done and makes that durable with what the handler did.
    async fn commit(&self, grant: &Grant) -> Committed;
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

    /// Claims idempotency keys. Answers in their order; `None` as in [`start`](Self::start).
    async fn claim(&self, wanted: &[Wanted]) -> Result<Vec<Option<KeyVerdict>>, LedgerError>;

    /// Records keys as done. Answers in their order; `None` as in [`start`](Self::start).
    async fn complete(&self, grants: &[Grant]) -> Result<Vec<Option<Kept>>, LedgerError>;

    /// Frees keys whose run has failed. Answers in their order; `None` as in [`start`](Self::start).
    async fn release(&self, grants: &[Grant]) -> Result<Vec<Option<Kept>>, LedgerError>;

    /// Lets claims hold for another lease. Answers in their order; `None` as in [`start`](Self::start). Called on what
    /// [`apart`](Self::apart) returns.
    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Option<Kept>>, LedgerError>;

    /// The same ledger for use in the tokio runtime that calls this. It shares no connection with others: handlers may
    /// block every thread of the runtime that drives those, and leases are renewed all the same.
    fn apart(&self) -> Arc<dyn Ledger>;

    /// What a handler is to work in whose type has `idempotency = "database"`; `None`: this ledger has no such thing.
    fn effect(&self) -> Option<Box<dyn Effect>> {
        None
    }
}
