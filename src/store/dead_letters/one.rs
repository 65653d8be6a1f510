//! One dead letter with all that is known of it.
//!
//! May import: `core`, sqlx. An id says nothing of the partition that it is in, so each look by id asks the index of every
//! partition.

use chrono::{DateTime, Utc};
use sqlx::{FromRow, Row, postgres::PgRow};
use tidegate_core::dead_letter::DeadLetterId;
use uuid::Uuid;

use super::{DeadLetters, Listed, id, listed_columns, with_messages};
use crate::store::StoreError;

/// Most other deaths of one task that are looked up.
pub const MAX_DEATHS: usize = 100;

/// A dead letter as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    /// What a list shows of it.
    pub listed: Listed,
    /// When the first attempt failed, where its sender says it.
    pub first_failed_at: Option<DateTime<Utc>>,
    /// The routing key as first published.
    pub routing_key: Option<String>,
    /// The bytes that were sent.
    pub body: Vec<u8>,
    /// Properties and headers, as `broker::record` writes them.
    pub properties: String,
    /// When its replay was confirmed.
    pub replayed_at: Option<DateTime<Utc>>,
    /// The task id of its replay.
    pub sent_task_id: Option<String>,
    /// The run whose edit did not fit it.
    pub refused_by: Option<Uuid>,
    /// The row of the audit log that says who discarded it.
    pub discarded_in: Option<i64>,
    /// The dead letter whose replay died here.
    pub parent: Option<DeadLetterId>,
    /// The run that had sent it.
    pub sent_by: Option<Uuid>,
}

/// What an id, or its beginning, leads to.
#[derive(Clone, Debug)]
pub enum Found {
    /// No dead letter.
    None,
    /// This one.
    One(Box<Letter>),
    /// Several that begin alike: the first few.
    Many(Vec<DeadLetterId>),
}

/// Who had something replayed, and why.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct RunNote {
    /// Id of the run.
    pub id: Uuid,
    /// Who.
    pub asked_by: String,
    /// Why.
    pub why: String,
    /// When it began.
    pub began_at: DateTime<Utc>,
}

/// The columns of a [`Letter`], of [`with_messages`].
macro_rules! letter_columns {
    () => {
        concat!(
            listed_columns!(),
            ", d.first_failed_at, d.routing_key, m.body, m.properties, d.replayed_at, d.sent_task_id, d.refused_by, \
             d.discarded_in, d.parent_id, d.sent_by"
        )
    };
}
pub(super) use letter_columns;

impl FromRow<'_, PgRow> for Letter {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let parent: Option<Uuid> = row.try_get("parent_id")?;
        Ok(Self {
            listed: Listed::from_row(row)?,
            first_failed_at: row.try_get("first_failed_at")?,
            routing_key: row.try_get("routing_key")?,
            body: row.try_get("body")?,
            properties: row.try_get("properties")?,
            replayed_at: row.try_get("replayed_at")?,
            sent_task_id: row.try_get("sent_task_id")?,
            refused_by: row.try_get("refused_by")?,
            discarded_in: row.try_get("discarded_in")?,
            parent: parent.map(|id| DeadLetterId(id.into_bytes())),
            sent_by: row.try_get("sent_by")?,
        })
    }
}

impl DeadLetters<'_> {
    /// The dead letter whose id lies between `first` and `last`, both included, if there is only one.
    pub async fn find(&self, first: DeadLetterId, last: DeadLetterId) -> Result<Found, StoreError> {
        const SHOWN: i64 = 5;
        let [first, last] = [first, last].map(|id| Uuid::from_bytes(id.0));
        let sql =
            "SELECT id, day FROM tidegate.dead_letters WHERE id >= $1 AND id <= $2 ORDER BY id LIMIT $3";
        let rows = sqlx::query(sql)
            .bind(first)
            .bind(last)
            .bind(SHOWN)
            .fetch_all(self.pool)
            .await?;
        let [row] = rows.as_slice() else {
            let ids: sqlx::Result<Vec<_>> = rows.iter().map(|row| id(row, "id")).collect();
            return Ok(match ids? {
                none if none.is_empty() => Found::None,
                many => Found::Many(many),
            });
        };
        let sql = concat!(
            "SELECT ",
            letter_columns!(),
            " FROM ",
            with_messages!(),
            " WHERE d.id = $1 AND d.day = $2"
        );
        let letter = sqlx::query_as(sql)
            .bind(row.try_get::<Uuid, _>("id")?)
            .bind(row.try_get::<chrono::NaiveDate, _>("day")?)
            .fetch_optional(self.pool)
            .await?;
        Ok(letter.map_or(Found::None, |letter| Found::One(Box::new(letter))))
    }

    /// All deaths of `letter`'s task that are in the archive, its own included, in their order: those before it by the links
    /// that replays left, those after it likewise, and those of the same task id. At most [`MAX_DEATHS`] in each direction.
    pub async fn deaths(&self, letter: &Letter) -> Result<Vec<Listed>, StoreError> {
        let limit = i64::try_from(MAX_DEATHS).unwrap_or(i64::MAX);
        let mut deaths = vec![letter.listed.clone()];
        let (mut parent, mut steps) = (letter.parent, 0);
        while let Some(above) = parent.filter(|_| steps < MAX_DEATHS) {
            // Only a hand can make a circle.
            if deaths.iter().any(|death| death.id == above) {
                break;
            }
            let sql = concat!(
                "SELECT d.parent_id, ",
                listed_columns!(),
                " FROM tidegate.dead_letters d WHERE d.id = $1"
            );
            let row = sqlx::query(sql)
                .bind(Uuid::from_bytes(above.0))
                .fetch_optional(self.pool)
                .await?;
            let Some(row) = row else { break };
            parent = row
                .try_get::<Option<Uuid>, _>("parent_id")?
                .map(|id| DeadLetterId(id.into_bytes()));
            deaths.push(Listed::from_row(&row)?);
            steps += 1;
        }
        let mut below = vec![Uuid::from_bytes(letter.listed.id.0)];
        while !below.is_empty() && deaths.len() < MAX_DEATHS {
            let sql = concat!(
                "SELECT ",
                listed_columns!(),
                " FROM tidegate.dead_letters d WHERE d.parent_id = ANY ($1) LIMIT $2"
            );
            let next: Vec<Listed> = sqlx::query_as(sql)
                .bind(below)
                .bind(limit)
                .fetch_all(self.pool)
                .await?;
            below = next.iter().map(|death| Uuid::from_bytes(death.id.0)).collect();
            deaths.extend(next);
        }
        if let Some(task_id) = &letter.listed.task_id {
            let sql = concat!(
                "SELECT ",
                listed_columns!(),
                " FROM tidegate.dead_letters d WHERE d.task_id = $1 LIMIT $2"
            );
            let alike: Vec<Listed> = sqlx::query_as(sql)
                .bind(task_id)
                .bind(limit)
                .fetch_all(self.pool)
                .await?;
            deaths.extend(alike);
        }
        deaths.sort_by_key(|death| (death.died_at, death.id));
        deaths.dedup_by_key(|death| death.id);
        Ok(deaths)
    }

    /// Who had the runs with these ids.
    pub async fn run_notes(&self, ids: Vec<Uuid>) -> Result<Vec<RunNote>, StoreError> {
        let sql = "SELECT id, asked_by, why, began_at FROM tidegate.replays WHERE id = ANY ($1)";
        Ok(sqlx::query_as(sql).bind(ids).fetch_all(self.pool).await?)
    }
}
