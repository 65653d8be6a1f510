//! Cron rows: due ones locked, decided and written back in one transaction.
//!
//! May import: `core`, sqlx. The protocol is [`CronTasks::lock_due`] → decide → [`Locked::commit`]. Rows are locked
//! with `SKIP LOCKED`, so several schedulers take different rows, and written back only if their version is still
//! the one that was read. Dying anywhere before the commit leaves every row as it was, still due; the commit moves
//! `next_fire_at`, records the occurrences and inserts their tasks all at once.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use sqlx::{FromRow, PgExecutor, PgPool, Postgres, Transaction};
use tidegate_core::cron::Span;

use super::{
    NextDue, StoreError,
    tasks::{NewTask, insert},
};

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
    /// The last occurrence that was accounted for; nothing at or before it fires again.
    pub accounted_until: Option<DateTime<Utc>>,
    /// Whether no occurrence is left.
    pub exhausted: bool,
    /// Grows with every change.
    pub version: i64,
    /// Why it can't be scheduled.
    pub last_error: Option<String>,
    /// Whether the task of its last occurrence still waits, runs or is retried, as far as the ledger knows.
    pub busy: bool,
}

/// What to write back for one locked row.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The row's key.
    pub id: i64,
    /// The version that was read.
    pub version: i64,
    /// What became of it.
    pub verdict: Verdict,
    /// Occurrences to record.
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

/// What a commit did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    /// Rows written back.
    pub rows: usize,
    /// Rows that somebody else had changed: nothing was recorded for them.
    pub lost: usize,
    /// Occurrences recorded.
    pub fires: Vec<Span>,
}

/// Access to `tidegate.cron_tasks` and `tidegate.cron_fires`.
#[derive(Clone, Copy, Debug)]
pub struct CronTasks<'a> {
    pool: &'a PgPool,
}

/// Locked rows and the transaction that holds them; dropped without a commit, nothing has happened.
#[derive(Debug)]
pub struct Locked {
    tx: Transaction<'static, Postgres>,
    now: DateTime<Utc>,
    rows: Vec<CronTask>,
}

// `busy` looks at the last occurrence that sent a task. PUBLISHED doesn't count: the broker has it, and the ledger
// hears of its end only from workers that report to it.
macro_rules! select {
    ($filter:literal) => {
        concat!(
            "SELECT c.id, c.name, CASE WHEN c.name ~ '^[A-Za-z0-9._:-]{1,90}$' THEN c.name ELSE 'sha256-' || ",
            "encode(substr(sha256(convert_to(c.name, 'UTF8')), 1, 16), 'hex') END AS id_part, c.task_type, c.cron_expression, c.time_zone, c.payload::text AS payload, ",
            "c.payload_version, c.exchange, c.routing_key, c.enabled, c.misfire_policy, c.catch_up_limit, ",
            "c.overlap_policy, c.starts_at, c.ends_at, c.max_retries, c.timeout_ms, c.priority, c.jitter_ms, c.owner, ",
            "c.last_triggered_at, c.next_fire_at, c.accounted_until, c.exhausted, c.version, c.last_error, ",
            "c.overlap_policy = 'skip' AND coalesce((SELECT t.state IN ('PENDING', 'RUNNING', 'RETRYING') ",
            "FROM tidegate.cron_fires f JOIN tidegate.tasks t USING (task_id) ",
            "WHERE f.cron_task_id = c.id ORDER BY f.fire_at DESC LIMIT 1), false) AS busy ",
            "FROM tidegate.cron_tasks c ",
            $filter
        )
    };
}

impl<'a> CronTasks<'a> {
    pub(super) fn new(pool: &'a PgPool) -> Self {
        Self { pool }
    }

    /// All rows by name.
    pub async fn list(&self) -> Result<Vec<CronTask>, StoreError> {
        Ok(sqlx::query_as(select!("ORDER BY c.name"))
            .fetch_all(self.pool)
            .await?)
    }

    /// The row called `name`.
    pub async fn get(&self, name: &str) -> Result<Option<CronTask>, StoreError> {
        Ok(sqlx::query_as(select!("WHERE c.name = $1"))
            .bind(name)
            .fetch_optional(self.pool)
            .await?)
    }

