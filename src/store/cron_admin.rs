//! Cron rows as people keep them: added, changed, removed, paused, run by hand; and what became of them.
//!
//! May import: `core`, sqlx. Everything that writes goes through an [`Edit`], one transaction: dropped without
//! [`Edit::commit`], or if the process dies before it, nothing has happened. The scheduler is woken by the commit.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use sqlx::{FromRow, Postgres, Transaction};
use tidegate_core::cron::{FireOutcome, MisfirePolicy};

use super::{
    Store, StoreError,
    connect::begin,
    cron_tasks::{self, CronTask},
    tasks::{self, NewTask},
};

/// What somebody wants a cron row to be. Ranges are those of the table's columns.
#[derive(Clone, Debug, Serialize)]
pub struct Definition {
    /// Unique name, 1 to 255 bytes.
    pub name: String,
    /// `taskType` of its tasks.
    pub task_type: String,
    /// Cron expression, 5 or 6 fields or a macro.
    pub cron_expression: String,
    /// IANA zone.
    pub time_zone: String,
    /// Payload template, a JSON object.
    pub payload: Box<RawValue>,
    /// `payloadVersion` of its tasks, from 1.
    pub payload_version: i32,
    /// Exchange; `None` is the platform's.
    pub exchange: Option<String>,
    /// Routing key; `None` is the task type.
    pub routing_key: Option<String>,
    /// Whether it fires; `None`: a new row does, one that exists stays as it is.
    pub enabled: Option<bool>,
    /// What becomes of missed occurrences.
    #[serde(serialize_with = "policy")]
    pub misfire_policy: MisfirePolicy,
    /// Most occurrences made up for at once under `catch_up`, 1 to 1,000.
    pub catch_up_limit: i32,
    /// `allow` or `skip`.
    pub overlap_policy: &'static str,
    /// Longest delay of its tasks after the planned time, 0 to 86,400,000.
    pub jitter_ms: i32,
    /// First instant at which it may fire.
    pub starts_at: Option<DateTime<Utc>>,
    /// From here on it doesn't fire.
    pub ends_at: Option<DateTime<Utc>>,
    /// `maxRetries` of its tasks, 0 to 100.
    pub max_retries: Option<i32>,
    /// `timeoutMs` of its tasks, 1 to 86,400,000.
    pub timeout_ms: Option<i32>,
    /// `priority` of its tasks, 0 to 255.
    pub priority: i16,
    /// Who answers for it.
    pub owner: Option<String>,
}

impl Definition {
    /// A schedule with what the table gives a row that says no more.
    pub fn new(
        name: String,
        task_type: String,
        cron_expression: String,
        time_zone: String,
        payload: Box<RawValue>,
    ) -> Self {
        Self {
            name,
            task_type,
            cron_expression,
            time_zone,
            payload,
            payload_version: 1,
            exchange: None,
            routing_key: None,
            enabled: None,
            misfire_policy: MisfirePolicy::default(),
            catch_up_limit: 100,
            overlap_policy: "allow",
            jitter_ms: 0,
            starts_at: None,
            ends_at: None,
            max_retries: None,
            timeout_ms: None,
            priority: 100,
            owner: None,
        }
    }
}

fn policy<S: Serializer>(policy: &MisfirePolicy, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(policy.as_str())
}

/// How much of a definition is meant where the row exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All of it.
    Whole,
    /// What a crontab says: expression, zone, type and payload. The rest stays as it is.
    Crontab,
}

/// What a definition means for the row of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// There is none yet.
    Add,
    /// It differs.
    Differs,
    /// It is as defined.
    Unchanged,
}

/// What became of an occurrence, or of several consecutive ones that were skipped.
#[derive(Clone, Debug, FromRow)]
pub struct FireRecord {
    /// The planned instant; of a run by hand, when it was asked for.
    pub fire_at: DateTime<Utc>,
    /// The last, where it stands for several.
    pub last_at: Option<DateTime<Utc>>,
    /// How many.
    pub occurrences: i64,
    /// `FIRED`, `CAUGHT_UP`, `SKIPPED_MISFIRE`, `SKIPPED_OVERLAP` or `MANUAL`.
    pub outcome: String,
    /// Its task, if it sent one.
    pub task_id: Option<String>,
    /// The state of the task, as long as the ledger keeps it.
    pub task_state: Option<String>,
    /// What went wrong with it last.
    pub task_error: Option<String>,
    /// When this was written down.
    pub recorded_at: DateTime<Utc>,
}

impl Store {
    /// Begins to edit cron rows.
    pub async fn edit_cron(&self) -> Result<Edit, StoreError> {
        let mut tx = begin(&self.pool).await?;
        let now = sqlx::query_scalar("SELECT now()").fetch_one(&mut *tx).await?;
        Ok(Edit { tx, now })
    }

