//! Whose turn it is to send a digest, what span it tells of, and the numbers in it.
//!
//! May import: `core`, sqlx. A span ends at a multiple of the interval by the database's clock, and has one row; whoever writes
//! it, or takes it over once its lease has run out, sends it. Dying after the message is out and before [`Digests::settle`]
//! has committed means that it is sent again: at least once, and only then twice.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::{FromRow, PgConnection, PgPool, Row, postgres::PgRow};
use tidegate_core::fingerprint::Fingerprint;

use super::{Store, StoreError, connect::begin};

/// A digest tells of no more than so long, even if none was sent for longer.
pub const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);

/// How long rows are kept.
const KEEP: &str = "90 days";

/// How digests are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DigestPlan {
    /// Where they go, in a word of 1 to 64 bytes: processes with the same one share the work.
    pub target: String,
    /// Length of a span. Whole seconds.
    pub interval: Duration,
    /// How long after the end of a span it is told of: what was being archived then is committed by now.
    pub lag: Duration,
    /// This process.
    pub owner: String,
    /// How long this process has the turn before another takes it.
    pub lease: Duration,
}

/// What there is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// This process sends this digest.
    Send(Due),
    /// Nothing for so long.
    Wait(Duration),
}

/// A digest to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// Beginning of its span; what happened then is in it.
    pub since: DateTime<Utc>,
    /// End of its span; what happened then is not.
    pub until: DateTime<Utc>,
    /// Which try this is, from 1. Nothing is written under another number than the row's.
    pub tries: i32,
}

/// How a digest ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It was taken.
    Sent,
    /// There was nothing to tell.
    Quiet,
    /// It was not taken: again after so long.
    Again(Duration, String),
    /// It was not taken and won't be; the next one tells of its span too.
    Failed(String),
}

/// What a digest tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// Dead letters archived in the span.
    pub new: i64,
    /// Open ones now, of any age.
    pub open: i64,
    /// Types with most new ones.
    pub types: Vec<OfType>,
    /// How many types have new ones.
    pub all_types: i64,
    /// Groups with most new ones.
    pub groups: Vec<OfGroup>,
    /// How many groups have new ones.
    pub all_groups: i64,
}

/// The numbers of a type.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct OfType {
    /// The type, where there is one.
    pub task_type: Option<String>,
    /// New ones.
    pub new: i64,
    /// Open ones now.
    pub open: i64,
}

/// The numbers of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfGroup {
    /// What its dead letters share.
    pub fingerprint: Fingerprint,
    /// Their type.
    pub task_type: Option<String>,
    /// Why they are dead.
    pub reason: String,
    /// Kind of their error, as a handler named it.
    pub error_kind: String,
    /// The queue of the latest new one.
    pub queue: String,
    /// New ones.
    pub new: i64,
    /// Open ones now.
    pub open: i64,
}

/// Access to `tidegate.digests`.
#[derive(Clone, Copy, Debug)]
pub struct Digests<'a> {
    pool: &'a PgPool,
}

impl Store {
    /// The digests.
    pub fn digests(&self) -> Digests<'_> {
        Digests { pool: &self.pool }
    }
}

struct Latest {
    until: DateTime<Utc>,
    since: DateTime<Utc>,
    is_open: bool,
    tries: i32,
    leased_for: f64,
}

