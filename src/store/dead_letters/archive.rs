//! Dead letters into the archive: a batch in one transaction, and each of them once.
//!
//! May import: `core`, sqlx. Whoever calls acknowledges after `Ok`; dying in between, the messages come again and are found here
//! by their ids. Ids are looked for on every day since their death, but for the day of this batch, where the primary key holds
//! them apart even from a batch at the same time. Around midnight two batches at the same time may have different days, so then
//! they wait for each other.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use chrono::{DateTime, Days, NaiveDate, Utc};
use sqlx::{PgConnection, Row};
use tidegate_core::{
    dead_letter::{DeadLetterId, DeadLetterState, died_at},
    dispose::DeadReason,
    fingerprint::Fingerprint,
    replay::link::{Lineage, Parent, lineage, named_parent},
    task::TaskId,
};
use uuid::Uuid;

use super::DeadLetters;
use crate::store::{StoreError, connect::begin, error::is_about_a_row};

/// Key of the lock under which batches are archived around midnight.
const MIDNIGHT: i64 = 0x7469_6465_6e67_6874;

/// A message that is to be archived. Texts hold no NUL.
#[derive(Clone, PartialEq, Eq)]
pub struct NewDeadLetter {
    /// Its id.
    pub id: DeadLetterId,
    /// When it died; what lies ahead of the database's clock counts as now.
    pub died_at: DateTime<Utc>,
    /// When its first attempt failed, if it says so.
    pub first_failed_at: Option<DateTime<Utc>>,
    /// The task id to find it by, at most 128 bytes.
    pub task_id: Option<String>,
    /// The task type to find it by, at most 128 bytes.
    pub task_type: Option<String>,
    /// The queue that failed, at most 255 bytes.
    pub queue: String,
    /// The routing key as first published, at most 255 bytes.
    pub routing_key: Option<String>,
    /// Why it is dead.
    pub reason: DeadReason,
    /// Kind of the last error.
    pub error_kind: String,
    /// Text of the last error, at most 16 KiB.
    pub error: String,
    /// Attempts that were made.
    pub attempts: u32,
    /// Its group.
    pub fingerprint: Fingerprint,
    /// The bytes as they came.
    pub body: Bytes,
    /// All properties and headers, as `broker::record` writes them.
    pub properties: String,
    /// The dead letter that it says it replays, as its header has it.
    pub replay_of: Option<String>,
    /// The task id in its body, which proves that.
    pub body_task_id: Option<TaskId>,
}

impl std::fmt::Debug for NewDeadLetter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Payloads are not for logs.
        f.debug_struct("NewDeadLetter")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// What became of a batch: it is committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Archived {
    /// Those that were not there before.
    pub new: HashSet<DeadLetterId>,
    /// The database's clock.
    pub now: DateTime<Utc>,
}

/// Why nothing of a batch was archived; the variants differ in what the caller does.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The database refuses a row: try the others without it. Of a batch of one, it is this one.
    #[error("the database refuses it: {0}")]
    Row(String),
    /// Nothing can be archived now: try again later.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<sqlx::Error> for ArchiveError {
    fn from(error: sqlx::Error) -> Self {
        if is_about_a_row(&error) {
            Self::Row(StoreError::from(error).to_string())
        } else {
            Self::Store(error.into())
        }
    }
}

/// What a batch begins with.
struct Start {
    now: DateTime<Utc>,
    day: NaiveDate,
    near_midnight: bool,
}

/// A dead letter whose replay died.
struct Ancestor {
    state: DeadLetterState,
    deaths: u32,
    sent_task_id: Option<String>,
    replay_id: Option<Uuid>,
}

impl DeadLetters<'_> {
    /// Archives `letters`, those that are not there yet. An id twice among them is one dead letter.
    ///
    /// # Errors
    /// See [`ArchiveError`]. Then none of them is archived, unless the answer to the commit was lost: the same call finds that out.
    pub async fn archive(&self, letters: &[&NewDeadLetter]) -> Result<Archived, ArchiveError> {
        match self.try_archive(letters).await {
            // Made ahead by a loop; here only if that was not running for days.
            Err(error) if is_about_a_missing_day(&error) => {
                self.make_days().await?;
                Ok(self.try_archive(letters).await?)
            }
            done => Ok(done?),
        }
    }

    async fn try_archive(&self, letters: &[&NewDeadLetter]) -> Result<Archived, Failed> {
        let mut tx = begin(self.pool).await.map_err(Failed::Begin)?;
        let mut start = start(&mut tx).await?;
        if start.near_midnight {
            sqlx::query("SELECT pg_advisory_xact_lock($1)")
                .bind(MIDNIGHT)
                .execute(&mut *tx)
                .await?;
            start = self::start(&mut tx).await?;
        }
        let ancestors = ancestors(&mut tx, letters).await?;
        let new = insert(&mut tx, letters, &ancestors, &start).await?;
        tx.commit().await?;
        Ok(Archived { new, now: start.now })
    }
}