    /// The latest records of the row called `name`, latest first; `None` if there is no such row.
    pub async fn cron_history(
        &self,
        name: &str,
        outcome: Option<FireOutcome>,
        limit: i64,
    ) -> Result<Option<Vec<FireRecord>>, StoreError> {
        let id: Option<i64> = sqlx::query_scalar("SELECT id FROM tidegate.cron_tasks WHERE name = $1")
            .bind(name)
            .fetch_optional(&self.pool)
            .await?;
        let Some(id) = id else { return Ok(None) };
        let records = sqlx::query_as(
            "SELECT f.fire_at, f.last_at, f.occurrences, f.outcome, f.task_id, t.state AS task_state, \
               t.last_error AS task_error, f.recorded_at \
             FROM tidegate.cron_fires f LEFT JOIN tidegate.tasks t USING (task_id) \
             WHERE f.cron_task_id = $1 AND ($2::text IS NULL OR f.outcome = $2) ORDER BY f.fire_at DESC LIMIT $3",
        )
        .bind(id)
        .bind(outcome.map(FireOutcome::as_str))
        .bind(limit)
        .fetch_all(&self.pool)
        .await?;
        Ok(Some(records))
    }
}

// Definitions as rows: the bind is a JSON array of them.
macro_rules! with_definitions {
    ($($sql:literal),+) => {
        concat!(
            "WITH d AS MATERIALIZED (SELECT * FROM jsonb_to_recordset($1::jsonb) AS d (name text, task_type text, ",
            "cron_expression text, time_zone text, payload jsonb, payload_version integer, exchange text, ",
            "routing_key text, enabled boolean, misfire_policy text, catch_up_limit integer, overlap_policy text, ",
            "jitter_ms integer, starts_at timestamptz, ends_at timestamptz, max_retries integer, ",
            "timeout_ms integer, priority smallint, owner text)) ",
            $($sql),+
        )
    };
}

const COMPARE: &str = with_definitions!(
    "SELECT d.name, c.id IS NOT NULL, coalesce(",
    "(c.task_type, c.cron_expression, c.time_zone, c.payload) IS NOT DISTINCT FROM ",
    "(d.task_type, d.cron_expression, d.time_zone, d.payload) AND ($2 OR ",
    "c.enabled = coalesce(d.enabled, c.enabled) AND ",
    "(c.payload_version, c.exchange, c.routing_key, c.misfire_policy, c.catch_up_limit, c.overlap_policy, ",
    "c.jitter_ms, c.starts_at, c.ends_at, c.max_retries, c.timeout_ms, c.priority, c.owner) IS NOT DISTINCT FROM ",
    "(d.payload_version, d.exchange, d.routing_key, d.misfire_policy, d.catch_up_limit, d.overlap_policy, ",
    "d.jitter_ms, d.starts_at, d.ends_at, d.max_retries, d.timeout_ms, d.priority, d.owner)), false) ",
    "FROM d LEFT JOIN tidegate.cron_tasks c USING (name)"
);

const INSERT: &str = with_definitions!(
    "INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression, time_zone, payload, payload_version, ",
    "exchange, routing_key, enabled, misfire_policy, catch_up_limit, overlap_policy, jitter_ms, starts_at, ",
    "ends_at, max_retries, timeout_ms, priority, owner) ",
    "SELECT name, task_type, cron_expression, time_zone, payload, payload_version, exchange, routing_key, ",
    "coalesce(enabled, true), misfire_policy, catch_up_limit, overlap_policy, jitter_ms, starts_at, ends_at, ",
    "max_retries, timeout_ms, priority, owner FROM d WHERE name = ANY ($2) ORDER BY name ON CONFLICT (name) DO NOTHING"
);

const UPDATE_CRONTAB: &str = with_definitions!(
    "UPDATE tidegate.cron_tasks c SET task_type = d.task_type, cron_expression = d.cron_expression, ",
    "time_zone = d.time_zone, payload = d.payload FROM d WHERE c.name = d.name AND d.name = ANY ($2)"
);

const UPDATE_WHOLE: &str = with_definitions!(
    "UPDATE tidegate.cron_tasks c SET task_type = d.task_type, cron_expression = d.cron_expression, ",
    "time_zone = d.time_zone, payload = d.payload, payload_version = d.payload_version, exchange = d.exchange, ",
    "routing_key = d.routing_key, enabled = coalesce(d.enabled, c.enabled), misfire_policy = d.misfire_policy, ",
    "catch_up_limit = d.catch_up_limit, overlap_policy = d.overlap_policy, jitter_ms = d.jitter_ms, ",
    "starts_at = d.starts_at, ends_at = d.ends_at, max_retries = d.max_retries, timeout_ms = d.timeout_ms, ",
    "priority = d.priority, owner = d.owner FROM d WHERE c.name = d.name AND d.name = ANY ($2)"
);

/// A transaction over cron rows.
#[derive(Debug)]
pub struct Edit {
    tx: Transaction<'static, Postgres>,
    now: DateTime<Utc>,
}

impl Edit {
    /// The database's clock when the edit began.
    pub fn now(&self) -> DateTime<Utc> {
        self.now
    }