    /// When the next row is due. Includes rows that another scheduler holds at this moment.
    pub async fn next_due(&self) -> Result<Option<NextDue>, StoreError> {
        let next: Option<(DateTime<Utc>, DateTime<Utc>)> = sqlx::query_as(
            "SELECT next_fire_at, clock_timestamp() FROM tidegate.cron_tasks \
             WHERE enabled AND next_fire_at IS NOT NULL ORDER BY next_fire_at LIMIT 1",
        )
        .fetch_optional(self.pool)
        .await?;
        Ok(next.map(|(at, now)| NextDue::new(at, now)))
    }

    /// How many rows can't be scheduled.
    pub async fn in_error(&self) -> Result<u64, StoreError> {
        let count: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM tidegate.cron_tasks WHERE last_error IS NOT NULL AND enabled",
        )
        .fetch_one(self.pool)
        .await?;
        Ok(count.unsigned_abs())
    }

    /// Locks up to `limit` rows that are due, those due longest first.
    pub async fn lock_due(&self, limit: i64) -> Result<Locked, StoreError> {
        self.lock(
            select!(
                "WHERE c.enabled AND c.next_fire_at <= now() ORDER BY c.next_fire_at LIMIT $1 \
                 FOR UPDATE OF c SKIP LOCKED"
            ),
            limit,
        )
        .await
    }

    /// Locks up to `limit` rows whose next time must be computed.
    pub async fn lock_uninitialised(&self, limit: i64) -> Result<Locked, StoreError> {
        self.lock(
            select!(
                "WHERE c.enabled AND c.next_fire_at IS NULL AND c.last_error IS NULL AND NOT c.exhausted \
                 ORDER BY c.id LIMIT $1 FOR UPDATE OF c SKIP LOCKED"
            ),
            limit,
        )
        .await
    }

    /// Flags a row that was read at `version`, and leaves it alone until its definition changes.
    pub async fn mark_error(&self, id: i64, version: i64, error: &str) -> Result<(), StoreError> {
        sqlx::query(
            "UPDATE tidegate.cron_tasks SET next_fire_at = NULL, last_error = $3, version = version + 1 \
             WHERE id = $1 AND version = $2",
        )
        .bind(id)
        .bind(version)
        .bind(error)
        .execute(self.pool)
        .await?;
        Ok(())
    }

    async fn lock(&self, select: &'static str, limit: i64) -> Result<Locked, StoreError> {
        let mut tx = self.pool.begin().await?;
        // now() stands still within a transaction: what is selected as due and what is decided agree.
        let now = sqlx::query_scalar("SELECT now()").fetch_one(&mut *tx).await?;
        let rows = sqlx::query_as(select).bind(limit).fetch_all(&mut *tx).await?;
        Ok(Locked { tx, now, rows })
    }
}

/// The rows called `names`, in no order; on a pool or inside a transaction.
pub(super) async fn named<'e>(
    executor: impl PgExecutor<'e>,
    names: &[&str],
) -> Result<Vec<CronTask>, StoreError> {
    Ok(sqlx::query_as(select!("WHERE c.name = ANY ($1)"))
        .bind(names)
        .fetch_all(executor)
        .await?)
}

impl Locked {
    /// The database's clock when the rows were locked.
    pub fn now(&self) -> DateTime<Utc> {
        self.now
    }

    /// The locked rows.
    pub fn rows(&self) -> &[CronTask] {
        &self.rows
    }

    /// Writes `decisions` back, with their occurrences and tasks, all or nothing. A decision whose row has another
    /// version by now is left out. An occurrence that is recorded already is not recorded, nor sent, again.
    pub async fn commit(mut self, decisions: Vec<Decision>) -> Result<Committed, StoreError> {
        let written = write_rows(&mut self.tx, &decisions).await?;
        let lost = decisions.len() - written.len();
        let mut fires = Fires::default();
        for decision in decisions.into_iter().filter(|d| written.contains(&d.id)) {
            for fire in decision.fires {
                fires.push(decision.id, fire);
            }
        }
        let recorded = record(&mut self.tx, &fires).await?;
        let tasks: Vec<NewTask> = fires
            .tasks
            .into_iter()
            .filter(|(key, _)| recorded.contains(key))
            .map(|(_, task)| task)
            .collect();
        insert(&mut *self.tx, &tasks).await?;
        self.tx.commit().await?;
        let fires = fires
            .ids
            .into_iter()
            .zip(fires.spans)
            .filter(|(id, span)| recorded.contains(&(*id, span.first)))
            .map(|(_, span)| span)
            .collect();
        Ok(Committed {
            rows: written.len(),
            lost,
            fires,
        })
    }
}

