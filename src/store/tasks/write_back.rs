//! What is remembered of earlier hand-overs, written into the rows that take it by now.
//!
//! May import: sqlx. A row is locked and looked at first: whoever has moved it meanwhile knows more. Nothing is sent here;
//! dying in between leaves the rows due.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use sqlx::FromRow;
use tokio::time::Instant;

use super::{
    SetAside, Settlement, Tasks,
    settle::{self, Refused},
    unwritten::{Entry, Fate, MOST},
};
use crate::store::{StoreError, connect::begin, error::is_about_the_database};

/// Most rows that are tried at once.
const AT_ONCE: usize = 100;

/// What is remembered and not yet written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WrittenBack {
    /// Rows that were tried on their own and refused.
    pub refused: Vec<Refused>,
    /// Tasks that are still remembered.
    pub left: usize,
    /// When to try again.
    pub next: Option<Instant>,
}

impl WrittenBack {
    /// Whether so many tasks are remembered that nothing new may be sent.
    pub fn is_full(&self) -> bool {
        self.left >= MOST
    }
}

/// A row that could be locked.
#[derive(Debug, FromRow)]
struct Found {
    task_id: String,
    state: String,
    publish_attempts: i32,
    next_try_at: Option<DateTime<Utc>>,
    /// The router has it as a dead letter.
    unroutable: bool,
}

impl Tasks<'_> {
    /// Writes what this process remembers of earlier hand-overs into the rows that take it by now. Costs nothing where
    /// nothing is remembered.
    ///
    /// # Errors
    /// The database takes nothing at all: nothing may be handed over until it does.
    pub async fn write_back(&self) -> Result<WrittenBack, StoreError> {
        let mut refused = Vec::new();
        let due = self.unwritten.to_write(AT_ONCE);
        // Together at first; those that were refused before each on its own, as one may fail only at the commit.
        let (known, fresh): (Vec<_>, Vec<_>) = due.into_iter().partition(|(_, entry)| entry.tries > 0);
        if !fresh.is_empty() {
            self.write_remembered(&fresh, &mut refused).await?;
        }
        for one in known {
            self.write_remembered(&[one], &mut refused).await?;
        }
        Ok(WrittenBack {
            refused,
            left: self.unwritten.len(),
            next: self.unwritten.next(),
        })
    }

    async fn write_remembered(
        &self,
        entries: &[(String, Entry)],
        refused: &mut Vec<Refused>,
    ) -> Result<(), StoreError> {
        let ids: Vec<&str> = entries.iter().map(|(id, _)| id.as_str()).collect();
        let mut tx = begin(self.pool).await?;
        let found: Vec<Found> = sqlx::query_as(
            "SELECT t.task_id, t.state, t.publish_attempts, t.next_try_at, \
               EXISTS (SELECT FROM tidegate.handovers h WHERE t.task_id = ANY (h.unroutable)) AS unroutable \
             FROM tidegate.tasks t WHERE t.task_id = ANY ($1) ORDER BY t.task_id FOR UPDATE OF t SKIP LOCKED",
        )
        .bind(&ids)
        .fetch_all(&mut *tx)
        .await?;
        let exist: Vec<String> =
            sqlx::query_scalar("SELECT task_id FROM tidegate.tasks WHERE task_id = ANY ($1)")
                .bind(&ids)
                .fetch_all(&mut *tx)
                .await?;
        sqlx::raw_sql("SAVEPOINT sent").execute(&mut *tx).await?;
        let (mut outcome, mut settled) = (Settlement::default(), Vec::new());
        for (id, entry) in entries {
            match found.iter().find(|found| found.task_id == *id) {
                // Cancelled, claimed by a worker, or moved: whoever did that knows more.
                Some(found)
                    if found.state != "PENDING"
                        || entry.mark != (found.publish_attempts, found.next_try_at) =>
                {
                    settled.push(id.as_str());
                }
                Some(found) => match &entry.fate {
                    Fate::SetAside(error) => outcome.set_aside.push(SetAside {
                        task_id: id.clone(),
                        error: error.clone(),
                    }),
                    _ if found.unroutable => outcome.set_aside.push(SetAside {
                        task_id: id.clone(),
                        error: "no queue took it; it is a dead letter".to_owned(),
                    }),
                    _ => outcome.published.push(id.clone()),
                },
                None if !exist.contains(id) => settled.push(id.as_str()),
                None => self.unwritten.locked(id),
            }
        }
        let blamed = match settle::write(&mut tx, &outcome).await {
            Ok(blamed) => blamed,
            Err(error) => {
                // At once: the next look must not find the rows locked by this one.
                let _ = tx.rollback().await;
                return Err(error);
            }
        };
        if let Err(error) = tx.commit().await {
            if is_about_the_database(&error) {
                return Err(error.into());
            }
            let why = StoreError::from(error).to_string();
            for id in outcome.ids() {
                self.refused(id, &why, &outcome, refused);
            }
            return Ok(());
        }
        for one in &blamed {
            self.refused(&one.task_id, &one.why, &outcome, refused);
        }
        let blamed: HashSet<&str> = blamed.iter().map(|one| one.task_id.as_str()).collect();
        let written = outcome.ids().filter(|id| !blamed.contains(id));
        self.unwritten.forget(written.chain(settled));
        Ok(())
    }

    fn refused(&self, task_id: &str, why: &str, outcome: &Settlement, refused: &mut Vec<Refused>) {
        self.unwritten.put_off(task_id);
        refused.push(Refused {
            task_id: task_id.to_owned(),
            why: why.to_owned(),
            published: outcome.published.iter().any(|id| id == task_id),
        });
    }
}
