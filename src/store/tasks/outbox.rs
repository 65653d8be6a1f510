//! The outbox: due tasks locked, handed over to the broker, taken back.
//!
//! May import: `core`, sqlx. Handing over is [`Tasks::lock_due`] → [`Handover::announce`] → publish →
//! [`Handover::settle`]. The locked rows stay `PENDING` until the commit, so there is no lease to wait for: a process
//! that dies before it has published nothing, or has published what will be published again under the same task id.
//! Postgres frees the locks when the connection ends; if the process is frozen, as soon as nothing was heard of it for
//! longer than a hand-over takes.
//!
//! `announce` commits the ids to `tidegate.handovers` over another connection, then makes sure that the locks are
//! still held. So whoever holds the lock of a `PENDING` row and finds it in no announcement knows that no relay has sent
//! it or is about to: that is what the answer of `tidegate.cancel` rests on. Dying
//! - before the announcement: nothing has been sent;
//! - after it: the announcement stays, and cancel says that the broker may have the task, until none of those announced
//!   waits any more.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use sqlx::{FromRow, Postgres, Transaction, pool::PoolConnection};

use super::{
    Tasks,
    settle::{self, Held, Refused},
    unwritten::Unwritten,
};
use crate::store::{NextDue, StoreError, connect::begin, error::is_about_a_row};

/// A locked row that is due.
#[derive(Clone, Debug, FromRow)]
pub struct DueTask {
    /// Unique id.
    pub task_id: String,
    /// Type.
    pub task_type: String,
    /// Exchange; `None` is the platform's.
    pub exchange: Option<String>,
    /// Routing key; `None` is the type.
    pub routing_key: Option<String>,
    /// The envelope's text.
    pub envelope: String,
    /// 0 to 255, as a CHECK holds.
    pub priority: i16,
    /// `producer`.
    pub producer: Option<String>,
    /// `traceId`.
    pub trace_id: Option<String>,
    /// How it came in.
    pub origin: String,
    /// Planned time.
    pub due_at: DateTime<Utc>,
    /// Failed hand-overs so far.
    pub publish_attempts: i32,
    /// When it was to be tried again, if one failed.
    pub next_try_at: Option<DateTime<Utc>>,
}

/// A hand-over that failed: the task waits, then it is tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The task.
    pub task_id: String,
    /// Why.
    pub error: String,
    /// Wait before the next try.
    pub after: Duration,
    /// Whether the broker may have it all the same.
    pub maybe_sent: bool,
}

/// A task that can never be sent as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAside {
    /// The task.
    pub task_id: String,
    /// Why.
    pub error: String,
}

/// What became of the tasks of a hand-over. Those named nowhere stay due.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settlement {
    /// Confirmed by the broker.
    pub published: Vec<String>,
    /// To be tried again.
    pub failures: Vec<Failure>,
    /// Never to be tried again, unless somebody promotes them.
    pub set_aside: Vec<SetAside>,
}

/// Locked due tasks and the transaction that holds them; dropped unsettled, the rows are due as before.
#[derive(Debug)]
pub struct Handover {
    tx: Transaction<'static, Postgres>,
    tasks: Vec<DueTask>,
    /// For the announcement; given back once it is made.
    announcer: Option<PoolConnection<Postgres>>,
    /// The row that says that these tasks are being sent.
    announced: Option<i64>,
    /// Where what can't be written is remembered.
    unwritten: Arc<Unwritten>,
}

