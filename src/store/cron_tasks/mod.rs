//! Cron rows: read, decided by whoever reads them, and written back in one statement.
//!
//! May import: `core`, sqlx. The protocol is [`CronTasks::due`] → decide → [`CronTasks::write`]. Nothing is locked in
//! between, so a process that freezes or dies there keeps no row from the others; [`write`](CronTasks::write) takes a
//! decision only if the row is still at the version that was read, and only within [`FRESH`]. Dying anywhere before
//! it leaves every row as it was, still due; the write moves `next_fire_at`, records the occurrences and inserts
//! their tasks all at once.

mod read;
mod row;
mod write;

use chrono::{DateTime, Utc};
use sqlx::PgPool;
use tidegate_core::cron::Span;

pub use read::Batch;
pub use row::CronTask;
pub(super) use row::named;
pub use write::{FRESH, Written};

use super::{NextDue, StoreError, tasks::NewTask};

/// Rows are spread over this many shards, by their id.
pub const SHARDS: usize = 16;

/// What a scheduler sends all the time, by name: for whoever wants to see how the database carries it out.
pub const STATEMENTS: [(&str, &str); 5] = [
    ("due", read::DUE),
    ("uninitialised", read::UNINITIALISED),
    ("next_due", NEXT_DUE),
    ("in_error", IN_ERROR),
    ("write", write::WRITE),
];

/// What to write back for one row.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The row's key.
    pub id: i64,
    /// The row's name, for whoever reads the log.
    pub name: String,
    /// The version that was read.
    pub version: i64,
    /// What became of it.
    pub verdict: Verdict,
    /// Occurrences to record, in order.
    pub fires: Vec<Fire>,
}

/// When a row fires next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// At this instant.
    Next(DateTime<Utc>),
    /// Never again, as its `ends_at` says.
    Exhausted,
    /// Not before its definition changes, because of this.
    Broken(String),
}

/// Occurrences that share an outcome, and the task of one that fires.
#[derive(Clone, Debug)]
pub struct Fire {
    /// Which, and what became of them.
    pub span: Span,
    /// Its task, if one is sent.
    pub task: Option<NewTask>,
}

/// What a write did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    /// Rows written back.
    pub rows: usize,
    /// Rows that somebody else had changed, or was changing: nothing was recorded for them.
    pub lost: usize,
    /// Occurrences recorded.
    pub fires: Vec<Span>,
    /// Occurrences recorded whose task's id stands for something else.
    pub taken: Vec<Taken>,
}

/// A task that could not be sent: its id stands for a task of another type or origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The cron row's key.
    pub id: i64,
    /// The id.
    pub task_id: String,
}

/// Access to `tidegate.cron_tasks` and `tidegate.cron_fires`.
#[derive(Clone, Copy, Debug)]
pub struct CronTasks<'a> {
    pool: &'a PgPool,
}

impl<'a> CronTasks<'a> {
    pub(super) fn new(pool: &'a PgPool) -> Self {
        Self { pool }
    }

    /// When the next row is due, other than the rows `but`; it may have been for a while.
    pub async fn next_due(&self, but: &[i64]) -> Result<Option<NextDue>, StoreError> {
        self.next(false, but).await
    }

    /// When a row is due next of those that are not due yet.
    pub async fn next_in_future(&self) -> Result<Option<NextDue>, StoreError> {
        self.next(true, &[]).await
    }

    async fn next(&self, in_future: bool, but: &[i64]) -> Result<Option<NextDue>, StoreError> {
        let next: Option<(DateTime<Utc>, DateTime<Utc>)> = sqlx::query_as(NEXT_DUE)
            .bind(in_future)
            .bind(but)
            .fetch_optional(self.pool)
            .await?;
        Ok(next.map(|(at, now)| NextDue::new(at, now)))
    }

    /// How many rows that are switched on can't be scheduled.
    pub async fn in_error(&self) -> Result<u64, StoreError> {
        let count: i64 = sqlx::query_scalar(IN_ERROR).fetch_one(self.pool).await?;
        Ok(count.unsigned_abs())
    }

    /// Flags a row that was read at `version`, and leaves it alone until its definition changes.
    pub async fn mark_error(&self, id: i64, version: i64, error: &str) -> Result<(), StoreError> {
        sqlx::query(
            "UPDATE tidegate.cron_tasks SET next_fire_at = NULL, kept_fire_at = NULL, last_error = $3, version = version + 1 \
             WHERE id = $1 AND version = $2",
        )
        .bind(id)
        .bind(version)
        .bind(error)
        .execute(self.pool)
        .await?;
        Ok(())
    }

    /// Says in `last_error` what went wrong with an occurrence; the row goes on firing, and the next one that is sent
    /// clears it.
    pub async fn tell(&self, id: i64, error: &str) -> Result<(), StoreError> {
        sqlx::query("UPDATE tidegate.cron_tasks SET last_error = $2, version = version + 1 WHERE id = $1")
            .bind(id)
            .bind(error)
            .execute(self.pool)
            .await?;
        Ok(())
    }
}

// The first of each shard is the first entry of the index for it; the first of all of them is the least of sixteen.
const NEXT_DUE: &str = "SELECT n.at, clock_timestamp() FROM (SELECT min(first.next_fire_at) AS at \
     FROM generate_series(0::bigint, 15) AS s (shard) CROSS JOIN LATERAL ( \
       SELECT c.next_fire_at FROM tidegate.cron_tasks c \
       WHERE c.enabled AND c.next_fire_at IS NOT NULL AND (c.id & 15) = s.shard AND c.id <> ALL ($2::bigint[]) \
         AND c.next_fire_at > CASE WHEN $1::boolean THEN now() ELSE '-infinity' END \
       ORDER BY c.next_fire_at LIMIT 1) AS first) AS n WHERE n.at IS NOT NULL";

const IN_ERROR: &str = "SELECT count(*) FROM tidegate.cron_tasks WHERE enabled AND last_error IS NOT NULL";