/// As [`ArchiveError`], before it is known whether the day was missing.
enum Failed {
    Begin(StoreError),
    Statement(sqlx::Error),
}

impl From<sqlx::Error> for Failed {
    fn from(error: sqlx::Error) -> Self {
        Self::Statement(error)
    }
}

impl From<Failed> for ArchiveError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Begin(error) => Self::Store(error),
            Failed::Statement(error) => error.into(),
        }
    }
}

/// A partition that isn't there is a violated check without a name.
fn is_about_a_missing_day(failed: &Failed) -> bool {
    match failed {
        Failed::Statement(sqlx::Error::Database(error)) => {
            error.code().as_deref() == Some("23514") && error.constraint().is_none()
        }
        _ => false,
    }
}

async fn start(tx: &mut PgConnection) -> Result<Start, sqlx::Error> {
    let row = sqlx::query(START).fetch_one(tx).await?;
    Ok(Start {
        now: row.try_get(0)?,
        day: row.try_get(1)?,
        near_midnight: row.try_get(2)?,
    })
}

const START: &str = "SELECT t, (t AT TIME ZONE 'UTC')::date, \
       ((t + interval '2 minutes') AT TIME ZONE 'UTC')::date <> ((t - interval '2 minutes') AT TIME ZONE 'UTC')::date \
     FROM (SELECT clock_timestamp() AS t OFFSET 0) AS clock";

/// What the archive has under the ids that `letters` say they replay.
async fn ancestors(
    tx: &mut PgConnection,
    letters: &[&NewDeadLetter],
) -> Result<HashMap<DeadLetterId, Ancestor>, sqlx::Error> {
    let ids: HashSet<DeadLetterId> = letters
        .iter()
        .filter_map(|letter| named_parent(letter.replay_of.as_deref()))
        .collect();
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    // None is archived before its death, but for a clock that is ahead.
    let since = |id: &DeadLetterId| day_before(died_at(*id).unwrap_or(DateTime::UNIX_EPOCH));
    let days: Vec<NaiveDate> = ids.iter().map(since).collect();
    let uuids: Vec<Uuid> = ids.iter().map(|id| Uuid::from_bytes(id.0)).collect();
    let rows = sqlx::query(ANCESTORS)
        .bind(uuids)
        .bind(&days)
        .bind(days.iter().min())
        .fetch_all(tx)
        .await?;
    rows.iter()
        .map(|row| {
            let ancestor = Ancestor {
                state: super::state(row)?,
                deaths: row.try_get::<i32, _>("deaths")?.unsigned_abs(),
                sent_task_id: row.try_get("sent_task_id")?,
                replay_id: row.try_get("replay_id")?,
            };
            Ok((super::id(row, "id")?, ancestor))
        })
        .collect()
}

fn day_before(at: DateTime<Utc>) -> NaiveDate {
    let day = at.date_naive();
    day.checked_sub_days(Days::new(1)).unwrap_or(day)
}

/// Looked up one by one on the days that each can be on; the earliest of all lets the plan leave out whole partitions.
#[doc(hidden)]
pub const ANCESTORS: &str = "SELECT d.id, d.state, d.deaths, d.sent_task_id, d.replay_id FROM unnest($1::uuid[], $2::date[]) AS n (id, since), \
       LATERAL (SELECT id, state, deaths, sent_task_id, replay_id FROM tidegate.dead_letters \
         WHERE id = n.id AND day >= n.since AND day >= $3::date LIMIT 1 OFFSET 0) AS d";

