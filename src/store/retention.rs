//! Deletes what has been kept long enough, a small batch per transaction.
//!
//! May import: `core`, sqlx. A batch waits for no lock and holds its own for milliseconds: rows that somebody else
//! has locked are left for later. One instance at a time deletes (a lock that ends with the transaction). If the
//! process dies between two batches, the next run begins where the rows begin. Rows that wait (`PENDING`) are in
//! none of the indexes read here.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, PgPool};

use super::{StoreError, connect::begin};

/// Key of the lock that lets one instance at a time delete.
const TURN: i64 = 0x7469_6465_7072_756e;

/// Rows that are kept equally long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kept {
    /// Tasks in `SUCCESS`.
    Success,
    /// Tasks in `FAILED`.
    Failed,
    /// Tasks in `CANCELED`.
    Canceled,
    /// Tasks handed over of whose end nobody has told: `PUBLISHED`, `RUNNING`, `RETRYING`.
    Unreported,
    /// Records of cron occurrences.
    CronFires,
    /// Idempotency keys: done, or claimed and not renewed.
    Executions,
}

impl Kept {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Success,
        Self::Failed,
        Self::Canceled,
        Self::Unreported,
        Self::CronFires,
        Self::Executions,
    ];

    /// The name in settings, logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
            Self::Unreported => "unreported",
            Self::CronFires => "cron_fires",
            Self::Executions => "executions",
        }
    }

    fn states(self) -> &'static [&'static str] {
        match self {
            Self::Success => &["SUCCESS"],
            Self::Failed => &["FAILED"],
            Self::Canceled => &["CANCELED"],
            Self::Unreported => &["PUBLISHED", "RUNNING", "RETRYING"],
            Self::CronFires | Self::Executions => &[],
        }
    }
}

/// How far a walk through the settled tasks has come: everything older has been looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Position(Option<(DateTime<Utc>, String)>);

/// What became of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pruned {
    /// Another instance is at it.
    TakenByOther,
    /// Rows were looked at.
    Batch {
        /// Rows deleted.
        deleted: u64,
        /// Rows that were old enough and locked by somebody.
        locked: u64,
        /// Whether there is more to look at.
        more: bool,
        /// Where to go on; unchanged for those that are no tasks.
        position: Position,
    },
}

/// Access for pruning.
#[derive(Clone, Copy, Debug)]
pub struct Retention<'a> {
    pool: &'a PgPool,
}

impl<'a> Retention<'a> {
    pub(super) fn new(pool: &'a PgPool) -> Self {
        Self { pool }
    }

    /// Deletes from the next `batch` rows beyond `from` those of `kept` that are older than `keep`, by the
    /// database's clock. For tasks the batch counts the rows looked at: they are read by age, whatever their state.
    pub async fn prune(
        &self,
        kept: Kept,
        keep: Duration,
        from: &Position,
        batch: u32,
    ) -> Result<Pruned, StoreError> {
        let mut tx = begin(self.pool).await?;
        let turn: bool = sqlx::query_scalar("SELECT pg_try_advisory_xact_lock($1)")
            .bind(TURN)
            .fetch_one(&mut *tx)
            .await?;
        if !turn {
            return Ok(Pruned::TakenByOther);
        }
        let pruned = match kept {
            Kept::CronFires => {
                // The index by age is a BRIN, which is read by a bitmap only.
                sqlx::query("SET LOCAL enable_bitmapscan = on")
                    .execute(&mut *tx)
                    .await?;
                deleted(&mut tx, CRON_FIRES, keep, batch, from).await?
            }
            Kept::Executions => deleted(&mut tx, EXECUTIONS, keep, batch, from).await?,
            _ => {
                let (at, id) = from.0.clone().unzip();
                let (seen, old, deleted, at, id): (i64, i64, i64, Option<DateTime<Utc>>, Option<String>) =
                    sqlx::query_as(TASKS)
                        .bind(kept.states())
                        .bind(keep.as_secs_f64())
                        .bind(at.unwrap_or(DateTime::UNIX_EPOCH))
                        .bind(id.unwrap_or_default())
                        .bind(i64::from(batch))
                        .fetch_one(&mut *tx)
                        .await?;
                Pruned::Batch {
                    deleted: deleted.unsigned_abs(),
                    locked: (old - deleted).unsigned_abs(),
                    more: seen >= i64::from(batch),
                    position: Position(at.zip(id).or_else(|| from.0.clone())),
                }
            }
        };
        tx.commit().await?;
        Ok(pruned)
    }
}

/// Deletes by a statement that takes how long rows are kept, in seconds, and how many it may delete.
async fn deleted(
    tx: &mut PgConnection,
    sql: &'static str,
    keep: Duration,
    batch: u32,
    from: &Position,
) -> Result<Pruned, StoreError> {
    let deleted = sqlx::query(sql)
        .bind(keep.as_secs_f64())
        .bind(i64::from(batch))
        .execute(tx)
        .await?
        .rows_affected();
    Ok(Pruned::Batch {
        deleted,
        locked: 0,
        more: deleted >= u64::from(batch),
        position: from.clone(),
    })
}

const CRON_FIRES: &str = "DELETE FROM tidegate.cron_fires WHERE ctid = ANY (ARRAY(\
       SELECT ctid FROM tidegate.cron_fires WHERE recorded_at < now() - interval '1 second' * $1 \
       LIMIT $2 FOR UPDATE SKIP LOCKED))";

/// Age counts from the end of the run or of the lease; the index is by the start, which is never later.
const EXECUTIONS: &str = "DELETE FROM tidegate.executions WHERE ctid = ANY (ARRAY(\
       SELECT ctid FROM tidegate.executions WHERE started_at < now() - interval '1 second' * $1 \
         AND coalesce(finished_at, lease_until) < now() - interval '1 second' * $1 \
       ORDER BY started_at LIMIT $2 FOR UPDATE SKIP LOCKED))";

/// States ($1) kept for seconds ($2), from the instant ($3) and task id ($4) on, rows looked at ($5).
///
/// Age counts from the end; where nobody told of it from the hand-over, or from the last start if that was later.
const TASKS: &str = "WITH seen AS MATERIALIZED (\
       SELECT task_id, coalesce(finished_at, published_at) AS since, \
         state = ANY ($1) AND greatest(finished_at, published_at, started_at) < now() - interval '1 second' * $2 AS old \
       FROM tidegate.tasks \
       WHERE ready_at IS NULL AND coalesce(finished_at, published_at) >= $3 \
         AND (coalesce(finished_at, published_at), task_id) > ($3, $4) \
         AND coalesce(finished_at, published_at) < now() - interval '1 second' * $2 \
       ORDER BY coalesce(finished_at, published_at), task_id LIMIT $5\
     ), held AS MATERIALIZED (\
       SELECT task_id FROM tidegate.tasks WHERE task_id = ANY (ARRAY(SELECT task_id FROM seen WHERE old)) FOR UPDATE SKIP LOCKED\
     ), deleted AS (\
       DELETE FROM tidegate.tasks WHERE task_id = ANY (ARRAY(SELECT task_id FROM held)) AND state = ANY ($1) \
         AND greatest(finished_at, published_at, started_at) < now() - interval '1 second' * $2 RETURNING 1\
     ), last AS (\
       SELECT since, task_id FROM seen ORDER BY since DESC, task_id DESC LIMIT 1\
     ) \
     SELECT (SELECT count(*) FROM seen), (SELECT count(*) FROM seen WHERE old), (SELECT count(*) FROM deleted), \
       (SELECT since FROM last), (SELECT task_id FROM last)";
