//! The outbox: tasks inserted, handed over to the broker, taken back.
//!
//! May import: `core`, sqlx. Handing over is [`Tasks::lock_due`] → publish → [`Handover::settle`]. The locked rows
//! stay `PENDING` until the commit, so there is no lease to wait for: a process that dies before it has published
//! nothing, or has published what will be published again under the same task id. Postgres frees the locks when the
//! connection ends, or after `idle_in_transaction_timeout` if the process is frozen.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::{FromRow, PgExecutor, PgPool, Postgres, Transaction};
use tidegate_core::headers::Origin;

use super::{NextDue, StoreError};

/// A task to insert as `PENDING`.
#[derive(Clone, Debug)]
pub struct NewTask {
    /// Unique id.
    pub task_id: String,
    /// Type.
    pub task_type: String,
    /// Exchange; `None` is the platform's.
    pub exchange: Option<String>,
    /// Routing key; `None` is the type.
    pub routing_key: Option<String>,
    /// The envelope's text, sent as it is.
    pub envelope: String,
    /// 0 to 255.
    pub priority: u8,
    /// `producer`.
    pub producer: Option<String>,
    /// `traceId`.
    pub trace_id: Option<String>,
    /// How it came in.
    pub origin: Origin,
    /// When it is handed over.
    pub due_at: DateTime<Utc>,
}

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

/// A task as the ledger knows it.
#[derive(Clone, Debug, FromRow)]
pub struct TaskRecord {
    /// Unique id.
    pub task_id: String,
    /// Type.
    pub task_type: String,
    /// Exchange; `None` is the platform's.
    pub exchange: Option<String>,
    /// Routing key; `None` is the type.
    pub routing_key: Option<String>,
    /// `PENDING`, `PUBLISHED`, `RUNNING`, `SUCCESS`, `RETRYING`, `FAILED` or `CANCELED`.
    pub state: String,
    /// How it came in.
    pub origin: String,
    /// Planned time.
    pub due_at: DateTime<Utc>,
    /// Next hand-over, if one failed.
    pub next_try_at: Option<DateTime<Utc>>,
    /// Failed hand-overs.
    pub publish_attempts: i32,
    /// Runs by a worker.
    pub attempts: i32,
    /// What went wrong last.
    pub last_error: Option<String>,
    /// When it was inserted.
    pub created_at: DateTime<Utc>,
    /// When the broker confirmed it.
    pub published_at: Option<DateTime<Utc>>,
    /// When a worker started it.
    pub started_at: Option<DateTime<Utc>>,
    /// When it ended.
    pub finished_at: Option<DateTime<Utc>>,
}

/// A hand-over that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The task.
    pub task_id: String,
    /// Why.
    pub error: String,
    /// Wait before the next try.
    pub after: Duration,
}

/// Access to `tidegate.tasks`.
#[derive(Clone, Copy, Debug)]
pub struct Tasks<'a> {
    pool: &'a PgPool,
}

/// Locked due tasks and the transaction that holds them; dropped unsettled, the rows are due as before.
#[derive(Debug)]
pub struct Handover {
    tx: Transaction<'static, Postgres>,
    tasks: Vec<DueTask>,
}

impl<'a> Tasks<'a> {
    pub(super) fn new(pool: &'a PgPool) -> Self {
        Self { pool }
    }

    /// Inserts `tasks`; returns how many were new. A task id that exists is left as it is.
    pub async fn insert(&self, tasks: &[NewTask]) -> Result<u64, StoreError> {
        insert(self.pool, tasks).await
    }

    /// The task with this id.
    pub async fn get(&self, task_id: &str) -> Result<Option<TaskRecord>, StoreError> {
        Ok(sqlx::query_as(
            "SELECT task_id, task_type, exchange, routing_key, state, origin, due_at, next_try_at, \
             publish_attempts, attempts, last_error, created_at, published_at, started_at, finished_at \
             FROM tidegate.tasks WHERE task_id = $1",
        )
        .bind(task_id)
        .fetch_optional(self.pool)
        .await?)
    }