async fn insert(
    tx: &mut PgConnection,
    letters: &[&NewDeadLetter],
    ancestors: &HashMap<DeadLetterId, Ancestor>,
    start: &Start,
) -> Result<HashSet<DeadLetterId>, sqlx::Error> {
    let lineages: Vec<(Lineage, Option<Uuid>)> = letters
        .iter()
        .map(|letter| parentage(letter, ancestors))
        .collect();
    let column = |of: fn(&NewDeadLetter) -> Option<&str>| -> Vec<Option<&str>> {
        letters.iter().map(|letter| of(letter)).collect()
    };
    let since: Vec<NaiveDate> = letters.iter().map(|letter| day_before(letter.died_at)).collect();
    let attempts = letters
        .iter()
        .map(|letter| i32::try_from(letter.attempts).unwrap_or(i32::MAX));
    let parent = |lineage: &Lineage| match lineage {
        Lineage::Again { parent, .. } => Some(Uuid::from_bytes(parent.0)),
        Lineage::First | Lineage::Unproven => None,
    };
    let deaths = |lineage: &Lineage| i32::try_from(lineage.deaths()).unwrap_or(i32::MAX);
    let inserted: Vec<Uuid> = sqlx::query_scalar(INSERT)
        .bind(start.day)
        .bind(since.iter().min())
        .bind(
            letters
                .iter()
                .map(|l| Uuid::from_bytes(l.id.0))
                .collect::<Vec<_>>(),
        )
        .bind(&since)
        .bind(letters.iter().map(|l| l.died_at).collect::<Vec<_>>())
        .bind(letters.iter().map(|l| l.first_failed_at).collect::<Vec<_>>())
        .bind(column(|l| l.task_id.as_deref()))
        .bind(column(|l| l.task_type.as_deref()))
        .bind(column(|l| Some(l.queue.as_str())))
        .bind(column(|l| l.routing_key.as_deref()))
        .bind(column(|l| Some(l.reason.as_str())))
        .bind(column(|l| Some(l.error_kind.as_str())))
        .bind(column(|l| Some(l.error.as_str())))
        .bind(attempts.collect::<Vec<_>>())
        .bind(letters.iter().map(|l| &l.fingerprint.0[..]).collect::<Vec<_>>())
        .bind(letters.iter().map(|l| &l.body[..]).collect::<Vec<_>>())
        .bind(column(|l| Some(l.properties.as_str())))
        .bind(lineages.iter().map(|(l, _)| parent(l)).collect::<Vec<_>>())
        .bind(lineages.iter().map(|(_, run)| *run).collect::<Vec<_>>())
        .bind(lineages.iter().map(|(l, _)| deaths(l)).collect::<Vec<_>>())
        .fetch_all(tx)
        .await?;
    Ok(inserted
        .into_iter()
        .map(|id| DeadLetterId(id.into_bytes()))
        .collect())
}

/// Where `letter` comes from, and the run that sent it if it is a replay's.
fn parentage(letter: &NewDeadLetter, ancestors: &HashMap<DeadLetterId, Ancestor>) -> (Lineage, Option<Uuid>) {
    let header = letter.replay_of.as_deref();
    let ancestor = named_parent(header).and_then(|id| Some((id, ancestors.get(&id)?)));
    let parent = ancestor.map(|(id, ancestor)| Parent {
        id,
        state: ancestor.state,
        deaths: ancestor.deaths,
        sent_task_id: ancestor.sent_task_id.as_deref(),
    });
    let task_id = letter.body_task_id.as_ref().map(TaskId::as_str);
    let lineage = lineage(header, parent.as_ref(), task_id);
    let run = match lineage {
        Lineage::Again { .. } => ancestor.and_then(|(_, ancestor)| ancestor.replay_id),
        Lineage::First | Lineage::Unproven => None,
    };
    (lineage, run)
}

/// The day is $1. Whether an id is on an earlier one is looked up one by one, on the days from its death on; $2, the earliest of
/// all, lets the plan leave out whole partitions. In the order of the ids: two batches with the same messages wait for each
/// other's rows in one direction only.
#[doc(hidden)]
pub const INSERT: &str = "WITH arrived AS MATERIALIZED (\
       SELECT n.* FROM unnest($3::uuid[], $4::date[], $5::timestamptz[], $6::timestamptz[], $7::text[], $8::text[], $9::text[], \
           $10::text[], $11::text[], $12::text[], $13::text[], $14::integer[], $15::bytea[], $16::bytea[], $17::text[], $18::uuid[], \
           $19::uuid[], $20::integer[]) \
         AS n (id, since, died_at, first_failed_at, task_id, task_type, queue, routing_key, reason, error_kind, error, attempts, \
           fingerprint, body, properties, parent_id, sent_by, deaths) \
         LEFT JOIN LATERAL (SELECT true AS there FROM tidegate.dead_letters \
           WHERE id = n.id AND day >= n.since AND day >= $2::date AND day < $1::date LIMIT 1 OFFSET 0) AS d ON true \
       WHERE d.there IS NULL ORDER BY n.id\
     ), new AS (\
       INSERT INTO tidegate.dead_letters (day, id, died_at, first_failed_at, task_id, task_type, queue, routing_key, reason, \
         error_kind, error, attempts, fingerprint, parent_id, sent_by, deaths) \
       SELECT $1::date, id, least(died_at, clock_timestamp()), first_failed_at, task_id, task_type, queue, routing_key, reason, \
         error_kind, error, attempts, fingerprint, parent_id, sent_by, deaths FROM arrived \
       ON CONFLICT (id, day) DO NOTHING RETURNING id\
     ), messages AS (\
       INSERT INTO tidegate.dead_letter_messages (day, id, body, properties) \
       SELECT $1::date, id, body, properties FROM arrived JOIN new USING (id) \
       ON CONFLICT (id, day) DO NOTHING\
     ) SELECT id FROM new";
