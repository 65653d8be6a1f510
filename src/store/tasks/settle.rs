//! What became of tasks, written into their rows, all that take it.
//!
//! May import: sqlx. A part that the tables refuse is undone to a savepoint, which keeps the locks, and its halves are
//! written on their own, until the row to blame stands alone. Whatever is not written when this ends, by an error of the
//! database or because the caller gave up, is remembered in `unwritten`. Dying in between leaves the rows due.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use sqlx::{PgConnection, Postgres, Transaction};

use super::{
    DueTask, Failure, SetAside, Settlement,
    unwritten::{Fate, Unwritten},
};
use crate::store::{StoreError, error::is_about_the_database};

/// A row that could not be written, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The task.
    pub task_id: String,
    /// What the database said.
    pub why: String,
    /// Whether the broker has it: then it is not sent again by this process.
    pub published: bool,
}

/// What is being written: remembered when it is dropped, but for what was written.
pub(super) struct Held<'a> {
    pub(super) unwritten: Arc<Unwritten>,
    pub(super) outcome: &'a Settlement,
    pub(super) tasks: &'a [DueTask],
    /// All but these were written; `None`: nothing was.
    pub(super) refused: Option<HashSet<String>>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let alone = self.refused.is_some();
        let kept = |id: &str| self.refused.as_ref().is_none_or(|refused| refused.contains(id));
        if alone {
            let written = self.outcome.ids().filter(|id| !kept(id));
            self.unwritten.forget(written);
        }
        let fates: HashMap<&str, Fate> = self.outcome.fates().filter(|(id, _)| kept(id)).collect();
        if fates.is_empty() {
            return;
        }
        for task in self.tasks {
            if let Some(fate) = fates.get(task.task_id.as_str()) {
                let mark = (task.publish_attempts, task.next_try_at);
                self.unwritten.remember(&task.task_id, fate.clone(), mark, alone);
            }
        }
    }
}

impl Settlement {
    pub(super) fn ids(&self) -> impl Iterator<Item = &str> {
        self.fates().map(|(id, _)| id)
    }

    fn fates(&self) -> impl Iterator<Item = (&str, Fate)> {
        let published = self.published.iter().map(|id| (id.as_str(), Fate::Published));
        let failures = self
            .failures
            .iter()
            .map(|f| (f.task_id.as_str(), Fate::Waits(f.after)));
        let set_aside = self
            .set_aside
            .iter()
            .map(|s| (s.task_id.as_str(), Fate::SetAside(s.error.clone())));
        published.chain(failures).chain(set_aside)
    }

    fn len(&self) -> usize {
        self.published.len() + self.failures.len() + self.set_aside.len()
    }

    fn halves(mut self) -> [Self; 2] {
        fn half<T>(all: &mut Vec<T>, size: &mut usize) -> Vec<T> {
            let taken = (*size).min(all.len());
            *size -= taken;
            all.drain(..taken).collect()
        }
        let mut size = self.len() / 2;
        let first = Self {
            published: half(&mut self.published, &mut size),
            failures: half(&mut self.failures, &mut size),
            set_aside: half(&mut self.set_aside, &mut size),
        };
        [first, self]
    }
}

/// Writes `outcome` into rows that `tx` has locked, behind its savepoint `sent`. Answers which rows are to blame for
/// not being written.
pub(super) async fn write(
    tx: &mut Transaction<'static, Postgres>,
    outcome: &Settlement,
) -> Result<Vec<Refused>, StoreError> {
    let Err(error) = write_whole(tx, outcome).await else {
        return Ok(Vec::new());
    };
    let mut refused = Vec::new();
    let mut missing = None;
    let mut open = vec![(outcome.clone(), error)];
    while let Some((part, error)) = open.pop() {
        if is_about_the_database(&error) {
            return Err(error.into());
        }
        sqlx::raw_sql("ROLLBACK TO SAVEPOINT sent")
            .execute(&mut **tx)
            .await?;
        if part.len() <= 1 {
            let published = !part.published.is_empty();
            let error = StoreError::from(error);
            let why = error.to_string();
            // A right or a column that is missing is missing for all, or is one that somebody's trigger needs.
            if matches!(error, StoreError::Forbidden(_) | StoreError::SchemaMissing(_)) {
                missing = Some(error);
            }
            let task_id = part.ids().next().unwrap_or_default().to_owned();
            tell_row(tx, &task_id, &why, published).await?;
            refused.push(Refused {
                task_id,
                why,
                published,
            });
            continue;
        }
        for half in part.halves() {
            match write_whole(tx, &half).await {
                Ok(()) => {
                    // What is written stays, whatever the next half does.
                    sqlx::raw_sql("SAVEPOINT sent").execute(&mut **tx).await?;
                }
                Err(error) if is_about_the_database(&error) => return Err(error.into()),
                Err(error) => {
                    sqlx::raw_sql("ROLLBACK TO SAVEPOINT sent")
                        .execute(&mut **tx)
                        .await?;
                    open.push((half, error));
                }
            }
        }
    }
    match missing {
        Some(error) if refused.len() > 1 && refused.len() == outcome.len() => Err(error),
        _ => Ok(refused),
    }
}

