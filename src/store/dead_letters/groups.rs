//! Dead letters by what they have in common, and how many there are: read from the counts, never from the rows.
//!
//! May import: `core`, sqlx. The counts have a row for each day, fingerprint and queue, so times are known by the day of
//! archiving (UTC) only. What a sample says is read from the archive by its key.

use std::collections::{BTreeMap, HashMap};

use chrono::{DateTime, NaiveDate, Utc};
use sqlx::{FromRow, Postgres, QueryBuilder, Row, postgres::PgRow};
use tidegate_core::{
    dead_letter::DeadLetterId,
    dead_letter_filter::{Condition, Filter},
    fingerprint::Fingerprint,
};
use uuid::Uuid;

use super::{
    DeadLetters,
    filter::{is_counted, push_each},
    fingerprint, id,
    look::push_day,
};
use crate::store::StoreError;

macro_rules! count_columns {
    () => {
        "coalesce(sum(d.open), 0)::bigint AS open, coalesce(sum(d.replaying), 0)::bigint AS replaying, \
         coalesce(sum(d.replayed), 0)::bigint AS replayed, coalesce(sum(d.discarded), 0)::bigint AS discarded"
    };
}

/// Most groups of one answer.
pub const MAX_GROUPS: u32 = 1_000;

/// How many dead letters, by how far their repair is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromRow)]
pub struct Counts {
    /// Nobody has dealt with them.
    pub open: i64,
    /// A run has claimed them.
    pub replaying: i64,
    /// Their messages went out again.
    pub replayed: i64,
    /// They shall not run.
    pub discarded: i64,
}

/// Dead letters that are alike.
#[derive(Clone, Debug)]
pub struct Group {
    /// What they share.
    pub fingerprint: Fingerprint,
    /// Their type, where they have one.
    pub task_type: Option<String>,
    /// Why they are dead.
    pub reason: String,
    /// Kind of their error.
    pub error_kind: String,
    /// The queue of the latest.
    pub queue: String,
    /// How many queues they come from.
    pub queues: i64,
    /// How many they are.
    pub counts: Counts,
    /// How many dead letters of their type there are on these days, whatever their group.
    pub of_type: i64,
    /// When the first died.
    pub first_died_at: DateTime<Utc>,
    /// When the last died.
    pub last_died_at: DateTime<Utc>,
    /// The latest.
    pub sample: DeadLetterId,
    /// Its error, unless somebody has deleted it.
    pub sample_error: Option<String>,
    sample_day: NaiveDate,
}

/// The largest groups, and what there is beyond them.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    /// Most open ones first.
    pub groups: Vec<Group>,
    /// How many groups there are.
    pub total: i64,
    /// Open dead letters of all of them.
    pub open: i64,
}

/// Which groups are wanted.
#[derive(Clone, Debug, Default)]
pub struct GroupFilter {
    conditions: Vec<Condition>,
    since: Option<NaiveDate>,
}

impl GroupFilter {
    /// `filter` for groups: `since` counts from the beginning of its day (UTC).
    ///
    /// # Errors
    /// The key of a condition that no count can tell.
    pub fn new(filter: &Filter) -> Result<Self, &'static str> {
        let mut wanted = Self::default();
        for condition in filter.conditions() {
            match condition {
                Condition::Since(time) => wanted.since = Some(time.date_naive()),
                condition if is_counted(condition) => wanted.conditions.push(condition.clone()),
                condition => return Err(condition.key()),
            }
        }
        Ok(wanted)
    }
}

impl Counts {
    /// All of them.
    pub fn total(&self) -> i64 {
        self.open + self.replaying + self.replayed + self.discarded
    }
}

impl FromRow<'_, PgRow> for Group {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        Ok(Self {
            fingerprint: fingerprint(row, "fingerprint")?,
            task_type: row.try_get("task_type")?,
            reason: row.try_get("reason")?,
            error_kind: row.try_get("error_kind")?,
            queue: row.try_get("queue")?,
            queues: row.try_get("queues")?,
            counts: Counts::from_row(row)?,
            of_type: row.try_get("of_type")?,
            first_died_at: row.try_get("first_died_at")?,
            last_died_at: row.try_get("last_died_at")?,
            sample: id(row, "sample_id")?,
            sample_error: None,
            sample_day: row.try_get("sample_day")?,
        })
    }
}

