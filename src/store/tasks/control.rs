//! Cancel, promote, reschedule: what changes a task's course.
//!
//! May import: `core`, sqlx. Each is a call of the SQL function of that name, which every other client calls too; the
//! function locks the row and decides by what it finds there. One statement, so nothing is half done by a process that
//! dies; a call without an answer may be made again.

use chrono::{DateTime, Utc};
use tidegate_core::lifecycle::{CancelOutcome, MoveOutcome};

use super::Tasks;
use crate::store::StoreError;

impl Tasks<'_> {
    /// Cancels the task. Waits at most 5 s for a relay that has it in hand at this moment.
    ///
    /// # Errors
    /// [`StoreError::Busy`] if the relay, or another client, did not let go in time: try again.
    pub async fn cancel(&self, task_id: &str) -> Result<CancelOutcome, StoreError> {
        let word: String = sqlx::query_scalar("SELECT tidegate.cancel($1)")
            .bind(task_id)
            .fetch_one(self.pool)
            .await?;
        CancelOutcome::parse(&word).ok_or_else(|| unknown(&word))
    }

    /// Makes a waiting task due now, and takes back one that was set aside. Waits and fails as
    /// [`cancel`](Self::cancel).
    pub async fn promote(&self, task_id: &str) -> Result<MoveOutcome, StoreError> {
        let word: String = sqlx::query_scalar("SELECT tidegate.promote($1)")
            .bind(task_id)
            .fetch_one(self.pool)
            .await?;
        MoveOutcome::parse(&word).ok_or_else(|| unknown(&word))
    }

    /// Moves a waiting task to `due_at`, at most 90 days ahead. Waits and fails as [`cancel`](Self::cancel).
    pub async fn reschedule(&self, task_id: &str, due_at: DateTime<Utc>) -> Result<MoveOutcome, StoreError> {
        let word: String = sqlx::query_scalar("SELECT tidegate.reschedule($1, $2)")
            .bind(task_id)
            .bind(due_at)
            .fetch_one(self.pool)
            .await?;
        MoveOutcome::parse(&word).ok_or_else(|| unknown(&word))
    }

    /// The database's time.
    pub async fn now(&self) -> Result<DateTime<Utc>, StoreError> {
        Ok(sqlx::query_scalar("SELECT clock_timestamp()")
            .fetch_one(self.pool)
            .await?)
    }
}

fn unknown(word: &str) -> StoreError {
    StoreError::SchemaMissing(format!(
        "the database answered {word:?}, a word of a newer program"
    ))
}
