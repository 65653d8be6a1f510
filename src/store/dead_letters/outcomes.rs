//! What a run has come to: what its messages did, and who had what it wanted.
//!
//! May import: `core`, sqlx. Reads only.

use chrono::{DateTime, Utc};
use sqlx::{FromRow, Postgres, QueryBuilder};
use tidegate_core::{dead_letter_filter::Filter, replay::plan::Outcomes};
use uuid::Uuid;

use super::{
    DeadLetters, filter, is_open,
    replay::{Claimed, Found, claimed_columns},
    runs::Hold,
    with_messages,
};
use crate::store::StoreError;

/// Most parties that are named.
const MAX_PARTIES: i64 = 20;

/// Most dead letters that are looked at to say who has dealt with those of a filter.
const MAX_LOOKED_AT: i64 = 10_000;

/// Somebody who has dealt with dead letters, and with how many.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct Party {
    /// What was done: the state that they are in.
    pub state: String,
    /// The run, if it was one.
    pub run: Option<Uuid>,
    /// Who asked for that run.
    pub asked_by: Option<String>,
    /// When it began.
    pub began_at: Option<DateTime<Utc>>,
    /// How many.
    pub count: i64,
}

impl DeadLetters<'_> {
    /// What the messages that a run has sent have come to so far: those that died again, and those whose task in the ledger
    /// has succeeded since the run began.
    pub async fn outcomes(&self, hold: &Hold) -> Result<Outcomes, StoreError> {
        let (died, succeeded): (i64, i64) = sqlx::query_as(
            "SELECT (SELECT count(*) FROM tidegate.dead_letters d WHERE d.sent_by = $1), \
               (SELECT count(*) FROM tidegate.dead_letters d JOIN tidegate.tasks t ON t.task_id = d.sent_task_id \
                WHERE d.replay_id = $1 AND d.state = 'REPLAYED' AND t.state = 'SUCCESS' AND t.finished_at >= $2)",
        )
        .bind(hold.run)
        .bind(hold.began_at)
        .fetch_one(self.pool)
        .await?;
        Ok(Outcomes {
            succeeded: succeeded.unsigned_abs(),
            died: died.unsigned_abs(),
        })
    }

    /// Which runs beside this one, at the same time, have what `filter` means and was there when it began.
    pub async fn rivals(&self, hold: &Hold, wanted: &Filter) -> Result<Vec<Party>, StoreError> {
        let mut sql = QueryBuilder::<Postgres>::new(
            "SELECT min(d.state) AS state, r.id AS run, r.asked_by, r.began_at, count(*) AS count \
             FROM tidegate.dead_letters d JOIN tidegate.replays r ON r.id = d.replay_id \
             WHERE d.state IN ('REPLAYING', 'REPLAYED') AND d.replay_id = ANY (ARRAY(\
               SELECT id FROM tidegate.replays WHERE ended_at IS NULL OR ended_at >= ",
        );
        sql.push_bind(hold.began_at).push(")) AND d.replay_id <> ");
        sql.push_bind(hold.run)
            .push(" AND d.archived_at < ")
            .push_bind(hold.began_at);
        filter::push(&mut sql, wanted);
        sql.push(" GROUP BY r.id, r.asked_by, r.began_at ORDER BY count(*) DESC, r.id LIMIT ");
        sql.push_bind(MAX_PARTIES);
        Ok(sql.build_query_as().fetch_all(self.pool).await?)
    }

    /// Who has dealt with what `filter` means and is not open; of the first ten thousand of them.
    pub async fn dealt_with(&self, wanted: &Filter) -> Result<Vec<Party>, StoreError> {
        let mut sql = QueryBuilder::<Postgres>::new(
            "SELECT d.state, r.id AS run, r.asked_by, r.began_at, count(*) AS count FROM (\
               SELECT d.state, d.replay_id FROM tidegate.dead_letters d WHERE d.state <> 'OPEN'",
        );
        filter::push(&mut sql, wanted);
        sql.push(" LIMIT ").push_bind(MAX_LOOKED_AT);
        sql.push(
            ") AS d LEFT JOIN tidegate.replays r ON r.id = d.replay_id \
             GROUP BY d.state, r.id, r.asked_by, r.began_at ORDER BY count(*) DESC, r.id LIMIT ",
        );
        sql.push_bind(MAX_PARTIES);
        Ok(sql.build_query_as().fetch_all(self.pool).await?)
    }

    /// The first open dead letters that `filter` means, at most `limit`, as a run would take them.
    pub async fn samples(&self, wanted: &Filter, limit: u32) -> Result<Vec<Claimed>, StoreError> {
        let mut sql = QueryBuilder::<Postgres>::new(concat!(
            "SELECT ",
            claimed_columns!(),
            ", m.body, m.properties FROM ",
            with_messages!(),
            " WHERE ",
            is_open!()
        ));
        filter::push(&mut sql, wanted);
        sql.push(" ORDER BY d.archived_at, d.id LIMIT ")
            .push_bind(i64::from(limit));
        let found: Vec<Found> = sql.build_query_as().fetch_all(self.pool).await?;
        Ok(found.into_iter().filter_map(Found::letter).collect())
    }
}
