//! What was decided about rows, written back in one statement.
//!
//! May import: sqlx. The statement is its own transaction: there is no moment at which this process could die or
//! freeze with a lock in its hands. It locks the rows in the order of their ids and passes over those that anybody
//! else has locked, so it waits for no other scheduler and no client's `UPDATE`, and can't deadlock with one. A row
//! at another version than the one decided about is left alone.

use std::{collections::HashSet, time::Duration};

use chrono::{DateTime, Utc};

use super::{Committed, CronTasks, Decision, Fire, Taken, Verdict};
use crate::store::{StoreError, error::is_about_a_row, tasks::NewTask};

/// How long after the read, by the database's clock, a decision may be written: what a frozen process decided before
/// is about another moment.
pub const FRESH: Duration = Duration::from_secs(5);

/// What became of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// Done; read the next rows.
    Done(Committed),
    /// Nothing was written, the decisions are too old: read anew.
    Stale,
    /// Nothing was written: the tables refuse something of one of the rows, because of this.
    Refused(String),
}

// A recorded occurrence is neither recorded nor sent again, though version and accounted_until already see to that.
// `fresh` is asked once, and only clock_timestamp() will do: now() may have been taken when the first half of the
// statement arrived from a process that then froze. `claimed` carries what was decided along: the planner takes both
// for a few rows, and joined them again row by row.
pub(super) const WRITE: &str = "\
    WITH fresh AS MATERIALIZED ( \
      SELECT clock_timestamp() - $1::timestamptz < $2::float8 * interval '1 second' AS yes \
    ), decided AS MATERIALIZED ( \
      SELECT * FROM unnest($3::bigint[], $4::bigint[], $5::timestamptz[], $6::boolean[], $7::text[], $8::timestamptz[], \
        $9::text[]) AS d (id, version, next, exhausted, error, accounted_until, last_task_id) \
    ), claimed AS ( \
      SELECT d.* FROM tidegate.cron_tasks c JOIN decided d ON d.id = c.id \
      WHERE c.version = d.version AND (SELECT yes FROM fresh) ORDER BY c.id FOR NO KEY UPDATE OF c SKIP LOCKED \
    ), written AS ( \
      UPDATE tidegate.cron_tasks c SET next_fire_at = d.next, kept_fire_at = NULL, exhausted = d.exhausted, last_error = d.error, \
        version = c.version + 1, accounted_until = greatest(c.accounted_until, d.accounted_until), \
        last_task_id = coalesce(d.last_task_id, c.last_task_id), \
        last_triggered_at = CASE WHEN d.last_task_id IS NULL THEN c.last_triggered_at ELSE now() END \
      FROM claimed d WHERE c.id = d.id AND c.version = d.version RETURNING c.id \
    ), recorded AS ( \
      INSERT INTO tidegate.cron_fires (cron_task_id, fire_at, last_at, occurrences, outcome, task_id) \
      SELECT f.id, f.first, nullif(f.last, f.first), f.occurrences, f.outcome, f.task_id \
      FROM unnest($10::bigint[], $11::timestamptz[], $12::timestamptz[], $13::bigint[], $14::text[], $15::text[]) \
        AS f (id, first, last, occurrences, outcome, task_id) JOIN written ON written.id = f.id \
      ON CONFLICT (cron_task_id, fire_at) DO NOTHING RETURNING cron_task_id, fire_at, task_id \
    ), sent AS ( \
      INSERT INTO tidegate.tasks (task_id, task_type, exchange, routing_key, envelope, priority, producer, trace_id, \
        origin, due_at) \
      SELECT t.task_id, t.task_type, t.exchange, t.routing_key, t.envelope, t.priority, t.producer, t.trace_id, t.origin, t.due_at \
      FROM unnest($16::text[], $17::text[], $18::text[], $19::text[], $20::text[], $21::smallint[], $22::text[], \
        $23::text[], $24::text[], $25::timestamptz[]) AS t (task_id, task_type, exchange, routing_key, envelope, \
        priority, producer, trace_id, origin, due_at) JOIN recorded ON recorded.task_id = t.task_id \
      ON CONFLICT (task_id) DO NOTHING RETURNING 1 \
    ) \
    SELECT (SELECT yes FROM fresh), (SELECT count(*) FROM written), (SELECT count(*) FROM sent), \
      ARRAY(SELECT cron_task_id FROM recorded ORDER BY cron_task_id, fire_at), \
      ARRAY(SELECT fire_at::timestamptz FROM recorded ORDER BY cron_task_id, fire_at)";

type Answer = (bool, i64, i64, Vec<i64>, Vec<DateTime<Utc>>);

/// Ids that stand for something else than the task that a cron row sends.
const TAKEN: &str = "SELECT s.id, s.task_id FROM unnest($1::bigint[], $2::text[], $3::text[]) AS s (id, task_id, task_type) \
    JOIN tidegate.tasks t ON t.task_id = s.task_id WHERE t.origin <> 'cron' OR t.task_type <> s.task_type";

