//! All dead letters of a day, as they were at one moment, a few at a time.
//!
//! May import: sqlx. A cursor of the server holds the place, within one transaction that only reads: what is archived, repaired
//! or dropped meanwhile changes nothing, and no more than `FETCH` rows are here at once. Silence of the reader for longer than
//! the session allows within a transaction ends it, which is an error and never a shorter answer.

use chrono::NaiveDate;
use sqlx::{AssertSqlSafe, Postgres, Transaction};

use super::{
    DeadLetters,
    one::{Letter, letter_columns},
};
use super::{listed_columns, with_messages};
use crate::store::{StoreError, connect::begin};

/// Rows of one fetch: at the largest body and headers some megabytes.
const FETCH: u32 = 50;

/// An export under way.
#[derive(Debug)]
pub struct Export {
    transaction: Transaction<'static, Postgres>,
}

impl DeadLetters<'_> {
    /// Begins an export of what was archived on `day` (UTC); `None` if nothing was, or nothing is left of it.
    pub async fn export(&self, day: NaiveDate) -> Result<Option<Export>, StoreError> {
        let mut transaction = begin(self.pool).await?;
        sqlx::query("SET TRANSACTION READ ONLY")
            .execute(&mut *transaction)
            .await?;
        let exists: bool =
            sqlx::query_scalar("SELECT EXISTS (SELECT FROM tidegate.dead_letters WHERE day = $1)")
                .bind(day)
                .fetch_one(&mut *transaction)
                .await?;
        if !exists {
            return Ok(None);
        }
        // A declaration takes no bound value; a date has digits and hyphens only.
        let declare = format!(
            "DECLARE dead_letters_of_day NO SCROLL CURSOR FOR SELECT {} FROM {} \
             WHERE d.day = '{}' ORDER BY d.archived_at, d.id",
            letter_columns!(),
            with_messages!(),
            day.format("%Y-%m-%d")
        );
        sqlx::query(AssertSqlSafe(declare))
            .execute(&mut *transaction)
            .await?;
        Ok(Some(Export { transaction }))
    }
}

impl Export {
    /// The next ones, oldest first; none at the end.
    pub async fn next(&mut self) -> Result<Vec<Letter>, StoreError> {
        let fetch = format!("FETCH {FETCH} FROM dead_letters_of_day");
        Ok(sqlx::query_as(AssertSqlSafe(fetch))
            .fetch_all(&mut *self.transaction)
            .await?)
    }
}
