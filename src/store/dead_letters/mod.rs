//! Dead letters in the archive.
//!
//! May import: `core`, sqlx. What a message was never changes; its `state` says what has been done about it.
//!
//! | module | what |
//! |---|---|
//! | [`archive`] | how they come in, each once |
//! | [`days`] | a partition for each day, made and dropped |
//! | `filter` | which ones are meant, as SQL |
//! | [`look`] | pages of them |
//! | [`runs`] | replay runs: begun, held by one process at a time, ended |
//! | [`replay`] | what a run claims |
//! | [`settle`] | what became of that |
//! | [`outcomes`] | what a run's messages did, and who had what it wanted |
//! | [`groups`] | what they have in common, and how many there are |
//! | [`one`] | one with all that is known of it |
//! | [`discard`] | what shall not run |
//! | `subject` | what was meant, for the audit log |
//! | [`export`] | a day as it was |

pub mod archive;
pub mod days;
pub mod discard;
pub mod export;
mod filter;
pub mod groups;
pub mod look;
pub mod one;
pub mod outcomes;
pub mod replay;
pub mod runs;
pub mod settle;
mod subject;

use chrono::{DateTime, NaiveDate, Utc};
use sqlx::{FromRow, PgPool, Row, postgres::PgRow};
use tidegate_core::{
    dead_letter::{DeadLetterId, DeadLetterState},
    fingerprint::Fingerprint,
};
use uuid::Uuid;

use super::Store;

impl Store {
    /// The dead letters.
    pub fn dead_letters(&self) -> DeadLetters<'_> {
        DeadLetters { pool: &self.pool }
    }
}

/// Dead letters, as statements.
#[derive(Clone, Copy, Debug)]
pub struct DeadLetters<'a> {
    pool: &'a PgPool,
}

/// A dead letter without its message: a line of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its id.
    pub id: DeadLetterId,
    /// The partition that it is in: the day (UTC) on which it was archived.
    pub day: NaiveDate,
    /// When it came into the archive, by the database's clock.
    pub archived_at: DateTime<Utc>,
    /// When it died; not later than that.
    pub died_at: DateTime<Utc>,
    /// The task's id, where body or headers say one.
    pub task_id: Option<String>,
    /// The task's type, where body or headers say one.
    pub task_type: Option<String>,
    /// The queue that failed.
    pub queue: String,
    /// Why it is dead, as [`DeadReason`](tidegate_core::dispose::DeadReason) words it; a newer program may know more of them.
    pub reason: String,
    /// Kind of the last error.
    pub error_kind: String,
    /// Text of the last error.
    pub error: String,
    /// Attempts that were made.
    pub attempts: i32,
    /// Its group.
    pub fingerprint: Fingerprint,
    /// How far its repair is.
    pub state: DeadLetterState,
    /// The run that has claimed or replayed it.
    pub replay_id: Option<Uuid>,
    /// Which death of its task this is, from 1.
    pub deaths: i32,
}

/// Dead letters, alias `d`, with their messages, alias `m`.
macro_rules! with_messages {
    () => {
        "tidegate.dead_letters d JOIN tidegate.dead_letter_messages m ON m.day = d.day AND m.id = d.id"
    };
}
use with_messages;

/// That a dead letter, of the table alias `d`, is open; as its index has it, too.
macro_rules! is_open {
    () => {
        "d.state = 'OPEN' AND d.replay_id IS NULL AND d.discarded_in IS NULL"
    };
}
use is_open;

/// The columns of a [`Listed`], of the table alias `d`.
macro_rules! listed_columns {
    () => {
        "d.id, d.day, d.archived_at, d.died_at, d.task_id, d.task_type, d.queue, d.reason, d.error_kind, d.error, \
         d.attempts, d.fingerprint, d.state, d.replay_id, d.deaths"
    };
}
use listed_columns;

impl FromRow<'_, PgRow> for Listed {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        Ok(Self {
            id: id(row, "id")?,
            day: row.try_get("day")?,
            archived_at: row.try_get("archived_at")?,
            died_at: row.try_get("died_at")?,
            task_id: row.try_get("task_id")?,
            task_type: row.try_get("task_type")?,
            queue: row.try_get("queue")?,
            reason: row.try_get("reason")?,
            error_kind: row.try_get("error_kind")?,
            error: row.try_get("error")?,
            attempts: row.try_get("attempts")?,
            fingerprint: fingerprint(row, "fingerprint")?,
            state: state(row)?,
            replay_id: row.try_get("replay_id")?,
            deaths: row.try_get("deaths")?,
        })
    }
}

fn id(row: &PgRow, column: &str) -> sqlx::Result<DeadLetterId> {
    row.try_get::<Uuid, _>(column)
        .map(|id| DeadLetterId(id.into_bytes()))
}

fn fingerprint(row: &PgRow, column: &str) -> sqlx::Result<Fingerprint> {
    let bytes: &[u8] = row.try_get(column)?;
    let bytes = bytes.try_into().map_err(|_| unreadable(column, "not 16 bytes"))?;
    Ok(Fingerprint(bytes))
}

fn state(row: &PgRow) -> sqlx::Result<DeadLetterState> {
    let text: &str = row.try_get("state")?;
    DeadLetterState::parse(text).ok_or_else(|| unreadable("state", "a state that this program doesn't know"))
}

/// A value that the table's constraints exclude.
fn unreadable(column: &str, why: &str) -> sqlx::Error {
    sqlx::Error::ColumnDecode {
        index: column.to_owned(),
        source: why.into(),
    }
}
