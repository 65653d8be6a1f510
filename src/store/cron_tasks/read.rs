//! The rows that a scheduler looks at, shard by shard.
//!
//! May import: sqlx. One statement each, which locks nothing. A shard is read only if those before it in the caller's
//! order didn't fill the batch, and within a shard the index gives the order: nothing is sorted, whatever the size of
//! the table.

use chrono::{DateTime, Utc};
use sqlx::FromRow;

use super::{CronTask, CronTasks, row::columns};
use crate::store::StoreError;

/// Rows, and the database's clock as they were read. Never empty.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The database's clock.
    pub now: DateTime<Utc>,
    /// The rows.
    pub rows: Vec<CronTask>,
}

#[derive(FromRow)]
struct Read {
    read_at: DateTime<Utc>,
    #[sqlx(flatten)]
    row: CronTask,
}

macro_rules! by_shard {
    ($filter:literal, $order:literal) => {
        concat!(
            "SELECT now() AS read_at, ",
            columns!(),
            " FROM unnest($1::bigint[]) WITH ORDINALITY AS s (shard, place) CROSS JOIN LATERAL ( \
             SELECT * FROM tidegate.cron_tasks c WHERE (c.id & 15) = s.shard AND ",
            $filter,
            " AND c.id <> ALL ($3::bigint[]) ORDER BY ",
            $order,
            " LIMIT $2) AS c ORDER BY s.place LIMIT $2"
        )
    };
}

pub(super) const DUE: &str = by_shard!("c.enabled AND c.next_fire_at <= now()", "c.next_fire_at");
pub(super) const UNINITIALISED: &str = by_shard!(
    "c.enabled AND c.next_fire_at IS NULL AND c.last_error IS NULL AND NOT c.exhausted",
    "c.id"
);

impl CronTasks<'_> {
    /// Up to `limit` rows that are due, other than the rows `but`, in the order of `shards`, and within each those due
    /// longest first.
    pub async fn due(&self, shards: &[i64], but: &[i64], limit: i64) -> Result<Option<Batch>, StoreError> {
        self.read(DUE, shards, but, limit).await
    }

    /// Up to `limit` rows whose next time must be computed, other than the rows `but`, in the order of `shards`.
    pub async fn uninitialised(
        &self,
        shards: &[i64],
        but: &[i64],
        limit: i64,
    ) -> Result<Option<Batch>, StoreError> {
        self.read(UNINITIALISED, shards, but, limit).await
    }

    async fn read(
        &self,
        statement: &'static str,
        shards: &[i64],
        but: &[i64],
        limit: i64,
    ) -> Result<Option<Batch>, StoreError> {
        let read: Vec<Read> = sqlx::query_as(statement)
            .bind(shards)
            .bind(limit)
            .bind(but)
            .fetch_all(self.pool)
            .await?;
        Ok(read.first().map(|first| first.read_at).map(|now| Batch {
            now,
            rows: read.into_iter().map(|read| read.row).collect(),
        }))
    }
}