impl Digests<'_> {
    /// Whether it is this process's turn; if so, the lease begins.
    pub async fn turn(&self, plan: &DigestPlan) -> Result<Turn, StoreError> {
        let mut transaction = begin(self.pool).await?;
        // One at a time looks and decides.
        sqlx::query("SELECT pg_advisory_xact_lock(hashtext('tidegate.digests'), hashtext($1))")
            .bind(&plan.target)
            .execute(&mut *transaction)
            .await?;
        let (boundary, left): (DateTime<Utc>, f64) = sqlx::query_as(
            "SELECT b.at, extract(epoch FROM b.at + make_interval(secs => $1) + make_interval(secs => $2) - clock_timestamp())::float8 \
             FROM (SELECT date_bin(make_interval(secs => $1), clock_timestamp() - make_interval(secs => $2), 'epoch'::timestamptz) AS at) AS b",
        )
        .bind(plan.interval.as_secs_f64())
        .bind(plan.lag.as_secs_f64())
        .fetch_one(&mut *transaction)
        .await?;
        let wait = Turn::Wait(Duration::from_secs_f64(left.max(0.0)));
        let latest = latest(&mut transaction, &plan.target).await?;
        let turn = match latest {
            // Under way, or waiting to be tried again.
            Some(latest) if latest.is_open && latest.leased_for > 0.0 => {
                Turn::Wait(Duration::from_secs_f64(latest.leased_for))
            }
            Some(latest) if latest.is_open && latest.until >= boundary => {
                take_over(&mut transaction, plan, &latest).await?
            }
            Some(latest) if latest.until >= boundary => wait,
            latest => {
                if let Some(latest) = latest.filter(|latest| latest.is_open) {
                    give_up(&mut transaction, &plan.target, latest.until).await?;
                }
                begin_span(&mut transaction, plan, boundary).await?
            }
        };
        transaction.commit().await?;
        Ok(turn)
    }

    /// Writes down how the try `due` ended; `false` if another process has taken it over.
    pub async fn settle(&self, plan: &DigestPlan, due: &Due, ending: &Ending) -> Result<bool, StoreError> {
        let (state, again, error) = match ending {
            Ending::Sent => ("SENT", Duration::ZERO, None),
            Ending::Quiet => ("QUIET", Duration::ZERO, None),
            Ending::Again(after, why) => ("SENDING", *after, Some(why)),
            Ending::Failed(why) => ("FAILED", Duration::ZERO, Some(why)),
        };
        let settled = sqlx::query(
            "UPDATE tidegate.digests SET state = $4, lease_until = clock_timestamp() + make_interval(secs => $5), last_error = $6 \
             WHERE target = $1 AND until = $2 AND tries = $3 AND state = 'SENDING' AND owner = $7",
        )
        .bind(&plan.target)
        .bind(due.until)
        .bind(due.tries)
        .bind(state)
        .bind(again.as_secs_f64())
        .bind(error)
        .bind(&plan.owner)
        .execute(self.pool)
        .await?;
        Ok(settled.rows_affected() == 1)
    }

    /// The numbers of the span of `due`: at most `types` types and `groups` groups. Reads the index of when dead letters were
    /// archived over that span, and the counts.
    pub async fn numbers(&self, due: &Due, types: i64, groups: i64) -> Result<Numbers, StoreError> {
        let mut transaction = begin(self.pool).await?;
        sqlx::query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            .execute(&mut *transaction)
            .await?;
        let mut numbers = Numbers::default();
        // A transaction that began before midnight may have the day before.
        let first_day = due.since.date_naive() - TimeDelta::days(1);
        let of_types = sqlx::query(
            "SELECT n.task_type, n.new, count(*) OVER () AS all, (sum(n.new) OVER ())::bigint AS sum, \
               coalesce((SELECT sum(c.open) FROM tidegate.dead_letter_counts c WHERE c.task_type IS NOT DISTINCT FROM n.task_type), 0)::bigint AS open \
             FROM (SELECT d.task_type, count(*) AS new FROM tidegate.dead_letters d \
               WHERE d.day >= $1 AND d.archived_at >= $2 AND d.archived_at < $3 GROUP BY d.task_type) AS n \
             ORDER BY n.new DESC, n.task_type LIMIT $4",
        )
        .bind(first_day)
        .bind(due.since)
        .bind(due.until)
        .bind(types)
        .fetch_all(&mut *transaction)
        .await?;
        for row in &of_types {
            numbers.all_types = row.try_get("all")?;
            numbers.new = row.try_get("sum")?;
            numbers.types.push(OfType::from_row(row)?);
        }
        let of_groups = sqlx::query(
            "SELECT n.*, count(*) OVER () AS all, \
               coalesce((SELECT sum(c.open) FROM tidegate.dead_letter_counts c WHERE c.fingerprint = n.fingerprint), 0)::bigint AS open \
             FROM (SELECT d.fingerprint, min(d.task_type) AS task_type, min(d.reason) AS reason, min(d.error_kind) AS error_kind, \
                 (array_agg(d.queue ORDER BY d.archived_at DESC))[1] AS queue, count(*) AS new FROM tidegate.dead_letters d \
               WHERE d.day >= $1 AND d.archived_at >= $2 AND d.archived_at < $3 GROUP BY d.fingerprint) AS n \
             ORDER BY n.new DESC, n.fingerprint LIMIT $4",
        )
        .bind(first_day)
        .bind(due.since)
        .bind(due.until)
        .bind(groups)
        .fetch_all(&mut *transaction)
        .await?;
        for row in &of_groups {
            numbers.all_groups = row.try_get("all")?;
            numbers.groups.push(OfGroup::from_row(row)?);
        }
        numbers.open =
            sqlx::query_scalar("SELECT coalesce(sum(open), 0)::bigint FROM tidegate.dead_letter_counts")
                .fetch_one(&mut *transaction)
                .await?;
        Ok(numbers)
    }
}

