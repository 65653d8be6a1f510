//! Pages of dead letters, newest first, by key: a page begins where the last one ended, whatever came or went in between.
//!
//! May import: `core`, sqlx. Each day is a partition and is walked by itself, newest first, so that a page reads the
//! indexes of one day or a few, however many days the archive holds. Which days there are is read from the counts.

use std::fmt;

use chrono::{DateTime, Days, NaiveDate, NaiveTime, TimeDelta, Utc};
use sqlx::{Postgres, QueryBuilder};
use tidegate_core::{dead_letter::DeadLetterId, dead_letter_filter::Filter};
use uuid::Uuid;

use super::{DeadLetters, Listed, filter, listed_columns};
use crate::store::StoreError;

/// Most dead letters of a page.
pub const MAX_PAGE: u32 = 1_000;

/// Some dead letters, and where the next page begins.
#[derive(Clone, Debug)]
pub struct Page {
    /// The dead letters, newest first.
    pub letters: Vec<Listed>,
    /// Where to go on; `None` at the end.
    pub next: Option<Cursor>,
}

/// A place between two dead letters of a list; a word without spaces as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    day: NaiveDate,
    archived_at: DateTime<Utc>,
    id: DeadLetterId,
}

/// A text that is no cursor of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is not a place in a list of dead letters; use the one that a page ended with")]
pub struct InvalidCursor;

const DAY: &str = "%Y%m%d";

impl Cursor {
    /// The cursor that `text` shows.
    pub fn parse(text: &str) -> Result<Self, InvalidCursor> {
        let mut parts = text.split('.');
        let mut next = || parts.next().ok_or(InvalidCursor);
        let (day, micros, id) = (next()?, next()?, next()?);
        let micros = micros.parse().map_err(|_| InvalidCursor)?;
        let cursor = Self {
            day: NaiveDate::parse_from_str(day, DAY).map_err(|_| InvalidCursor)?,
            archived_at: DateTime::from_timestamp_micros(micros).ok_or(InvalidCursor)?,
            id: DeadLetterId::parse(id).ok_or(InvalidCursor)?,
        };
        // One place has one text, and nothing follows it.
        Some(cursor)
            .filter(|cursor| cursor.to_string() == text)
            .ok_or(InvalidCursor)
    }

    fn behind(letter: &Listed) -> Self {
        Self {
            day: letter.day,
            archived_at: letter.archived_at,
            id: letter.id,
        }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}.{}.{}",
            self.day.format(DAY),
            self.archived_at.timestamp_micros(),
            self.id
        )
    }
}

impl DeadLetters<'_> {
    /// Up to `limit` dead letters (at most [`MAX_PAGE`]) that `filter` means, behind `after` or from the newest on.
    pub async fn list(
        &self,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page, StoreError> {
        let limit = limit.clamp(1, MAX_PAGE) as usize;
        let mut letters: Vec<Listed> = Vec::new();
        let mut day = self.day_until(after.map(|cursor| cursor.day)).await?;
        while let Some(this) = day {
            let begun = after.filter(|cursor| cursor.day == this);
            // One more than asked for tells whether there is another page.
            let mut query = statement(filter, this, begun, limit + 1 - letters.len());
            letters.extend(query.build_query_as::<Listed>().fetch_all(self.pool).await?);
            if letters.len() > limit {
                break;
            }
            day = self.day_before(this).await?;
        }
        let more = letters.len() > limit;
        letters.truncate(limit);
        let next = letters.last().filter(|_| more).map(Cursor::behind);
        Ok(Page { letters, next })
    }

    /// The latest day before `day` on which something was archived.
    pub(super) async fn day_before(&self, day: NaiveDate) -> Result<Option<NaiveDate>, StoreError> {
        match day.checked_sub_days(Days::new(1)) {
            Some(before) => self.day_until(Some(before)).await,
            None => Ok(None),
        }
    }

    /// The latest day not after `last` on which something was archived.
    pub(super) async fn day_until(&self, last: Option<NaiveDate>) -> Result<Option<NaiveDate>, StoreError> {
        let sql =
            "SELECT max(day) FROM tidegate.dead_letter_counts WHERE day <= coalesce($1, 'infinity'::date)";
        Ok(sqlx::query_scalar(sql).bind(last).fetch_one(self.pool).await?)
    }
}

/// Appends that a row is of `day`. Of a partition that was never analysed the planner takes one day for a small part of it,
/// and would read all of its primary key; with a span of time every index that ends in `archived_at` serves better. A row
/// whose transaction began at midnight has the day before, so the span is a day longer at both ends.
pub(super) fn push_day(sql: &mut QueryBuilder<Postgres>, day: NaiveDate) {
    let begin = day.and_time(NaiveTime::MIN).and_utc();
    sql.push("d.day = ").push_bind(day);
    sql.push(" AND d.archived_at >= ")
        .push_bind(begin - TimeDelta::days(1));
    sql.push(" AND d.archived_at < ")
        .push_bind(begin + TimeDelta::days(2));
}

/// The statement of one day, in the order of its indexes.
fn statement(
    filter: &Filter,
    day: NaiveDate,
    after: Option<&Cursor>,
    limit: usize,
) -> QueryBuilder<Postgres> {
    let mut sql = QueryBuilder::new(concat!(
        "SELECT ",
        listed_columns!(),
        " FROM tidegate.dead_letters d WHERE "
    ));
    push_day(&mut sql, day);
    if let Some(after) = after {
        sql.push(" AND (d.archived_at, d.id) < (")
            .push_bind(after.archived_at);
        sql.push(", ").push_bind(Uuid::from_bytes(after.id.0)).push(")");
    }
    filter::push(&mut sql, filter);
    sql.push(" ORDER BY d.archived_at DESC, d.id DESC LIMIT ");
    sql.push_bind(i64::try_from(limit).unwrap_or(i64::MAX));
    sql
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_is_shown() {
        let text = "20260402.1743595201000001.0196a5e0-7f20-4f1b-ae7d-00000000000f";
        assert_eq!(Cursor::parse(text).unwrap().to_string(), text);
        for text in [
            "",
            "20260402",
            &format!("{text}.x"),
            "2026.1.a",
            &text.to_uppercase(),
            &format!("{text} "),
        ] {
            assert_eq!(Cursor::parse(text), Err(InvalidCursor), "{text}");
        }
    }
}