    /// How many tasks are in each state. Reads the whole table.
    pub async fn counts(&self) -> Result<Vec<(String, i64)>, StoreError> {
        Ok(
            sqlx::query_as("SELECT state, count(*) FROM tidegate.tasks GROUP BY state ORDER BY state")
                .fetch_all(self.pool)
                .await?,
        )
    }

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
        let mut tx = self.pool.begin().await?;
        let tasks = sqlx::query_as(
            "SELECT task_id, task_type, exchange, routing_key, envelope, priority, producer, trace_id, origin, \
             due_at, publish_attempts FROM tidegate.tasks \
             WHERE ready_at <= now() ORDER BY ready_at LIMIT $1 FOR UPDATE SKIP LOCKED",
        )
        .bind(limit)
        .fetch_all(&mut *tx)
        .await?;
        Ok(Handover { tx, tasks })
    }

    /// A published task turned out to be taken by no queue: it waits in the ledger again, to be handed over after a
    /// growing wait (1 s to 5 min). Returns whether the ledger has it now; `false` means that it never had it, or
    /// that the task has gone on (it runs, ended or was cancelled).
    pub async fn unroutable(&self, task_id: &str, error: &str) -> Result<bool, StoreError> {
        let mut tx = self.pool.begin().await?;
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
}

impl Handover {
    /// The locked tasks.
    pub fn tasks(&self) -> &[DueTask] {
        &self.tasks
    }

    /// Marks `published` as such and lets `failures` wait, then commits. Tasks named in neither stay due.
    pub async fn settle(mut self, published: &[String], failures: &[Failure]) -> Result<(), StoreError> {
        if !published.is_empty() {
            sqlx::query(
                "UPDATE tidegate.tasks SET state = 'PUBLISHED', published_at = clock_timestamp(), \
                 next_try_at = NULL, last_error = NULL WHERE task_id = ANY ($1) AND state = 'PENDING'",
            )
            .bind(published)
            .execute(&mut *self.tx)
            .await?;
        }
        if !failures.is_empty() {
            let ids: Vec<&str> = failures.iter().map(|f| f.task_id.as_str()).collect();
            let errors: Vec<&str> = failures.iter().map(|f| f.error.as_str()).collect();
            let waits: Vec<f64> = failures.iter().map(|f| f.after.as_secs_f64()).collect();
            sqlx::query(
                "UPDATE tidegate.tasks t SET last_error = f.error, publish_attempts = t.publish_attempts + 1, \
                 next_try_at = clock_timestamp() + interval '1 second' * f.wait \
                 FROM unnest($1::text[], $2::text[], $3::float8[]) AS f (task_id, error, wait) \
                 WHERE t.task_id = f.task_id AND t.state = 'PENDING'",
            )
            .bind(ids)
            .bind(errors)
            .bind(waits)
            .execute(&mut *self.tx)
            .await?;
        }
        self.tx.commit().await?;
        Ok(())
    }
}

/// Inserts `tasks` in one statement, on a pool or inside a transaction.
pub(super) async fn insert<'e>(executor: impl PgExecutor<'e>, tasks: &[NewTask]) -> Result<u64, StoreError> {
    if tasks.is_empty() {
        return Ok(0);
    }
    let column = |of: fn(&NewTask) -> &str| tasks.iter().map(of).map(str::to_owned).collect::<Vec<_>>();
    let optional = |of: fn(&NewTask) -> &Option<String>| tasks.iter().map(of).cloned().collect::<Vec<_>>();
    let done = sqlx::query(
        "INSERT INTO tidegate.tasks (task_id, task_type, exchange, routing_key, envelope, priority, producer, \
           trace_id, origin, due_at) \
         SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::smallint[], \
           $7::text[], $8::text[], $9::text[], $10::timestamptz[]) ON CONFLICT (task_id) DO NOTHING",
    )
    .bind(column(|t| &t.task_id))
    .bind(column(|t| &t.task_type))
    .bind(optional(|t| &t.exchange))
    .bind(optional(|t| &t.routing_key))
    .bind(column(|t| &t.envelope))
    .bind(tasks.iter().map(|t| i16::from(t.priority)).collect::<Vec<_>>())
    .bind(optional(|t| &t.producer))
    .bind(optional(|t| &t.trace_id))
    .bind(column(|t| t.origin.as_str()))
    .bind(tasks.iter().map(|t| t.due_at).collect::<Vec<_>>())
    .execute(executor)
    .await?;
    Ok(done.rows_affected())
}