impl CronTasks<'_> {
    /// Writes back `decisions` about rows read at `read_at`, with their occurrences and tasks, all or nothing. A
    /// decision whose row has another version by now, or is locked by somebody, is left out.
    pub async fn write(&self, read_at: DateTime<Utc>, decisions: &[Decision]) -> Result<Written, StoreError> {
        let fires: Vec<(i64, &Fire)> = decisions
            .iter()
            .flat_map(|d| d.fires.iter().map(|fire| (d.id, fire)))
            .collect();
        let tasks: Vec<&NewTask> = fires.iter().filter_map(|(_, fire)| fire.task.as_ref()).collect();
        let answer: Result<Answer, sqlx::Error> = sqlx::query_as(WRITE)
            .bind(read_at)
            .bind(FRESH.as_secs_f64())
            .bind(column(decisions, |d| d.id))
            .bind(column(decisions, |d| d.version))
            .bind(column(decisions, Decision::next))
            .bind(column(decisions, |d| d.verdict == Verdict::Exhausted))
            .bind(column(decisions, Decision::error))
            .bind(column(decisions, Decision::accounted_until))
            .bind(column(decisions, Decision::last_task_id))
            .bind(column(&fires, |(id, _)| *id))
            .bind(column(&fires, |(_, fire)| fire.span.first))
            .bind(column(&fires, |(_, fire)| fire.span.last))
            .bind(column(&fires, |(_, fire)| {
                i64::try_from(fire.span.occurrences).unwrap_or(i64::MAX)
            }))
            .bind(column(&fires, |(_, fire)| fire.span.outcome.as_str()))
            .bind(column(&fires, |(_, fire)| {
                fire.task.as_ref().map(|task| task.task_id.as_str())
            }))
            .bind(column(&tasks, |t| t.task_id.as_str()))
            .bind(column(&tasks, |t| t.task_type.as_str()))
            .bind(column(&tasks, |t| t.exchange.as_deref()))
            .bind(column(&tasks, |t| t.routing_key.as_deref()))
            .bind(column(&tasks, |t| t.envelope.as_str()))
            .bind(column(&tasks, |t| i16::from(t.priority)))
            .bind(column(&tasks, |t| t.producer.as_deref()))
            .bind(column(&tasks, |t| t.trace_id.as_deref()))
            .bind(column(&tasks, |t| t.origin.as_str()))
            .bind(column(&tasks, |t| t.due_at))
            .fetch_one(self.pool)
            .await;
        match answer {
            Ok((false, ..)) => Ok(Written::Stale),
            Ok((true, rows, sent, ids, instants)) => {
                let recorded: HashSet<_> = ids.into_iter().zip(instants).collect();
                let rows = usize::try_from(rows).unwrap_or_default();
                let fires: Vec<&(i64, &Fire)> = fires
                    .iter()
                    .filter(|(id, fire)| recorded.contains(&(*id, fire.span.first)))
                    .collect();
                Ok(Written::Done(Committed {
                    rows,
                    lost: decisions.len().saturating_sub(rows),
                    taken: self.taken(&fires, sent).await?,
                    fires: fires.iter().map(|(_, fire)| fire.span).collect(),
                }))
            }
            Err(error) if is_about_a_row(&error) => Ok(Written::Refused(StoreError::from(error).to_string())),
            Err(error) => Err(error.into()),
        }
    }
}

impl CronTasks<'_> {
    /// Which of the occurrences recorded have a task whose id was taken, if fewer than all were `sent`.
    async fn taken(&self, fires: &[&(i64, &Fire)], sent: i64) -> Result<Vec<Taken>, StoreError> {
        let tasks: Vec<(i64, &NewTask)> = fires
            .iter()
            .filter_map(|(id, fire)| Some((*id, fire.task.as_ref()?)))
            .collect();
        if usize::try_from(sent).is_ok_and(|sent| sent >= tasks.len()) {
            return Ok(Vec::new());
        }
        let taken: Vec<(i64, String)> = sqlx::query_as(TAKEN)
            .bind(column(&tasks, |(id, _)| *id))
            .bind(column(&tasks, |(_, task)| task.task_id.as_str()))
            .bind(column(&tasks, |(_, task)| task.task_type.as_str()))
            .fetch_all(self.pool)
            .await?;
        Ok(taken
            .into_iter()
            .map(|(id, task_id)| Taken { id, task_id })
            .collect())
    }
}

impl Decision {
    fn next(&self) -> Option<DateTime<Utc>> {
        match self.verdict {
            Verdict::Next(at) => Some(at),
            Verdict::Exhausted | Verdict::Broken(_) => None,
        }
    }

    fn error(&self) -> Option<&str> {
        match &self.verdict {
            Verdict::Broken(why) => Some(why),
            Verdict::Next(_) | Verdict::Exhausted => None,
        }
    }

    fn accounted_until(&self) -> Option<DateTime<Utc>> {
        self.fires.iter().map(|fire| fire.span.last).max()
    }

    fn last_task_id(&self) -> Option<&str> {
        self.fires
            .iter()
            .rev()
            .find_map(|fire| Some(fire.task.as_ref()?.task_id.as_str()))
    }
}

fn column<'a, T, V>(rows: &'a [T], of: impl Fn(&'a T) -> V) -> Vec<V> {
    rows.iter().map(of).collect()
}
