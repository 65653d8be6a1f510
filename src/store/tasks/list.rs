//! Pages of tasks, by key: a page begins where the last one ended, whatever came or went in between.
//!
//! May import: `core`, sqlx. Tasks that wait come first, in the order in which they will be handed over; then all others,
//! those that changed hands or ended last first. Both orders are those of an index, so no page sorts the table or counts
//! its way to an offset. A task that moves from one part to the other between two pages can be seen twice or, moving the
//! other way, not at all.

use std::fmt::{self, Write};

use chrono::{DateTime, Utc};
use sqlx::{Postgres, QueryBuilder, Row, postgres::PgRow};
use tidegate_core::lifecycle::TaskState;

use super::{TaskRecord, Tasks, record_columns};
use crate::store::StoreError;

/// Most tasks of a page.
pub const MAX_PAGE: u32 = 1_000;

/// Which tasks are wanted; all conditions hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// In one of these states; none is any.
    pub states: Vec<TaskState>,
    /// Of this type.
    pub task_type: Option<String>,
    /// Planned for before this instant.
    pub due_before: Option<DateTime<Utc>>,
    /// Planned for this instant or later.
    pub due_after: Option<DateTime<Utc>>,
    /// Something went wrong with them last.
    pub with_error: bool,
}

/// Some tasks, and where the next page begins.
#[derive(Clone, Debug)]
pub struct Page {
    /// The tasks.
    pub tasks: Vec<TaskRecord>,
    /// Where to go on; `None` at the end.
    pub next: Option<Cursor>,
}

/// A place between two tasks of a list; a word without spaces as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    part: Part,
    /// Microseconds since 1970; `None` for a task that has neither been handed over nor ended.
    at: Option<i64>,
    task_id: String,
}

/// A text that is no cursor of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is not a place in a list of tasks; use the one that a page ended with")]
pub struct InvalidCursor;

/// The parts of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Those that wait.
    Waiting,
    /// All others.
    Gone,
}

impl Cursor {
    /// The cursor that `text` shows.
    pub fn parse(text: &str) -> Result<Self, InvalidCursor> {
        let mut parts = text.splitn(3, '.');
        let mut next = || parts.next().ok_or(InvalidCursor);
        let part = match next()? {
            "w" => Part::Waiting,
            "g" => Part::Gone,
            _ => return Err(InvalidCursor),
        };
        let at = match next()? {
            "" => None,
            micros => Some(micros.parse().map_err(|_| InvalidCursor)?),
        };
        let task_id = next()?.to_owned();
        Ok(Self { part, at, task_id })
    }

    fn instant(&self) -> Option<DateTime<Utc>> {
        self.at.and_then(DateTime::from_timestamp_micros)
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char(match self.part {
            Part::Waiting => 'w',
            Part::Gone => 'g',
        })?;
        f.write_char('.')?;
        if let Some(at) = self.at {
            write!(f, "{at}")?;
        }
        write!(f, ".{}", self.task_id)
    }
}

impl Filter {
    fn wants(&self, part: Part) -> bool {
        self.states.is_empty()
            || self
                .states
                .iter()
                .any(|state| (*state == TaskState::Pending) == (part == Part::Waiting))
    }
}

impl Tasks<'_> {
    /// Up to `limit` tasks (at most [`MAX_PAGE`]) behind `after`, or from the beginning.
    pub async fn list(
        &self,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page, StoreError> {
        let limit = limit.clamp(1, MAX_PAGE) as usize;
        let mut found: Vec<(Cursor, TaskRecord)> = Vec::new();
        for part in [Part::Waiting, Part::Gone] {
            let begun = after.filter(|cursor| cursor.part == part);
            let passed = part == Part::Waiting && after.is_some_and(|cursor| cursor.part == Part::Gone);
            if passed || !filter.wants(part) || found.len() > limit {
                continue;
            }
            // One more than asked for tells whether there is another page.
            let mut query = statement(part, filter, begun, limit + 1 - found.len());
            for row in query.build().fetch_all(self.pool).await? {
                found.push(placed(part, &row)?);
            }
        }
        let more = found.len() > limit;
        found.truncate(limit);
        let next = found.last().filter(|_| more).map(|(cursor, _)| cursor.clone());
        Ok(Page {
            tasks: found.into_iter().map(|(_, task)| task).collect(),
            next,
        })
    }
}

fn placed(part: Part, row: &PgRow) -> Result<(Cursor, TaskRecord), StoreError> {
    let task: TaskRecord = sqlx::FromRow::from_row(row)?;
    let at: Option<DateTime<Utc>> = row.try_get("place")?;
    let cursor = Cursor {
        part,
        at: at.map(|at| at.timestamp_micros()),
        task_id: task.task_id.clone(),
    };
    Ok((cursor, task))
}

/// The statement of one part, in the order of its index.
fn statement(part: Part, filter: &Filter, after: Option<&Cursor>, limit: usize) -> QueryBuilder<Postgres> {
    let mut sql = QueryBuilder::new(match part {
        Part::Waiting => concat!(
            "SELECT ready_at AS place, ",
            record_columns!(),
            " FROM tidegate.tasks WHERE ready_at IS NOT NULL"
        ),
        Part::Gone => concat!(
            "SELECT coalesce(finished_at, published_at) AS place, ",
            record_columns!(),
            " FROM tidegate.tasks WHERE ready_at IS NULL"
        ),
    });
    if let Some(after) = after {
        let id = after.task_id.as_str();
        match (part, after.instant()) {
            (Part::Waiting, at) => {
                sql.push(" AND (ready_at, task_id) > (").push_bind(at);
                sql.push(", ").push_bind(id).push(")");
            }
            (Part::Gone, Some(at)) => {
                sql.push(" AND (coalesce(finished_at, published_at), task_id) < (")
                    .push_bind(at);
                sql.push(", ").push_bind(id).push(")");
            }
            // Those without a time come first.
            (Part::Gone, None) => {
                sql.push(" AND (coalesce(finished_at, published_at) IS NOT NULL OR task_id < ")
                    .push_bind(id);
                sql.push(")");
            }
        }
    }
    if !filter.states.is_empty() {
        let states: Vec<&str> = filter.states.iter().map(|state| state.as_str()).collect();
        sql.push(" AND state = ANY (").push_bind(states).push(")");
    }
    if let Some(task_type) = &filter.task_type {
        sql.push(" AND task_type = ").push_bind(task_type.as_str());
    }
    if let Some(before) = filter.due_before {
        sql.push(" AND due_at < ").push_bind(before);
    }
    if let Some(from) = filter.due_after {
        sql.push(" AND due_at >= ").push_bind(from);
        if part == Part::Waiting {
            // Nothing is ready before it is due: the index begins there.
            sql.push(" AND ready_at >= ").push_bind(from);
        }
    }
    if filter.with_error {
        sql.push(" AND last_error IS NOT NULL");
    }
    sql.push(match part {
        Part::Waiting => " ORDER BY ready_at, task_id LIMIT ",
        Part::Gone => " ORDER BY coalesce(finished_at, published_at) DESC, task_id DESC LIMIT ",
    });
    sql.push_bind(i64::try_from(limit).unwrap_or(i64::MAX));
    sql
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_is_shown() {
        for text in ["w.1743595201000000.a:b.c-d", "g..x", "g.-1.x"] {
            assert_eq!(Cursor::parse(text).unwrap().to_string(), text);
        }
        for text in ["", "w", "w.1", "x.1.a", "w.one.a"] {
            assert_eq!(Cursor::parse(text), Err(InvalidCursor), "{text}");
        }
    }
}
