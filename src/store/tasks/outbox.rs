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

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::{FromRow, Postgres, Transaction, pool::PoolConnection};

use super::Tasks;
use crate::store::{NextDue, StoreError, connect::begin};

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
}

impl Tasks<'_> {
    /// When the next task is due. Includes tasks that another relay holds at this moment.
    pub async fn next_due(&self) -> Result<Option<NextDue>, StoreError> {
        let next: Option<(DateTime<Utc>, DateTime<Utc>)> = sqlx::query_as(
            "SELECT ready_at, clock_timestamp() FROM tidegate.tasks WHERE ready_at IS NOT NULL ORDER BY ready_at LIMIT 1",
        )
        .fetch_optional(self.pool)
        .await?;
        Ok(next.map(|(at, now)| NextDue::new(at, now)))
    }

    /// Locks up to `limit` due tasks, those due longest first, leaving out what others have locked.
    pub async fn lock_due(&self, limit: i64) -> Result<Handover, StoreError> {
        // First of all: rows must not stay locked while a connection is opened.
        let announcer = self.pool.acquire().await?;
        let mut tx = begin(self.pool).await?;
        let tasks = sqlx::query_as(
            "SELECT task_id, task_type, exchange, routing_key, envelope, priority, producer, trace_id, origin, \
             due_at, publish_attempts FROM tidegate.tasks \
             WHERE ready_at <= now() ORDER BY ready_at LIMIT $1 FOR UPDATE SKIP LOCKED",
        )
        .bind(limit)
        .fetch_all(&mut *tx)
        .await?;
        Ok(Handover {
            tx,
            tasks,
            announcer: Some(announcer),
            announced: None,
        })
    }

    /// A published task turned out to be taken by no queue: it waits in the ledger again, to be handed over after a
    /// growing wait (1 s to 5 min). Returns whether the ledger has it now; `false` means that it never had it, or
    /// that the task has gone on (it runs, ended or was cancelled).
    pub async fn unroutable(&self, task_id: &str, error: &str) -> Result<bool, StoreError> {
        let mut tx = begin(self.pool).await?;
        // The message can be back before the relay has committed that it went: wait for its lock, then look.
        let state: Option<String> =
            sqlx::query_scalar("SELECT state FROM tidegate.tasks WHERE task_id = $1 FOR UPDATE")
                .bind(task_id)
                .fetch_optional(&mut *tx)
                .await?;
        if state.as_deref() == Some("PUBLISHED") {
            sqlx::query(
                "UPDATE tidegate.tasks SET state = 'PENDING', published_at = NULL, last_error = $2, \
                   publish_attempts = publish_attempts + 1, next_try_at = clock_timestamp() \
                     + least(interval '1 second' * 2 ^ least(publish_attempts, 10), interval '5 minutes') \
                 WHERE task_id = $1",
            )
            .bind(task_id)
            .bind(error)
            .execute(&mut *tx)
            .await?;
        }
        tx.commit().await?;
        Ok(matches!(state.as_deref(), Some("PUBLISHED" | "PENDING")))
    }

    /// Forgets the announcements of relays that died, once none of their tasks waits; returns how many. Those of the last
    /// two minutes are left: no hand-over takes that long.
    pub async fn forget_announcements(&self) -> Result<u64, StoreError> {
        let done = sqlx::query(
            "DELETE FROM tidegate.handovers h WHERE h.started_at < clock_timestamp() - interval '2 minutes' \
             AND NOT EXISTS (SELECT FROM tidegate.tasks t WHERE t.task_id = ANY (h.task_ids) AND t.ready_at IS NOT NULL)",
        )
        .execute(self.pool)
        .await?;
        Ok(done.rows_affected())
    }
}

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
        sqlx::query("SELECT set_config('idle_in_transaction_session_timeout', $1, true)")
            .bind(limit.as_millis().to_string())
            .execute(&mut *self.tx)
            .await?;
        self.announced = Some(announced);
        Ok(())
    }

    /// Writes down what became of the tasks, and commits.
    pub async fn settle(mut self, outcome: &Settlement) -> Result<(), StoreError> {
        self.mark_published(&outcome.published).await?;
        self.let_wait(&outcome.failures).await?;
        self.set_aside(&outcome.set_aside).await?;
        if let Some(announced) = self.announced {
            sqlx::query("DELETE FROM tidegate.handovers WHERE id = $1")
                .bind(announced)
                .execute(&mut *self.tx)
                .await?;
        }
        self.tx.commit().await?;
        Ok(())
    }

    async fn mark_published(&mut self, published: &[String]) -> Result<(), StoreError> {
        if published.is_empty() {
            return Ok(());
        }
        sqlx::query(
            "UPDATE tidegate.tasks SET state = 'PUBLISHED', published_at = clock_timestamp(), \
             next_try_at = NULL, last_error = NULL, maybe_sent = false WHERE task_id = ANY ($1) AND state = 'PENDING'",
        )
        .bind(published)
        .execute(&mut *self.tx)
        .await?;
        Ok(())
    }

    async fn let_wait(&mut self, failures: &[Failure]) -> Result<(), StoreError> {
        if failures.is_empty() {
            return Ok(());
        }
        let ids: Vec<&str> = failures.iter().map(|f| f.task_id.as_str()).collect();
        let errors: Vec<&str> = failures.iter().map(|f| f.error.as_str()).collect();
        let waits: Vec<f64> = failures.iter().map(|f| f.after.as_secs_f64()).collect();
        let maybe_sent: Vec<bool> = failures.iter().map(|f| f.maybe_sent).collect();
        sqlx::query(
            "UPDATE tidegate.tasks t SET last_error = f.error, publish_attempts = t.publish_attempts + 1, \
             next_try_at = clock_timestamp() + interval '1 second' * f.wait, maybe_sent = t.maybe_sent OR f.maybe_sent \
             FROM unnest($1::text[], $2::text[], $3::float8[], $4::bool[]) AS f (task_id, error, wait, maybe_sent) \
             WHERE t.task_id = f.task_id AND t.state = 'PENDING'",
        )
        .bind(ids)
        .bind(errors)
        .bind(waits)
        .bind(maybe_sent)
        .execute(&mut *self.tx)
        .await?;
        Ok(())
    }

    async fn set_aside(&mut self, set_aside: &[SetAside]) -> Result<(), StoreError> {
        if set_aside.is_empty() {
            return Ok(());
        }
        let ids: Vec<&str> = set_aside.iter().map(|s| s.task_id.as_str()).collect();
        let errors: Vec<&str> = set_aside.iter().map(|s| s.error.as_str()).collect();
        sqlx::query(
            "UPDATE tidegate.tasks t SET state = 'FAILED', last_error = s.error, finished_at = clock_timestamp(), \
             next_try_at = NULL FROM unnest($1::text[], $2::text[]) AS s (task_id, error) \
             WHERE t.task_id = s.task_id AND t.state = 'PENDING'",
        )
        .bind(ids)
        .bind(errors)
        .execute(&mut *self.tx)
        .await?;
        Ok(())
    }
}