impl DeadLetters<'_> {
    /// The `limit` groups (at most [`MAX_GROUPS`]) with most open dead letters.
    pub async fn groups(&self, wanted: &GroupFilter, limit: u32) -> Result<Groups, StoreError> {
        let mut query = statement(wanted, limit.clamp(1, MAX_GROUPS));
        let rows = query.build().fetch_all(self.pool).await?;
        let mut found = Groups::default();
        for row in &rows {
            found.total = row.try_get("groups")?;
            found.open = row.try_get("all_open")?;
            found.groups.push(Group::from_row(row)?);
        }
        let errors = self.errors(&found.groups).await?;
        for group in &mut found.groups {
            group.sample_error = errors.get(&group.sample).cloned();
        }
        Ok(found)
    }

    /// What the samples say, a statement for each of their days, so that each reads one partition.
    async fn errors(&self, groups: &[Group]) -> Result<HashMap<DeadLetterId, String>, StoreError> {
        let mut days: BTreeMap<NaiveDate, Vec<Uuid>> = BTreeMap::new();
        for group in groups {
            let ids = days.entry(group.sample_day).or_default();
            ids.push(Uuid::from_bytes(group.sample.0));
        }
        let mut errors = HashMap::new();
        for (day, ids) in days {
            let sql = "SELECT id, error FROM tidegate.dead_letters WHERE day = $1 AND id = ANY ($2)";
            let rows = sqlx::query(sql).bind(day).bind(ids).fetch_all(self.pool).await?;
            for row in rows {
                errors.insert(id(&row, "id")?, row.try_get("error")?);
            }
        }
        Ok(errors)
    }

    /// How many dead letters `filter` means, by state. Where it asks for type, queue, reason, fingerprint and state only, the
    /// counts tell; anything else is looked up row by row.
    pub async fn count(&self, filter: &Filter) -> Result<Counts, StoreError> {
        let mut sum = Counts::default();
        let by_counts =
            |condition: &Condition| is_counted(condition) || matches!(condition, Condition::State(_));
        if filter.conditions().iter().all(by_counts) {
            let mut sql = QueryBuilder::<Postgres>::new(concat!(
                "SELECT ",
                count_columns!(),
                " FROM tidegate.dead_letter_counts d WHERE true"
            ));
            push_each(
                &mut sql,
                filter
                    .conditions()
                    .iter()
                    .filter(|condition| is_counted(condition)),
            );
            sum = sql.build_query_as().fetch_one(self.pool).await?;
        } else {
            let mut day = self.day_until(None).await?;
            while let Some(this) = day {
                let mut sql = QueryBuilder::<Postgres>::new(
                    "SELECT count(*) FILTER (WHERE d.state = 'OPEN') AS open, count(*) FILTER (WHERE d.state = 'REPLAYING') AS replaying, \
                     count(*) FILTER (WHERE d.state = 'REPLAYED') AS replayed, count(*) FILTER (WHERE d.state = 'DISCARDED') AS discarded \
                     FROM tidegate.dead_letters d WHERE ",
                );
                push_day(&mut sql, this);
                push_each(&mut sql, filter.conditions());
                let of_day: Counts = sql.build_query_as().fetch_one(self.pool).await?;
                sum.open += of_day.open;
                sum.replaying += of_day.replaying;
                sum.replayed += of_day.replayed;
                sum.discarded += of_day.discarded;
                day = self.day_before(this).await?;
            }
        }
        Ok(of_states(sum, filter))
    }
}

/// Only those in a state that `filter` asks for.
fn of_states(counts: Counts, filter: &Filter) -> Counts {
    use tidegate_core::dead_letter::DeadLetterState as State;
    let wanted = |state| {
        filter.conditions().iter().all(|condition| match condition {
            Condition::State(states) => states.contains(&state),
            _ => true,
        })
    };
    let only = |state, count| if wanted(state) { count } else { 0 };
    Counts {
        open: only(State::Open, counts.open),
        replaying: only(State::Replaying, counts.replaying),
        replayed: only(State::Replayed, counts.replayed),
        discarded: only(State::Discarded, counts.discarded),
    }
}

fn statement(wanted: &GroupFilter, limit: u32) -> QueryBuilder<Postgres> {
    let mut sql = QueryBuilder::new(concat!(
        "SELECT d.fingerprint, min(d.task_type) AS task_type, min(d.reason) AS reason, min(d.error_kind) AS error_kind, \
         (array_agg(d.queue ORDER BY d.last_died_at DESC))[1] AS queue, count(DISTINCT d.queue) AS queues, ",
        count_columns!(),
        ", max(d.of_type)::bigint AS of_type, min(d.first_died_at) AS first_died_at, max(d.last_died_at) AS last_died_at, \
         (array_agg(d.day ORDER BY d.last_died_at DESC, d.day DESC, d.queue))[1] AS sample_day, \
         (array_agg(d.sample_id ORDER BY d.last_died_at DESC, d.day DESC, d.queue))[1] AS sample_id, \
         count(*) OVER () AS groups, (sum(sum(d.open)) OVER ())::bigint AS all_open \
         FROM (SELECT c.*, c.open + c.replaying + c.replayed + c.discarded AS total, \
           sum(c.open + c.replaying + c.replayed + c.discarded) OVER (PARTITION BY c.task_type) AS of_type \
           FROM tidegate.dead_letter_counts c WHERE c.day >= coalesce("
    ));
    sql.push_bind(wanted.since);
    sql.push(", '-infinity'::date)) d WHERE d.total > 0");
    push_each(&mut sql, &wanted.conditions);
    sql.push(" GROUP BY d.fingerprint ORDER BY sum(d.open) DESC, sum(d.total) DESC, max(d.last_died_at) DESC, d.fingerprint LIMIT ");
    sql.push_bind(i64::from(limit));
    sql
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_count_can_tell_is_named() {
        let wanted = |words: &[&str]| {
            let filter = Filter::parse_words(words.iter().copied(), Utc::now()).unwrap();
            GroupFilter::new(&filter).map(|wanted| (wanted.conditions.len(), wanted.since.is_some()))
        };
        assert_eq!(
            wanted(&["type=a.b", "queue=#", "reason=expired", "since=2h"]),
            Ok((3, true))
        );
        assert_eq!(wanted(&["fingerprint=01234567"]), Ok((1, false)));
        for (word, key) in [
            ("text=x", "text"),
            ("until=1h", "until"),
            ("state=open", "state"),
            ("task-id=t", "task-id"),
        ] {
            assert_eq!(wanted(&[word]), Err(key));
        }
    }

    #[test]
    fn counts_of_states_that_are_not_asked_for_are_left_out() {
        let counts = Counts {
            open: 1,
            replaying: 2,
            replayed: 3,
            discarded: 4,
        };
        let of = |words: &[&str]| {
            of_states(
                counts,
                &Filter::parse_words(words.iter().copied(), Utc::now()).unwrap(),
            )
            .total()
        };
        assert_eq!(of(&[]), 10);
        assert_eq!(of(&["state=open", "state=discarded"]), 5);
    }
}