    /// What each of `definitions` means for the row of its name; locks the rows that exist.
    pub async fn compare(
        &mut self,
        definitions: &[Definition],
        scope: Scope,
    ) -> Result<Vec<Change>, StoreError> {
        let names: Vec<&str> = definitions.iter().map(|d| d.name.as_str()).collect();
        // In one order, so that two edits don't wait for each other.
        sqlx::query("SELECT id FROM tidegate.cron_tasks WHERE name = ANY ($1) ORDER BY id FOR UPDATE")
            .bind(&names)
            .execute(&mut *self.tx)
            .await?;
        let rows: Vec<(String, bool, bool)> = sqlx::query_as(COMPARE)
            .bind(json(definitions)?)
            .bind(scope == Scope::Crontab)
            .fetch_all(&mut *self.tx)
            .await?;
        let changes: HashMap<&str, Change> = rows
            .iter()
            .map(|(name, exists, equal)| {
                let change = match (exists, equal) {
                    (false, _) => Change::Add,
                    (true, false) => Change::Differs,
                    (true, true) => Change::Unchanged,
                };
                (name.as_str(), change)
            })
            .collect();
        Ok(names
            .into_iter()
            .map(|name| changes.get(name).copied().unwrap_or(Change::Add))
            .collect())
    }

    /// Writes the definitions of which `changes`, as [`Edit::compare`] told them, says that the row isn't so yet.
    pub async fn put(
        &mut self,
        definitions: &[Definition],
        changes: &[Change],
        scope: Scope,
    ) -> Result<(), StoreError> {
        let names = |wanted: Change| -> Vec<&str> {
            let pairs = definitions.iter().zip(changes);
            pairs
                .filter(|(_, change)| **change == wanted)
                .map(|(definition, _)| definition.name.as_str())
                .collect()
        };
        let json = json(definitions)?;
        let (new, changed) = (names(Change::Add), names(Change::Differs));
        let inserted = sqlx::query(INSERT)
            .bind(&json)
            .bind(&new)
            .execute(&mut *self.tx)
            .await?
            .rows_affected();
        if inserted < new.len() as u64 {
            return Err(StoreError::Conflict(
                "a schedule of the same name was added by somebody else at this moment".to_owned(),
            ));
        }
        let update = match scope {
            Scope::Whole => UPDATE_WHOLE,
            Scope::Crontab => UPDATE_CRONTAB,
        };
        sqlx::query(update)
            .bind(&json)
            .bind(&changed)
            .execute(&mut *self.tx)
            .await?;
        Ok(())
    }

    /// The rows called `names`, as the scheduler will read them, in no order.
    pub async fn rows(&mut self, names: &[&str]) -> Result<Vec<CronTask>, StoreError> {
        cron_tasks::named(&mut *self.tx, names).await
    }

    /// Removes the row called `name` with its history; returns whether there was one.
    pub async fn remove(&mut self, name: &str) -> Result<bool, StoreError> {
        let done = sqlx::query("DELETE FROM tidegate.cron_tasks WHERE name = $1")
            .bind(name)
            .execute(&mut *self.tx)
            .await?;
        Ok(done.rows_affected() > 0)
    }

    /// Lets the row called `name` fire or not; returns whether that changed anything.
    pub async fn enable(&mut self, name: &str, enabled: bool) -> Result<bool, StoreError> {
        let done =
            sqlx::query("UPDATE tidegate.cron_tasks SET enabled = $2 WHERE name = $1 AND enabled <> $2")
                .bind(name)
                .bind(enabled)
                .execute(&mut *self.tx)
                .await?;
        Ok(done.rows_affected() > 0)
    }

    /// Records a run by hand of the row `id` at `at` and enqueues its task. Fails with [`StoreError::Conflict`] if
    /// that instant is taken, or the row gone.
    pub async fn run(&mut self, id: i64, at: DateTime<Utc>, task: NewTask) -> Result<(), StoreError> {
        // What a scheduler decided meanwhile knows nothing of this run: the version makes it void. The lock keeps the
        // row until the run is recorded.
        let locked = sqlx::query(
            "UPDATE tidegate.cron_tasks SET last_task_id = $2, version = version + 1 WHERE id = $1",
        )
        .bind(id)
        .bind(&task.task_id)
        .execute(&mut *self.tx)
        .await?;
        if locked.rows_affected() == 0 {
            return Err(StoreError::Conflict(
                "the schedule was removed at this moment".to_owned(),
            ));
        }
        sqlx::query(
            "INSERT INTO tidegate.cron_fires (cron_task_id, fire_at, outcome, task_id) VALUES ($1, $2, $3, $4)",
        )
        .bind(id)
        .bind(at)
        .bind(FireOutcome::Manual.as_str())
        .bind(&task.task_id)
        .execute(&mut *self.tx)
        .await?;
        tasks::insert(&mut *self.tx, &[task]).await?;
        Ok(())
    }

    /// Makes it all happen.
    pub async fn commit(self) -> Result<(), StoreError> {
        Ok(self.tx.commit().await?)
    }
}

fn json(definitions: &[Definition]) -> Result<String, StoreError> {
    serde_json::to_string(definitions).map_err(|why| StoreError::Bad(why.to_string()))
}
