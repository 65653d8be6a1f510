//! How a run takes dead letters: claims a batch, finds its claims again.
//!
//! May import: `core`, sqlx. Each is one statement that first locks the run's row and looks at its fence, so that a process
//! which has lost the run changes nothing, and that waits for no dead letter which somebody else has locked: whoever has it
//! is dealing with it. If the process dies
//! - after a claim: the rows say `REPLAYING` and the run's id, and are published by whoever takes the run over;
//! - after the publish: the same, and they are published again, under the same task ids;
//! - after it was [written down](super::settle): they are `REPLAYED`, and the audit has what was edited.
//!
//! A claim walks the days one by one, each a partition, in the order of the index of open rows. It writes by the place it
//! found: no statistics can make the planner read a day's rows instead.

use chrono::{DateTime, Days, NaiveDate, NaiveTime, TimeDelta, Utc};
use sqlx::{FromRow, Postgres, QueryBuilder, Row, postgres::PgRow};
use tidegate_core::{dead_letter::DeadLetterId, dead_letter_filter::Filter};
use uuid::Uuid;

use super::{DeadLetters, filter, is_open, runs::Hold, with_messages};
use crate::store::StoreError;

/// A claimed dead letter: all that its message is made of again.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// Its id.
    pub id: DeadLetterId,
    /// Its partition.
    pub day: NaiveDate,
    /// The task's id, where body or headers say one.
    pub task_id: Option<String>,
    /// The task's type, where body or headers say one.
    pub task_type: Option<String>,
    /// The queue that failed.
    pub queue: String,
    /// The key it was first published with.
    pub routing_key: Option<String>,
    /// Why it is dead.
    pub reason: String,
    /// The bytes that were sent.
    pub body: Vec<u8>,
    /// Properties and headers, as the archive keeps them.
    pub properties: String,
    /// The task id that it goes out with, as far as it is written down.
    pub sent_task_id: Option<String>,
}

/// Where a run's walk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walk {
    /// The day it is at; `None`: to be looked up.
    day: Option<NaiveDate>,
    /// What is behind it.
    after: Option<(DateTime<Utc>, Uuid)>,
    /// Whether it goes over everything a second time, for what others had locked and let go.
    again: bool,
    /// Whether it is over.
    ended: bool,
}

/// Some claimed dead letters of one day.
#[derive(Clone, Debug)]
pub struct Batch {
    /// They, in the order of the archive.
    pub letters: Vec<Claimed>,
    /// Where to go on.
    pub walk: Walk,
}

impl Walk {
    /// A walk that goes on where the run's row says.
    pub fn from(at: Option<(DateTime<Utc>, Uuid)>) -> Self {
        Self {
            day: None,
            after: at,
            again: false,
            ended: false,
        }
    }

    /// From the beginning, for the last time.
    fn once_more() -> Self {
        Self {
            again: true,
            ..Self::from(None)
        }
    }

    /// Whether all there is has been looked at.
    pub fn has_ended(&self) -> bool {
        self.ended
    }
}

/// The columns of a [`Claimed`] but for its message, of the table alias `d`.
macro_rules! claimed_columns {
    () => {
        "d.id, d.day, d.archived_at, d.task_id, d.task_type, d.queue, d.routing_key, d.reason, d.sent_task_id"
    };
}

pub(super) use claimed_columns;

pub(super) struct Found(Option<(Claimed, DateTime<Utc>)>);

impl Found {
    pub(super) fn letter(self) -> Option<Claimed> {
        self.0.map(|(letter, _)| letter)
    }
}

impl FromRow<'_, PgRow> for Found {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let Some(id) = row.try_get::<Option<Uuid>, _>("id")? else {
            return Ok(Self(None));
        };
        let claimed = Claimed {
            id: DeadLetterId(id.into_bytes()),
            day: row.try_get("day")?,
            task_id: row.try_get("task_id")?,
            task_type: row.try_get("task_type")?,
            queue: row.try_get("queue")?,
            routing_key: row.try_get("routing_key")?,
            reason: row.try_get("reason")?,
            body: row.try_get("body")?,
            properties: row.try_get("properties")?,
            sent_task_id: row.try_get("sent_task_id")?,
        };
        Ok(Self(Some((claimed, row.try_get("archived_at")?))))
    }
}

