//! Dead letters that somebody decides shall not run.
//!
//! May import: `core`, sqlx. A batch, and the rows of the audit log that tell of it, are one transaction: whoever dies before
//! its commit has discarded nothing of it. Only what is `OPEN` is taken, by the same lock as a replay's claim, so of the
//! two one has each dead letter.

use chrono::{DateTime, NaiveDate, Utc};
use sqlx::{Postgres, QueryBuilder};
use tidegate_core::dead_letter_filter::{Condition, Filter};
use uuid::Uuid;

use super::{DeadLetters, filter, is_open, look::push_day, subject::subject};
use crate::store::{
    StoreError,
    audit::{self, Entry, what},
    connect::begin,
};

/// Most dead letters of one transaction: while it lasts, the archivist waits to count others of the same kinds.
pub const BATCH: i64 = 2_000;

/// What is discarded, by whom and why.
#[derive(Clone, Copy, Debug)]
pub struct Discard<'d> {
    /// Which ones. If it names ids only, the audit log has a row for each, otherwise one for each batch.
    pub filter: &'d Filter,
    /// Only what was archived by then.
    pub until: DateTime<Utc>,
    /// Who, 1 to [`MAX_WHO_BYTES`](audit::MAX_WHO_BYTES).
    pub who: &'d str,
    /// Why, at most [`MAX_WHY_BYTES`](audit::MAX_WHY_BYTES).
    pub why: &'d str,
}

impl DeadLetters<'_> {
    /// The database's clock.
    pub async fn now(&self) -> Result<DateTime<Utc>, StoreError> {
        Ok(sqlx::query_scalar("SELECT clock_timestamp()")
            .fetch_one(self.pool)
            .await?)
    }

    /// Discards up to [`BATCH`] of them, newest day first, behind `after`: how many, and the day to go on with. `None` at the
    /// end.
    pub async fn discard(
        &self,
        discard: &Discard<'_>,
        after: Option<NaiveDate>,
    ) -> Result<(u64, Option<NaiveDate>), StoreError> {
        let Some(day) = self.day_until(after).await? else {
            return Ok((0, None));
        };
        let candidates = self.candidates(discard, day).await?;
        if candidates.is_empty() {
            return Ok((0, self.day_before(day).await?));
        }
        // Of what was found each is either discarded now or no longer open, so that the next batch finds others.
        let discarded = self.discard_these(discard, day, candidates).await?;
        Ok((discarded, Some(day)))
    }

    async fn candidates(&self, discard: &Discard<'_>, day: NaiveDate) -> Result<Vec<Uuid>, StoreError> {
        let mut sql = QueryBuilder::<Postgres>::new("SELECT d.id FROM tidegate.dead_letters d WHERE ");
        push_day(&mut sql, day);
        sql.push(concat!(" AND ", is_open!(), " AND d.archived_at <= "))
            .push_bind(discard.until);
        filter::push(&mut sql, discard.filter);
        sql.push(" ORDER BY d.archived_at, d.id LIMIT ").push_bind(BATCH);
        Ok(sql.build_query_scalar().fetch_all(self.pool).await?)
    }

    async fn discard_these(
        &self,
        discard: &Discard<'_>,
        day: NaiveDate,
        ids: Vec<Uuid>,
    ) -> Result<u64, StoreError> {
        let mut transaction = begin(self.pool).await?;
        // In the order in which every walk goes.
        let open: Vec<Uuid> = sqlx::query_scalar(
            "SELECT id FROM tidegate.dead_letters WHERE day = $1 AND id = ANY ($2) AND state = 'OPEN' \
             ORDER BY archived_at, id FOR UPDATE",
        )
        .bind(day)
        .bind(ids)
        .fetch_all(&mut *transaction)
        .await?;
        if open.is_empty() {
            return Ok(0);
        }
        let told = if is_by_id(discard.filter) {
            sqlx::query(
                "WITH told AS (INSERT INTO tidegate.audit_log (who, what, subject, why, before, after) \
                   SELECT $3, $4, id::text, $5, 'open', 'discarded' FROM unnest($2::uuid[]) AS id RETURNING id, subject) \
                 UPDATE tidegate.dead_letters d SET state = 'DISCARDED', discarded_in = told.id \
                 FROM told WHERE d.day = $1 AND d.id = told.subject::uuid",
            )
            .bind(day)
            .bind(&open)
            .bind(discard.who)
            .bind(what::DISCARD)
            .bind(discard.why)
        } else {
            let of_state = |state: &str| format!("{} {state}", open.len()).into_bytes();
            let entry = Entry {
                who: discard.who,
                what: what::DISCARD,
                subject: &subject(discard.filter),
                why: discard.why,
                replay_id: None,
                before: Some(&of_state("open")),
                after: Some(&of_state("discarded")),
            };
            let told = audit::write(&mut transaction, &entry).await?;
            sqlx::query(
                "UPDATE tidegate.dead_letters SET state = 'DISCARDED', discarded_in = $3 WHERE day = $1 AND id = ANY ($2)",
            )
            .bind(day)
            .bind(&open)
            .bind(told)
        };
        let discarded = told.execute(&mut *transaction).await?.rows_affected();
        transaction.commit().await?;
        Ok(discarded)
    }
}

/// Whether `filter` names ids and nothing else.
fn is_by_id(filter: &Filter) -> bool {
    matches!(filter.conditions(), [Condition::Id(_)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ids_are_by_id() {
        let of = |words: &[&str]| Filter::parse_words(words.iter().copied(), Utc::now()).unwrap();
        assert!(!is_by_id(&of(&[
            "id=0196a5e0-7f20-4f1b-ae7d-00000000000f",
            "type=a.b"
        ])));
        assert!(is_by_id(&of(&["id=0196a5e0-7f20-4f1b-ae7d-00000000000f"])));
    }
}
