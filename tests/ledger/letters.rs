//! Rows of the archive, put there by SQL.

use chrono::{DateTime, NaiveDate, Utc};
use sqlx::{Postgres, QueryBuilder};
use tidegate_core::{
    dead_letter::{DeadLetterId, DeadLetterState},
    dispose::DeadReason,
    fingerprint::Fingerprint,
};
use uuid::Uuid;

use crate::support::Database;

/// A dead letter to be.
#[derive(Clone, Debug)]
pub(crate) struct Letter {
    pub(crate) id: Uuid,
    pub(crate) archived_at: DateTime<Utc>,
    pub(crate) died_at: DateTime<Utc>,
    pub(crate) task_id: Option<String>,
    pub(crate) task_type: Option<String>,
    pub(crate) queue: String,
    pub(crate) reason: DeadReason,
    pub(crate) error_kind: String,
    pub(crate) error: String,
    pub(crate) state: DeadLetterState,
    pub(crate) body: Vec<u8>,
    pub(crate) properties: String,
}

impl Letter {
    /// A plain one that was archived when it died.
    pub(crate) fn at(died_at: DateTime<Utc>) -> Self {
        let id = Uuid::now_v7();
        Self {
            id,
            archived_at: died_at,
            died_at,
            task_id: Some(format!("t-{}", id.simple())),
            task_type: Some("order.close".to_owned()),
            queue: "order.close.queue".to_owned(),
            reason: DeadReason::Rejected,
            error_kind: "declined".to_owned(),
            error: "card declined".to_owned(),
            state: DeadLetterState::Open,
            body: br#"{"taskType":"order.close","payload":{}}"#.to_vec(),
            properties: r#"{"properties":{},"headers":{}}"#.to_owned(),
        }
    }

    pub(crate) fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(
            self.task_type.as_deref(),
            self.reason,
            &self.error_kind,
            &self.error,
        )
    }

    pub(crate) fn dead_letter_id(&self) -> DeadLetterId {
        DeadLetterId(self.id.into_bytes())
    }

    pub(crate) fn day(&self) -> NaiveDate {
        self.archived_at.date_naive()
    }
}

/// Puts them into the archive of `db`, with the partitions that they need. At most 2,000 at a time.
pub(crate) async fn archive(db: &Database, letters: &[Letter]) {
    for letter in letters {
        partition(db, letter.day()).await;
    }
    let mut sql = QueryBuilder::<Postgres>::new(
        "INSERT INTO tidegate.dead_letters (day, id, archived_at, died_at, task_id, task_type, queue, reason, \
         error_kind, error, attempts, fingerprint, state, replay_id, discarded_in) ",
    );
    sql.push_values(letters, |mut row, letter| {
        let replayed = matches!(
            letter.state,
            DeadLetterState::Replaying | DeadLetterState::Replayed
        );
        row.push_bind(letter.day())
            .push_bind(letter.id)
            .push_bind(letter.archived_at)
            .push_bind(letter.died_at)
            .push_bind(letter.task_id.clone())
            .push_bind(letter.task_type.clone())
            .push_bind(letter.queue.clone())
            .push_bind(letter.reason.as_str())
            .push_bind(letter.error_kind.clone())
            .push_bind(letter.error.clone())
            .push_bind(4_i32)
            .push_bind(letter.fingerprint().0.to_vec())
            .push_bind(letter.state.as_str())
            .push_bind(replayed.then_some(Uuid::nil()))
            .push_bind((letter.state == DeadLetterState::Discarded).then_some(0_i64));
    });
    sql.build().execute(&db.sql).await.unwrap();
    let mut sql = QueryBuilder::<Postgres>::new(
        "INSERT INTO tidegate.dead_letter_messages (day, id, body, properties) ",
    );
    sql.push_values(letters, |mut row, letter| {
        row.push_bind(letter.day())
            .push_bind(letter.id)
            .push_bind(letter.body.clone())
            .push_bind(letter.properties.clone());
    });
    sql.build().execute(&db.sql).await.unwrap();
}

/// Makes the partitions of `day`, unless they are there.
pub(crate) async fn partition(db: &Database, day: NaiveDate) {
    let next = day.succ_opt().unwrap();
    for parent in ["dead_letters", "dead_letter_messages"] {
        db.run(&format!(
            "CREATE TABLE IF NOT EXISTS tidegate.{parent}_{} PARTITION OF tidegate.{parent} \
             FOR VALUES FROM ('{day}') TO ('{next}')",
            day.format("%Y%m%d")
        ))
        .await;
    }
}
