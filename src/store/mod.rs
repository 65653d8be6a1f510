//! The ledger: SQL adapter over Postgres, a file per table group.
//!
//! May import: `core`, sqlx. Never `broker` or `publish`: a transaction here can't wait for a socket there unless
//! the caller holds it open on purpose (see [`tasks::outbox`]).
//!
//! | module | what |
//! |---|---|
//! | [`audit`] | who did what to dead letters and replays, when and why |
//! | [`connect`] | the pool and what every session is set to |
//! | [`migrate`] | the embedded migrations |
//! | [`inspect`] | why the database can't be reached, and what is in it: for `doctor` |
//! | [`cron_tasks`] | cron rows: read, decided by the caller, and written back in one statement |
//! | [`cron_admin`] | cron rows as people keep them, and their history |
//! | [`tasks`] | tasks from insert to end: outbox, cancel and move, lists |
//! | [`life`] | a task after the hand-over: claimed, ended, asked to be cancelled |
//! | [`dead_letters`] | dead letters in the archive: looked at, discarded, replayed |
//! | [`digests`] | whose turn it is to send a digest, and its numbers |
//! | [`executions`] | idempotency keys: claimed, renewed, completed, released |
//! | [`retention`] | what has been kept long enough goes |
//! | [`vigil`] | whether the database answers and takes writes, and what must not be used after it did not |
//! | [`wake`] | `NOTIFY` as a wake-up that can be waited for |
//! | [`error`] | what a caller does about a failure |

pub mod audit;
pub mod connect;
pub mod cron_admin;
pub mod cron_tasks;
pub mod dead_letters;
pub mod digests;
pub mod error;
pub mod executions;
pub mod inspect;
pub mod life;
pub mod migrate;
pub mod retention;
pub mod tasks;
pub mod vigil;
pub mod wake;

pub use connect::{Store, StoreSettings};
pub use error::StoreError;

use std::time::Duration;

use chrono::{DateTime, Utc};

/// When something is due next, by the database's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextDue {
    /// The instant.
    pub at: DateTime<Utc>,
    /// How long until then, measured by the database; zero if it has passed.
    pub after: Duration,
}

impl NextDue {
    fn new(at: DateTime<Utc>, database_now: DateTime<Utc>) -> Self {
        Self {
            at,
            after: (at - database_now).to_std().unwrap_or_default(),
        }
    }
}
