//! Who did what, when and why: written in the transaction of what it tells of, read page by page, never changed.
//!
//! May import: `core`, sqlx. Whoever dies before the commit has neither done it nor told of it.

use chrono::{DateTime, Utc};
use sqlx::{FromRow, PgConnection, PgPool, Postgres, QueryBuilder};
use uuid::Uuid;

use super::{Store, StoreError};

/// Most rows of a page.
pub const MAX_PAGE: u32 = 1_000;

/// Longest name of somebody, in bytes.
pub const MAX_WHO_BYTES: usize = 255;

/// Longest reason, in bytes.
pub const MAX_WHY_BYTES: usize = 4_096;

/// What somebody did; the words of the column `what`.
pub mod what {
    /// A run of replays was begun.
    pub const REPLAY: &str = "dead_letter.replay";
    /// A dead letter went out with another body.
    pub const EDIT: &str = "dead_letter.edit";
    /// Dead letters were discarded.
    pub const DISCARD: &str = "dead_letter.discard";
    /// A run was told to stop.
    pub const STOP: &str = "replay.stop";
    /// A run was taken over by hand.
    pub const RESUME: &str = "replay.resume";
}

/// A row to be.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'e> {
    /// Who, 1 to [`MAX_WHO_BYTES`].
    pub who: &'e str,
    /// One of [`what`].
    pub what: &'static str,
    /// An id, or a filter's text; at most 64 KiB.
    pub subject: &'e str,
    /// At most [`MAX_WHY_BYTES`].
    pub why: &'e str,
    /// The run that it belongs to.
    pub replay_id: Option<Uuid>,
    /// Bytes before, where something was edited.
    pub before: Option<&'e [u8]>,
    /// And after.
    pub after: Option<&'e [u8]>,
}

/// A row.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct Record {
    /// Its number; later ones are higher, but for those that were written at the same time.
    pub id: i64,
    /// When, by the database's clock.
    pub at: DateTime<Utc>,
    /// Who.
    pub who: String,
    /// One of [`what`], or what a newer program knows.
    pub what: String,
    /// An id, or a filter's text.
    pub subject: String,
    /// Why.
    pub why: String,
    /// The run that it belongs to.
    pub replay_id: Option<Uuid>,
    /// Bytes before; `None` also where they were not asked for.
    pub before: Option<Vec<u8>>,
    /// Bytes after; `None` also where they were not asked for.
    pub after: Option<Vec<u8>>,
}

/// Which rows are wanted; all conditions hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// By them.
    pub who: Option<String>,
    /// One of these deeds; none is any.
    pub what: Vec<String>,
    /// About exactly this: a dead letter's id, or a filter's text.
    pub subject: Option<String>,
    /// Of this run.
    pub replay_id: Option<Uuid>,
    /// Then or later.
    pub since: Option<DateTime<Utc>>,
    /// Before that.
    pub until: Option<DateTime<Utc>>,
    /// With the bytes before and after.
    pub full: bool,
}

/// Writes `entry` within the transaction that `on` is in; its number.
pub(super) async fn write(on: &mut PgConnection, entry: &Entry<'_>) -> Result<i64, StoreError> {
    let id = sqlx::query_scalar(
        "INSERT INTO tidegate.audit_log (who, what, subject, why, replay_id, before, after) \
         VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING id",
    )
    .bind(entry.who)
    .bind(entry.what)
    .bind(entry.subject)
    .bind(entry.why)
    .bind(entry.replay_id)
    .bind(entry.before)
    .bind(entry.after)
    .fetch_one(on)
    .await?;
    Ok(id)
}

impl Store {
    /// The audit log.
    pub fn audit(&self) -> Audit<'_> {
        Audit { pool: &self.pool }
    }
}

/// Access to `tidegate.audit_log`.
#[derive(Clone, Copy, Debug)]
pub struct Audit<'a> {
    pool: &'a PgPool,
}

impl Audit<'_> {
    /// Up to `limit` rows (at most [`MAX_PAGE`]), latest first, that were written before the one with the number `before`.
    pub async fn list(
        &self,
        wanted: &Wanted,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<Record>, StoreError> {
        let mut sql = QueryBuilder::<Postgres>::new(if wanted.full {
            "SELECT id, at, who, what, subject, why, replay_id, before, after FROM tidegate.audit_log WHERE true"
        } else {
            "SELECT id, at, who, what, subject, why, replay_id, NULL::bytea AS before, NULL::bytea AS after \
             FROM tidegate.audit_log WHERE true"
        });
        if let Some(before) = before {
            sql.push(" AND id < ").push_bind(before);
        }
        if let Some(who) = &wanted.who {
            sql.push(" AND who = ").push_bind(who.clone());
        }
        if !wanted.what.is_empty() {
            sql.push(" AND what = ANY (")
                .push_bind(wanted.what.clone())
                .push(")");
        }
        if let Some(subject) = &wanted.subject {
            sql.push(" AND subject = ").push_bind(subject.clone());
            if subject.len() <= 64 {
                // The index is on those.
                sql.push(" AND octet_length(subject) <= 64");
            }
        }
        if let Some(run) = wanted.replay_id {
            sql.push(" AND replay_id = ").push_bind(run);
        }
        if let Some(since) = wanted.since {
            sql.push(" AND at >= ").push_bind(since);
        }
        if let Some(until) = wanted.until {
            sql.push(" AND at < ").push_bind(until);
        }
        sql.push(" ORDER BY id DESC LIMIT ")
            .push_bind(i64::from(limit.clamp(1, MAX_PAGE)));
        Ok(sql.build_query_as().fetch_all(self.pool).await?)
    }

    /// The row with this number.
    pub async fn get(&self, id: i64) -> Result<Option<Record>, StoreError> {
        let sql = "SELECT id, at, who, what, subject, why, replay_id, before, after FROM tidegate.audit_log WHERE id = $1";
        Ok(sqlx::query_as(sql).bind(id).fetch_optional(self.pool).await?)
    }
}
