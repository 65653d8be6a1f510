//! Tasks of the ledger, from the insert to the end.
//!
//! May import: `core`, sqlx.
//!
//! | module | what |
//! |---|---|
//! | [`outbox`] | what is due, locked, handed over to the broker, taken back |
//! | [`settle`] | what became of tasks, written into their rows |
//! | `unwritten` | what became of tasks whose rows can't be written, remembered |
//! | [`write_back`] | and written once they can |
//! | [`control`] | cancel, promote, reschedule: the SQL functions that every client calls |
//! | [`list`] | pages of tasks, by key |

pub mod control;
pub mod list;
pub mod outbox;
pub mod settle;
pub(in crate::store) mod unwritten;
pub mod write_back;

use chrono::{DateTime, Utc};
use sqlx::{FromRow, PgExecutor, PgPool};
use std::sync::Arc;
use tidegate_core::headers::Origin;

pub use outbox::{DueTask, Failure, Handover, SetAside, Settlement};
pub use settle::Refused;
pub use write_back::WrittenBack;

use self::unwritten::Unwritten;
use super::StoreError;

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

/// A task as the ledger knows it, without its envelope.
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
    /// A word of [`tidegate_core::lifecycle::TaskState`], as a CHECK holds.
    pub state: String,
    /// How it came in.
    pub origin: String,
    /// 0 to 255.
    pub priority: i16,
    /// `producer`.
    pub producer: Option<String>,
    /// `traceId`.
    pub trace_id: Option<String>,
    /// Key that is unique among the tasks of this type.
    pub idempotency_key: Option<String>,
    /// Planned time.
    pub due_at: DateTime<Utc>,
    /// Next hand-over, if one failed.
    pub next_try_at: Option<DateTime<Utc>>,
    /// Failed hand-overs.
    pub publish_attempts: i32,
    /// Whether a hand-over ended without an answer from the broker.
    pub maybe_sent: bool,
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
    /// When somebody asked to cancel it.
    pub cancel_requested_at: Option<DateTime<Utc>>,
}

/// The columns of a [`TaskRecord`], for statements that are written out at compile time.
macro_rules! record_columns {
    () => {
        "task_id, task_type, exchange, routing_key, state, origin, priority, producer, trace_id, idempotency_key, due_at, \
         next_try_at, publish_attempts, maybe_sent, attempts, last_error, created_at, published_at, started_at, \
         finished_at, cancel_requested_at"
    };
}
use record_columns;

/// Access to `tidegate.tasks`.
#[derive(Clone, Copy, Debug)]
pub struct Tasks<'a> {
    pool: &'a PgPool,
    unwritten: &'a Arc<Unwritten>,
}

impl<'a> Tasks<'a> {
    pub(super) fn new(pool: &'a PgPool, unwritten: &'a Arc<Unwritten>) -> Self {
        Self { pool, unwritten }
    }

    /// Inserts `tasks`; returns how many were new. A task id that exists is left as it is.
    pub async fn insert(&self, tasks: &[NewTask]) -> Result<u64, StoreError> {
        insert(self.pool, tasks).await
    }

    /// The task with this id.
    pub async fn get(&self, task_id: &str) -> Result<Option<TaskRecord>, StoreError> {
        Ok(sqlx::query_as(concat!(
            "SELECT ",
            record_columns!(),
            " FROM tidegate.tasks WHERE task_id = $1"
        ))
        .bind(task_id)
        .fetch_optional(self.pool)
        .await?)
    }

    /// The envelope of the task with this id, as it is sent.
    pub async fn envelope(&self, task_id: &str) -> Result<Option<String>, StoreError> {
        Ok(
            sqlx::query_scalar("SELECT envelope FROM tidegate.tasks WHERE task_id = $1")
                .bind(task_id)
                .fetch_optional(self.pool)
                .await?,
        )
    }

    /// How many tasks are in each state. Reads the whole table.
    pub async fn counts(&self) -> Result<Vec<(String, i64)>, StoreError> {
        Ok(
            sqlx::query_as("SELECT state, count(*) FROM tidegate.tasks GROUP BY state ORDER BY state")
                .fetch_all(self.pool)
                .await?,
        )
    }
}

/// Inserts `tasks` in one statement, on a pool or inside a transaction; in the order of the ids, so that two batches with the
/// same tasks wait for each other's rows in one direction only.
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
           $7::text[], $8::text[], $9::text[], $10::timestamptz[]) ORDER BY 1 ON CONFLICT (task_id) DO NOTHING",
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