impl DeadLetters<'_> {
    /// Claims at most `count` open dead letters that `filter` means and the run may take, where `walk` is. Fewer than that may
    /// come while the walk has not ended. `None`: the run is in other hands.
    pub async fn claim(
        &self,
        hold: &Hold,
        wanted: &Filter,
        mut walk: Walk,
        count: u64,
    ) -> Result<Option<Batch>, StoreError> {
        let day = match walk.day {
            Some(day) => day,
            None => {
                // A transaction that began before midnight may have the day before.
                let from = walk.after.map(|(at, _)| at.date_naive() - Days::new(1));
                match self.next_open_day(from, hold.began_at).await? {
                    Some(day) => day,
                    None => return self.over(hold, walk).await,
                }
            }
        };
        let mut sql = QueryBuilder::<Postgres>::new(
            "WITH run AS MATERIALIZED (SELECT FROM tidegate.replays WHERE state = 'RUNNING' AND id = ",
        );
        let run = hold.run;
        sql.push_bind(run).push(" AND fence = ").push_bind(hold.fence);
        sql.push(
            concat!(" FOR NO KEY UPDATE), picked AS MATERIALIZED (SELECT d.ctid AS place FROM tidegate.dead_letters d \
              WHERE EXISTS (SELECT FROM run) AND ", is_open!(), " AND d.day = "),
        );
        sql.push_bind(day)
            .push(" AND d.archived_at < ")
            .push_bind(hold.began_at);
        match walk.after {
            Some((archived_at, id)) => {
                sql.push(" AND (d.archived_at, d.id) > (").push_bind(archived_at);
                sql.push(", ").push_bind(id).push(")");
            }
            // Of a day that was never analysed the planner takes `day = …` for a small part; a span of time leads it to the
            // index that is in the order of the walk.
            None => {
                let begin = day.and_time(NaiveTime::MIN).and_utc();
                sql.push(" AND d.archived_at >= ")
                    .push_bind(begin - TimeDelta::days(1));
            }
        }
        sql.push(" AND d.refused_by IS DISTINCT FROM ").push_bind(run);
        sql.push(" AND d.sent_by IS DISTINCT FROM ").push_bind(run);
        filter::push(&mut sql, wanted);
        sql.push(" ORDER BY d.archived_at, d.id LIMIT ");
        sql.push_bind(i64::try_from(count).unwrap_or(i64::MAX));
        sql.push(
            " FOR NO KEY UPDATE OF d SKIP LOCKED), taken AS (\
               UPDATE tidegate.dead_letters d SET state = 'REPLAYING', sent_task_id = d.task_id, replay_id = ",
        );
        sql.push_bind(run).push(" WHERE d.day = ").push_bind(day);
        sql.push(concat!(
            " AND d.state = 'OPEN' AND d.ctid = ANY (ARRAY(SELECT place FROM picked)) RETURNING ",
            claimed_columns!(),
            "), moved AS (UPDATE tidegate.replays r SET at_archived = l.archived_at, at_id = l.id \
               FROM (SELECT archived_at, id FROM taken ORDER BY archived_at DESC, id DESC LIMIT 1) AS l WHERE r.id = "
        ));
        sql.push_bind(run);
        sql.push(concat!(
            ") SELECT ",
            claimed_columns!(),
            ", m.body, m.properties FROM run LEFT JOIN (taken d JOIN tidegate.dead_letter_messages m ON m.id = d.id AND m.day = "
        ));
        sql.push_bind(day).push(") ON true ORDER BY d.archived_at, d.id");
        let found: Vec<Found> = sql.build_query_as().fetch_all(self.pool).await?;
        if found.is_empty() {
            return Ok(None);
        }
        let mut letters = Vec::with_capacity(found.len());
        for (letter, archived_at) in found.into_iter().filter_map(|found| found.0) {
            walk.after = Some((archived_at, Uuid::from_bytes(letter.id.0)));
            letters.push(letter);
        }
        walk.day = Some(day);
        if (letters.len() as u64) < count {
            match self
                .next_open_day(Some(day + Days::new(1)), hold.began_at)
                .await?
            {
                Some(next) => walk.day = Some(next),
                None if walk.again => walk.ended = true,
                None => walk = Walk::once_more(),
            }
        }
        Ok(Some(Batch { letters, walk }))
    }

    /// The answer where no day is left.
    async fn over(&self, hold: &Hold, walk: Walk) -> Result<Option<Batch>, StoreError> {
        let is_held: bool = sqlx::query_scalar(
            "SELECT EXISTS (SELECT FROM tidegate.replays WHERE id = $1 AND fence = $2 AND state = 'RUNNING')",
        )
        .bind(hold.run)
        .bind(hold.fence)
        .fetch_one(self.pool)
        .await?;
        let walk = if walk.again {
            Walk { ended: true, ..walk }
        } else {
            Walk::once_more()
        };
        let letters = Vec::new();
        Ok(is_held.then_some(Batch { letters, walk }))
    }

    /// The first day from `from` on, and not after `until`, that has open dead letters.
    async fn next_open_day(
        &self,
        from: Option<NaiveDate>,
        until: DateTime<Utc>,
    ) -> Result<Option<NaiveDate>, StoreError> {
        Ok(sqlx::query_scalar(
            "SELECT min(day) FROM tidegate.dead_letter_counts \
             WHERE open > 0 AND day >= coalesce($1, '-infinity'::date) AND day <= $2",
        )
        .bind(from)
        .bind(until.date_naive() + Days::new(1))
        .fetch_one(self.pool)
        .await?)
    }

    /// At most `count` dead letters that the run has claimed and nobody has settled, of one day. `None`: the run is in other
    /// hands.
    pub async fn claimed(&self, hold: &Hold, count: u64) -> Result<Option<Vec<Claimed>>, StoreError> {
        let found: Vec<Found> = sqlx::query_as(concat!(
            "SELECT ",
            claimed_columns!(),
            ", d.body, d.properties FROM (SELECT FROM tidegate.replays WHERE id = $1 AND fence = $2 AND state = 'RUNNING') AS run \
             LEFT JOIN LATERAL (SELECT d.*, m.body, m.properties FROM ",
            with_messages!(),
            " WHERE d.replay_id = $1 AND d.state = 'REPLAYING' ORDER BY d.id LIMIT $3) AS d ON true ORDER BY d.day, d.id"
        ))
        .bind(hold.run)
        .bind(hold.fence)
        .bind(i64::try_from(count).unwrap_or(i64::MAX))
        .fetch_all(self.pool)
        .await?;
        if found.is_empty() {
            return Ok(None);
        }
        let mut letters: Vec<Claimed> = found.into_iter().filter_map(Found::letter).collect();
        if let Some(day) = letters.first().map(|letter| letter.day) {
            letters.retain(|letter| letter.day == day);
        }
        Ok(Some(letters))
    }
}