/// The row says itself what is wrong, if it takes that much.
async fn tell_row(
    tx: &mut Transaction<'static, Postgres>,
    task_id: &str,
    why: &str,
    published: bool,
) -> Result<(), StoreError> {
    let what = if published {
        "the broker has it, but its row can't be written"
    } else {
        "its row can't be written"
    };
    let told = sqlx::query(
        "UPDATE tidegate.tasks SET last_error = $2, maybe_sent = maybe_sent OR $3 WHERE task_id = $1 AND state = 'PENDING'",
    )
    .bind(task_id)
    .bind(format!("{what}: {why}"))
    .bind(published)
    .execute(&mut **tx)
    .await;
    let after = if told.is_ok() {
        "SAVEPOINT sent"
    } else {
        "ROLLBACK TO SAVEPOINT sent"
    };
    sqlx::raw_sql(after).execute(&mut **tx).await?;
    Ok(())
}

async fn write_whole(connection: &mut PgConnection, outcome: &Settlement) -> Result<(), sqlx::Error> {
    mark_published(connection, &outcome.published).await?;
    let_wait(connection, &outcome.failures).await?;
    set_aside(connection, &outcome.set_aside).await
}

async fn mark_published(connection: &mut PgConnection, published: &[String]) -> Result<(), sqlx::Error> {
    if published.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "UPDATE tidegate.tasks SET state = 'PUBLISHED', published_at = clock_timestamp(), \
         next_try_at = NULL, last_error = NULL, maybe_sent = false WHERE task_id = ANY ($1) AND state = 'PENDING'",
    )
    .bind(published)
    .execute(connection)
    .await?;
    Ok(())
}

async fn let_wait(connection: &mut PgConnection, failures: &[Failure]) -> Result<(), sqlx::Error> {
    if failures.is_empty() {
        return Ok(());
    }
    let ids: Vec<&str> = failures.iter().map(|f| f.task_id.as_str()).collect();
    let errors: Vec<&str> = failures.iter().map(|f| f.error.as_str()).collect();
    let waits: Vec<f64> = failures.iter().map(|f| f.after.as_secs_f64()).collect();
    let maybe_sent: Vec<bool> = failures.iter().map(|f| f.maybe_sent).collect();
    sqlx::query(
        "UPDATE tidegate.tasks t SET last_error = f.error, publish_attempts = least(t.publish_attempts, 2147483646) + 1, \
         next_try_at = clock_timestamp() + interval '1 second' * f.wait, maybe_sent = t.maybe_sent OR f.maybe_sent \
         FROM unnest($1::text[], $2::text[], $3::float8[], $4::bool[]) AS f (task_id, error, wait, maybe_sent) \
         WHERE t.task_id = f.task_id AND t.state = 'PENDING'",
    )
    .bind(ids)
    .bind(errors)
    .bind(waits)
    .bind(maybe_sent)
    .execute(connection)
    .await?;
    Ok(())
}

async fn set_aside(connection: &mut PgConnection, set_aside: &[SetAside]) -> Result<(), sqlx::Error> {
    if set_aside.is_empty() {
        return Ok(());
    }
    let ids: Vec<&str> = set_aside.iter().map(|s| s.task_id.as_str()).collect();
    let errors: Vec<&str> = set_aside.iter().map(|s| s.error.as_str()).collect();
    sqlx::query(
        "UPDATE tidegate.tasks t SET state = 'FAILED', last_error = s.error, finished_at = clock_timestamp(), \
         next_try_at = NULL FROM unnest($1::text[], $2::text[]) AS s (task_id, error) \
         WHERE t.task_id = s.task_id AND t.state = 'PENDING'",
    )
    .bind(ids)
    .bind(errors)
    .execute(connection)
    .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn halves_hold_everything_once_and_get_smaller() {
        let task = |n: usize| n.to_string();
        let all = Settlement {
            published: (0..3).map(task).collect(),
            failures: vec![Failure {
                task_id: task(3),
                error: String::new(),
                after: Duration::ZERO,
                maybe_sent: false,
            }],
            set_aside: vec![SetAside {
                task_id: task(4),
                error: String::new(),
            }],
        };
        let (mut open, mut alone) = (vec![all], Vec::new());
        while let Some(part) = open.pop() {
            if part.len() == 1 {
                alone.extend(part.ids().map(str::to_owned));
            } else {
                let halves = part.halves();
                assert!(halves.iter().all(|half| half.len() > 0));
                open.extend(halves);
            }
        }
        alone.sort();
        assert_eq!(alone, ["0", "1", "2", "3", "4"]);
    }
}
