//! A row of `tidegate.cron_tasks` as it is read.
//!
//! May import: sqlx.

use chrono::{DateTime, Utc};
use sqlx::{FromRow, PgExecutor};

use super::CronTasks;
use crate::store::StoreError;

/// A cron row.
#[derive(Clone, Debug, FromRow)]
pub struct CronTask {
    /// Key.
    pub id: i64,
    /// Unique name.
    pub name: String,
    /// The name as a part of a task id: itself, or a hash of it if it is long or has other characters.
    pub id_part: String,
    /// `taskType` of its tasks.
    pub task_type: String,
    /// Cron expression, 5 or 6 fields or a macro.
    pub cron_expression: String,
    /// IANA zone.
    pub time_zone: String,
    /// Payload template: the text of the jsonb column. `None`: SQL NULL.
    pub payload: Option<String>,
    /// `payloadVersion` of its tasks.
    pub payload_version: i32,
    /// Exchange; `None` is the platform's.
    pub exchange: Option<String>,
    /// Routing key; `None` is the task type.
    pub routing_key: Option<String>,
    /// Whether it fires.
    pub enabled: bool,
    /// `fire_once`, `skip` or `catch_up`.
    pub misfire_policy: String,
    /// Most occurrences made up for at once under `catch_up`.
    pub catch_up_limit: i32,
    /// `allow` or `skip`.
    pub overlap_policy: String,
    /// First instant at which it may fire.
    pub starts_at: Option<DateTime<Utc>>,
    /// From here on it doesn't fire.
    pub ends_at: Option<DateTime<Utc>>,
    /// `maxRetries` of its tasks.
    pub max_retries: Option<i32>,
    /// `timeoutMs` of its tasks.
    pub timeout_ms: Option<i32>,
    /// `priority` of its tasks.
    pub priority: i16,
    /// Longest delay of its tasks after the planned time.
    pub jitter_ms: i32,
    /// Who answers for it.
    pub owner: Option<String>,
    /// When it last fired.
    pub last_triggered_at: Option<DateTime<Utc>>,
    /// When it fires next; `None`: not computed yet, exhausted or in error.
    pub next_fire_at: Option<DateTime<Utc>>,
    /// The time it had before an edit that changes what it sends and not when; it has it again once it was checked.
    pub kept_fire_at: Option<DateTime<Utc>>,
    /// The last occurrence that was accounted for; nothing at or before it fires again.
    pub accounted_until: Option<DateTime<Utc>>,
    /// Whether no occurrence is left.
    pub exhausted: bool,
    /// Grows with every change.
    pub version: i64,
    /// Why it can't be scheduled.
    pub last_error: Option<String>,
    /// Whether the task it sent last still waits, runs or is retried, as far as the ledger knows. Always `false` where
    /// runs may overlap.
    pub busy: bool,
}

// `busy`: PUBLISHED doesn't count. The broker has that task, and the ledger hears of its end only from workers that
// report to it: without them the row would never fire again.
macro_rules! columns {
    () => {
        "c.id, c.name, CASE WHEN c.name ~ '^[A-Za-z0-9._:-]{1,90}$' THEN c.name ELSE 'sha256-' || \
         encode(substr(sha256(convert_to(c.name, 'UTF8')), 1, 16), 'hex') END AS id_part, c.task_type, \
         c.cron_expression, c.time_zone, c.payload::text AS payload, c.payload_version, c.exchange, c.routing_key, \
         c.enabled, c.misfire_policy, c.catch_up_limit, c.overlap_policy, c.starts_at, c.ends_at, c.max_retries, \
         c.timeout_ms, c.priority, c.jitter_ms, c.owner, c.last_triggered_at, c.next_fire_at, c.kept_fire_at, c.accounted_until, \
         c.exhausted, c.version, c.last_error, c.overlap_policy = 'skip' AND coalesce(( \
           SELECT t.state IN ('PENDING', 'RUNNING', 'RETRYING') FROM tidegate.tasks t WHERE t.task_id = c.last_task_id \
         ), false) AS busy"
    };
}
pub(super) use columns;

impl CronTasks<'_> {
    /// All rows by name.
    pub async fn list(&self) -> Result<Vec<CronTask>, StoreError> {
        Ok(sqlx::query_as(concat!(
            "SELECT ",
            columns!(),
            " FROM tidegate.cron_tasks c ORDER BY c.name"
        ))
        .fetch_all(self.pool)
        .await?)
    }

    /// The row called `name`.
    pub async fn get(&self, name: &str) -> Result<Option<CronTask>, StoreError> {
        Ok(sqlx::query_as(concat!(
            "SELECT ",
            columns!(),
            " FROM tidegate.cron_tasks c WHERE c.name = $1"
        ))
        .bind(name)
        .fetch_optional(self.pool)
        .await?)
    }
}

/// The rows called `names`, in no order; on a pool or inside a transaction.
pub(in crate::store) async fn named<'e>(
    executor: impl PgExecutor<'e>,
    names: &[&str],
) -> Result<Vec<CronTask>, StoreError> {
    Ok(sqlx::query_as(concat!(
        "SELECT ",
        columns!(),
        " FROM tidegate.cron_tasks c WHERE c.name = ANY ($1)"
    ))
    .bind(names)
    .fetch_all(executor)
    .await?)
}
