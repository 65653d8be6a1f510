//! The days of the archive: a partition for each, made before it begins, dropped when it has been kept long enough.
//!
//! May import: sqlx. Both are functions of the schema's, because whoever archives need not own the tables. Neither waits for
//! long, and nobody waits long for them: a day is made apart and attached, and dropped within a fifth of a second or not this
//! time. Any number of processes may call either.

use std::time::Duration;

use chrono::{DateTime, NaiveDate, Utc};
use sqlx::Row;

use super::DeadLetters;
use crate::store::StoreError;

/// A partition that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Its first day.
    pub since: NaiveDate,
    /// The day after its last.
    pub until: NaiveDate,
    /// How many dead letters it held.
    pub letters: u64,
    /// How many of them nobody had dealt with.
    pub open: u64,
}

impl DeadLetters<'_> {
    /// Makes the partitions of today and tomorrow, as far as they are missing; returns the database's clock.
    pub async fn make_days(&self) -> Result<DateTime<Utc>, StoreError> {
        let row = sqlx::query(
            "SELECT c.now, tidegate.dead_letters_make_day(c.today), tidegate.dead_letters_make_day(c.today + 1) \
             FROM (SELECT clock_timestamp() AS now, (clock_timestamp() AT TIME ZONE 'UTC')::date AS today OFFSET 0) AS c",
        )
        .fetch_one(self.pool)
        .await?;
        Ok(row.try_get(0)?)
    }

    /// Drops the oldest partition all of whose dead letters have been kept for longer than `keep`, with its counts. `None`: there
    /// is none, another process is at it, or a replay has claimed something in each.
    ///
    /// # Errors
    /// [`StoreError::Busy`] while somebody reads or writes the archive: try again.
    pub async fn drop_day(&self, keep: Duration) -> Result<Option<Dropped>, StoreError> {
        let row = sqlx::query("SELECT since, until, letters, open FROM tidegate.dead_letters_drop_day($1)")
            .bind(keep.as_secs_f64())
            .fetch_optional(self.pool)
            .await?;
        let Some(row) = row else { return Ok(None) };
        Ok(Some(Dropped {
            since: row.try_get("since")?,
            until: row.try_get("until")?,
            letters: row.try_get::<i64, _>("letters")?.unsigned_abs(),
            open: row.try_get::<i64, _>("open")?.unsigned_abs(),
        }))
    }

    /// How many dead letters nobody has dealt with, by task type; from the counts.
    pub async fn open_by_type(&self) -> Result<Vec<(Option<String>, u64)>, StoreError> {
        let rows: Vec<(Option<String>, i64)> = sqlx::query_as(
            "SELECT task_type, sum(open)::bigint FROM tidegate.dead_letter_counts GROUP BY task_type",
        )
        .fetch_all(self.pool)
        .await?;
        Ok(rows
            .into_iter()
            .map(|(task_type, open)| (task_type, open.unsigned_abs()))
            .collect())
    }
}