async fn latest(on: &mut PgConnection, target: &str) -> Result<Option<Latest>, StoreError> {
    let row: Option<PgRow> = sqlx::query(
        "SELECT until, since, state = 'SENDING' AS is_open, tries, \
           extract(epoch FROM lease_until - clock_timestamp())::float8 AS leased_for \
         FROM tidegate.digests WHERE target = $1 ORDER BY until DESC LIMIT 1",
    )
    .bind(target)
    .fetch_optional(on)
    .await?;
    let Some(row) = row else { return Ok(None) };
    Ok(Some(Latest {
        until: row.try_get("until")?,
        since: row.try_get("since")?,
        is_open: row.try_get("is_open")?,
        tries: row.try_get("tries")?,
        leased_for: row.try_get("leased_for")?,
    }))
}

async fn take_over(on: &mut PgConnection, plan: &DigestPlan, latest: &Latest) -> Result<Turn, StoreError> {
    let tries = latest.tries.saturating_add(1);
    sqlx::query(
        "UPDATE tidegate.digests SET tries = $3, owner = $4, lease_until = clock_timestamp() + make_interval(secs => $5) \
         WHERE target = $1 AND until = $2",
    )
    .bind(&plan.target)
    .bind(latest.until)
    .bind(tries)
    .bind(&plan.owner)
    .bind(plan.lease.as_secs_f64())
    .execute(on)
    .await?;
    Ok(Turn::Send(Due {
        since: latest.since,
        until: latest.until,
        tries,
    }))
}

/// Its time is over: the span that now ends begins where it began.
async fn give_up(on: &mut PgConnection, target: &str, until: DateTime<Utc>) -> Result<(), StoreError> {
    sqlx::query("UPDATE tidegate.digests SET state = 'FAILED' WHERE target = $1 AND until = $2")
        .bind(target)
        .bind(until)
        .execute(on)
        .await?;
    Ok(())
}

/// A row for the span that ends at `until`, from where the last that was told, or had nothing to tell, ended; where none has
/// been yet, from where the first one began.
async fn begin_span(
    on: &mut PgConnection,
    plan: &DigestPlan,
    until: DateTime<Utc>,
) -> Result<Turn, StoreError> {
    let since: DateTime<Utc> = sqlx::query_scalar(
        "INSERT INTO tidegate.digests (target, until, since, owner, lease_until) \
         SELECT $1, $2::timestamptz, greatest( \
             coalesce(max(d.until) FILTER (WHERE d.state IN ('SENT', 'QUIET')), min(d.since), $2::timestamptz - make_interval(secs => $3)), \
             $2::timestamptz - make_interval(secs => $4)), \
           $5, clock_timestamp() + make_interval(secs => $6) \
         FROM tidegate.digests d WHERE d.target = $1 RETURNING since",
    )
    .bind(&plan.target)
    .bind(until)
    .bind(plan.interval.as_secs_f64())
    .bind(LONGEST.max(plan.interval).as_secs_f64())
    .bind(&plan.owner)
    .bind(plan.lease.as_secs_f64())
    .fetch_one(&mut *on)
    .await?;
    sqlx::query(
        "DELETE FROM tidegate.digests WHERE target = $1 AND until < clock_timestamp() - $2::interval",
    )
    .bind(&plan.target)
    .bind(KEEP)
    .execute(on)
    .await?;
    Ok(Turn::Send(Due {
        since,
        until,
        tries: 1,
    }))
}

impl FromRow<'_, PgRow> for OfGroup {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let bytes: Vec<u8> = row.try_get("fingerprint")?;
        let bytes = bytes.try_into().map_err(|_| sqlx::Error::ColumnDecode {
            index: "fingerprint".to_owned(),
            source: "not 16 bytes".into(),
        })?;
        Ok(Self {
            fingerprint: Fingerprint(bytes),
            task_type: row.try_get("task_type")?,
            reason: row.try_get("reason")?,
            error_kind: row.try_get("error_kind")?,
            queue: row.try_get("queue")?,
            new: row.try_get("new")?,
            open: row.try_get("open")?,
        })
    }
}