impl Tasks<'_> {
    /// When the next task is due. Includes tasks that another relay holds at this moment, and none of which this process
    /// remembers that they are not to be sent.
    pub async fn next_due(&self) -> Result<Option<NextDue>, StoreError> {
        let next: Option<(DateTime<Utc>, DateTime<Utc>)> = sqlx::query_as(
            "SELECT ready_at, clock_timestamp() FROM tidegate.tasks WHERE ready_at IS NOT NULL AND task_id <> ALL ($1) \
             ORDER BY ready_at LIMIT 1",
        )
        .bind(self.unwritten.not_to_send())
        .fetch_optional(self.pool)
        .await?;
        Ok(next.map(|(at, now)| NextDue::new(at, now)))
    }

    /// Locks up to `limit` due tasks, those due longest first, leaving out what others have locked and what is not to be
    /// sent.
    pub async fn lock_due(&self, limit: i64) -> Result<Handover, StoreError> {
        // First of all: rows must not stay locked while a connection is opened.
        let announcer = self.pool.acquire().await?;
        let mut tx = begin(self.pool).await?;
        let tasks = sqlx::query_as(
            "SELECT task_id, task_type, exchange, routing_key, envelope, priority, producer, trace_id, origin, \
             due_at, publish_attempts, next_try_at FROM tidegate.tasks \
             WHERE ready_at <= now() AND task_id <> ALL ($2) ORDER BY ready_at LIMIT $1 FOR UPDATE SKIP LOCKED",
        )
        .bind(limit)
        .bind(self.unwritten.not_to_send())
        .fetch_all(&mut *tx)
        .await?;
        Ok(Handover {
            tx,
            tasks,
            announcer: Some(announcer),
            announced: None,
            unwritten: Arc::clone(self.unwritten),
        })
    }

    /// A task that was sent turned out to be taken by no queue: it waits in the ledger again, to be handed over after a
    /// growing wait (1 s to 5 min). Returns whether the ledger has it now; `false` means that it never had it, that the
    /// task has gone on (it runs, ended or was cancelled), or that the row can't be written so: it is `FAILED` then, or
    /// will be once it can be written.
    pub async fn unroutable(&self, task_id: &str, error: &str) -> Result<bool, StoreError> {
        let mut tx = begin(self.pool).await?;
        // The message can be back before the relay has committed that it went: wait for its lock, then look.
        let state: Option<String> =
            sqlx::query_scalar("SELECT state FROM tidegate.tasks WHERE task_id = $1 FOR UPDATE")
                .bind(task_id)
                .fetch_optional(&mut *tx)
                .await?;
        if !matches!(state.as_deref(), Some("PUBLISHED" | "PENDING")) {
            return Ok(false);
        }
        sqlx::raw_sql("SAVEPOINT sent").execute(&mut *tx).await?;
        // The first that the row takes. A relay that remembers the task as sent sees by the time that it is moved.
        for (statement, has_it) in [(BACK, true), (FAILED, false), (NOTED, false)] {
            let done = sqlx::query(statement)
                .bind(task_id)
                .bind(error)
                .execute(&mut *tx)
                .await;
            match done {
                Ok(_) => {
                    tx.commit().await?;
                    return Ok(has_it);
                }
                Err(error) if is_about_a_row(&error) => {
                    sqlx::raw_sql("ROLLBACK TO SAVEPOINT sent")
                        .execute(&mut *tx)
                        .await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(false)
    }

    /// Forgets the announcements of relays that died, task by task as soon as one doesn't wait any more; returns how many
    /// are gone as a whole. Those of the last two minutes are left: no hand-over takes that long.
    pub async fn forget_announcements(&self) -> Result<u64, StoreError> {
        let gone: i64 = sqlx::query_scalar(
            "WITH old AS MATERIALIZED (\
               SELECT h.id, h.task_ids, ARRAY(SELECT t.task_id FROM tidegate.tasks t \
                 WHERE t.task_id = ANY (h.task_ids) AND t.ready_at IS NOT NULL) AS waiting \
               FROM tidegate.handovers h WHERE h.started_at < clock_timestamp() - interval '2 minutes' \
               FOR UPDATE OF h SKIP LOCKED\
             ), gone AS (\
               DELETE FROM tidegate.handovers h USING old WHERE h.id = old.id AND cardinality(old.waiting) = 0 RETURNING h.id\
             ), shrunk AS (\
               UPDATE tidegate.handovers h SET task_ids = old.waiting FROM old \
               WHERE h.id = old.id AND cardinality(old.waiting) BETWEEN 1 AND cardinality(old.task_ids) - 1\
             ) SELECT count(*) FROM gone",
        )
        .fetch_one(self.pool)
        .await?;
        Ok(gone.unsigned_abs())
    }
}

/// Back to the ledger, which sends it again.
const BACK: &str = "UPDATE tidegate.tasks SET state = 'PENDING', published_at = NULL, last_error = $2, \
     publish_attempts = least(publish_attempts, 2147483646) + 1, next_try_at = clock_timestamp() \
       + least(interval '1 second' * 2 ^ least(publish_attempts, 10), interval '5 minutes') \
     WHERE task_id = $1";

/// A dead letter.
const FAILED: &str = "UPDATE tidegate.tasks SET state = 'FAILED', last_error = $2, finished_at = clock_timestamp(), \
     next_try_at = NULL WHERE task_id = $1";

/// A dead letter of which the relay learns that still has to write the row.
const NOTED: &str = "UPDATE tidegate.handovers SET unroutable = array_append(unroutable, $1) \
     WHERE $1 = ANY (task_ids) AND $1 <> ALL (unroutable) AND $2::text IS NOT NULL";

impl Handover {
    /// The locked tasks.
    pub fn tasks(&self) -> &[DueTask] {
        &self.tasks
    }

    /// Writes down that these tasks are about to be sent; to be called before the first of them is. From here on the
    /// locks go if nothing is heard of this process for longer than `limit`.
    ///
    /// # Errors
    /// Nothing may be sent then: the rows may be in other hands.
    pub async fn announce(&mut self, limit: Duration) -> Result<(), StoreError> {
        let Some(mut announcer) = self.announcer.take() else {
            return Ok(());
        };
        let ids: Vec<&str> = self.tasks.iter().map(|task| task.task_id.as_str()).collect();
        let announced =
            sqlx::query_scalar("INSERT INTO tidegate.handovers (task_ids) VALUES ($1) RETURNING id")
                .bind(ids)
                .fetch_one(&mut *announcer)
                .await?;
        drop(announcer);
        // Fails if the locks were lost meanwhile, as those of a process are that was frozen in between.
        let limit = limit.as_millis();
        let sql = format!("SET LOCAL idle_in_transaction_session_timeout = {limit}; SAVEPOINT sent");
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
            .execute(&mut *self.tx)
            .await?;
        self.announced = Some(announced);
        Ok(())
    }

    /// Writes down what became of the tasks, and commits. Answers which rows are to blame for not being written; the
    /// others are.
    ///
    /// # Errors
    /// Nothing is written, and what became of the tasks is remembered: see [`Tasks::write_back`].
    pub async fn settle(self, outcome: &Settlement) -> Result<Vec<Refused>, StoreError> {
        let Self {
            mut tx,
            tasks,
            announced,
            unwritten,
            ..
        } = self;
        let mut held = Held {
            unwritten,
            outcome,
            tasks: &tasks,
            refused: None,
        };
        if announced.is_none() {
            sqlx::raw_sql("SAVEPOINT sent").execute(&mut *tx).await?;
        }
        let refused = match settle::write(&mut tx, outcome).await {
            Ok(refused) => refused,
            Err(error) => {
                // At once, not when the pool gets to it: they are written by another connection.
                let _ = tx.rollback().await;
                return Err(error);
            }
        };
        if let Some(announced) = announced {
            // What is not written down stays announced: whoever cancels it is told that the broker may have it.
            let left: Vec<&str> = refused.iter().map(|one| one.task_id.as_str()).collect();
            let statement = if left.is_empty() {
                sqlx::query("DELETE FROM tidegate.handovers WHERE id = $1")
            } else {
                sqlx::query("UPDATE tidegate.handovers SET task_ids = $2 WHERE id = $1")
            };
            let statement = statement.bind(announced);
            let statement = if left.is_empty() {
                statement
            } else {
                statement.bind(left)
            };
            statement.execute(&mut *tx).await?;
        }
        tx.commit().await?;
        held.refused = Some(refused.iter().map(|one| one.task_id.clone()).collect());
        Ok(refused)
    }
}