/// Occurrences as columns.
#[derive(Default)]
struct Fires {
    ids: Vec<i64>,
    spans: Vec<Span>,
    task_ids: Vec<Option<String>>,
    tasks: Vec<((i64, DateTime<Utc>), NewTask)>,
}

impl Fires {
    fn push(&mut self, id: i64, fire: Fire) {
        self.ids.push(id);
        self.spans.push(fire.span);
        self.task_ids.push(fire.task.as_ref().map(|t| t.task_id.clone()));
        self.tasks
            .extend(fire.task.map(|task| ((id, fire.span.first), task)));
    }
}

async fn write_rows(
    tx: &mut Transaction<'static, Postgres>,
    decisions: &[Decision],
) -> Result<HashSet<i64>, StoreError> {
    if decisions.is_empty() {
        return Ok(HashSet::new());
    }
    let ids: Vec<i64> = decisions.iter().map(|d| d.id).collect();
    let versions: Vec<i64> = decisions.iter().map(|d| d.version).collect();
    let next: Vec<Option<DateTime<Utc>>> = decisions
        .iter()
        .map(|d| {
            if let Verdict::Next(at) = d.verdict {
                Some(at)
            } else {
                None
            }
        })
        .collect();
    let exhausted: Vec<bool> = decisions
        .iter()
        .map(|d| d.verdict == Verdict::Exhausted)
        .collect();
    let errors: Vec<Option<&str>> = decisions
        .iter()
        .map(|d| {
            if let Verdict::Broken(why) = &d.verdict {
                Some(why.as_str())
            } else {
                None
            }
        })
        .collect();
    let triggered: Vec<bool> = decisions
        .iter()
        .map(|d| d.fires.iter().any(|f| f.task.is_some()))
        .collect();
    let written: Vec<i64> = sqlx::query_scalar(
        "UPDATE tidegate.cron_tasks c SET next_fire_at = d.next, exhausted = d.exhausted, last_error = d.error, \
           version = c.version + 1, \
           last_triggered_at = CASE WHEN d.triggered THEN now() ELSE c.last_triggered_at END \
         FROM unnest($1::bigint[], $2::bigint[], $3::timestamptz[], $4::boolean[], $5::text[], $6::boolean[]) \
           AS d (id, version, next, exhausted, error, triggered) \
         WHERE c.id = d.id AND c.version = d.version RETURNING c.id",
    )
    .bind(ids)
    .bind(versions)
    .bind(next)
    .bind(exhausted)
    .bind(errors)
    .bind(triggered)
    .fetch_all(&mut **tx)
    .await?;
    Ok(written.into_iter().collect())
}

async fn record(
    tx: &mut Transaction<'static, Postgres>,
    fires: &Fires,
) -> Result<HashSet<(i64, DateTime<Utc>)>, StoreError> {
    if fires.ids.is_empty() {
        return Ok(HashSet::new());
    }
    let of = |part: fn(&Span) -> DateTime<Utc>| fires.spans.iter().map(part).collect::<Vec<_>>();
    let outcomes: Vec<&str> = fires.spans.iter().map(|span| span.outcome.as_str()).collect();
    let occurrences: Vec<i64> = fires
        .spans
        .iter()
        .map(|span| i64::try_from(span.occurrences).unwrap_or(i64::MAX))
        .collect();
    let recorded: Vec<(i64, DateTime<Utc>)> = sqlx::query_as(
        "INSERT INTO tidegate.cron_fires (cron_task_id, fire_at, last_at, occurrences, outcome, task_id) \
         SELECT id, first, nullif(last, first), occurrences, outcome, task_id \
         FROM unnest($1::bigint[], $2::timestamptz[], $3::timestamptz[], $4::bigint[], $5::text[], $6::text[]) \
           AS f (id, first, last, occurrences, outcome, task_id) \
         ON CONFLICT (cron_task_id, fire_at) DO NOTHING RETURNING cron_task_id, fire_at",
    )
    .bind(&fires.ids)
    .bind(of(|span| span.first))
    .bind(of(|span| span.last))
    .bind(occurrences)
    .bind(outcomes)
    .bind(&fires.task_ids)
    .fetch_all(&mut **tx)
    .await?;
    Ok(recorded.into_iter().collect())
}
