//! Decisions that are written too late: by an instance that was frozen, or lost a race.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use tidegate::{
    scheduler::occurrence,
    store::{
        Store,
        cron_tasks::{Batch, Committed, Decision, Verdict, Written},
    },
};

use crate::{scheduler::pass, support::Database};

const GRACE: Duration = Duration::from_secs(60);

async fn due(store: &Store) -> Option<Batch> {
    let shards: Vec<i64> = (0..16).collect();
    store.cron_tasks().due(&shards, &[], 100).await.unwrap()
}

fn decisions(batch: &Batch) -> Vec<Decision> {
    batch
        .rows
        .iter()
        .map(|row| occurrence::fire(row, batch.now, GRACE))
        .collect()
}

async fn insert_due(db: &Database) {
    db.execute(
        "INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression, next_fire_at) \
         SELECT 'job-' || n, 'a.b', '0 0 1 1 *', date_trunc('second', now()) FROM generate_series(1, 20) n",
    )
    .await;
}

async fn counts(db: &Database) -> (i64, i64) {
    (
        db.one("SELECT count(*) FROM tidegate.cron_fires").await,
        db.one("SELECT count(*) FROM tidegate.tasks").await,
    )
}

#[tokio::test]
async fn a_frozen_instance_keeps_no_row_from_the_others_and_writes_nothing_when_it_wakes() {
    let db = Database::create().await;
    insert_due(&db).await;
    let frozen = db.another_store();
    let batch = due(&frozen).await.unwrap();
    let held = decisions(&batch);
    assert_eq!(held.len(), 20);

    assert_eq!(pass(&db.store).await, 20, "the others don't wait for it");
    let after = counts(&db).await;
    let woken = frozen.cron_tasks().write(batch.now, &held).await.unwrap();
    assert_eq!(
        woken,
        Written::Done(Committed {
            rows: 0,
            lost: 20,
            fires: Vec::new(),
            taken: Vec::new(),
        })
    );
    assert_eq!(counts(&db).await, after);
    assert!(due(&frozen).await.is_none());
}

/// Even if nobody else has touched the rows: what it decided was about another moment.
#[tokio::test]
async fn a_decision_older_than_five_seconds_is_refused() {
    let db = Database::create().await;
    insert_due(&db).await;
    let batch = due(&db.store).await.unwrap();
    let held = decisions(&batch);
    let tasks = db.store.cron_tasks();
    let old = batch.now - TimeDelta::milliseconds(5_000);
    assert_eq!(tasks.write(old, &held).await.unwrap(), Written::Stale);
    assert_eq!(counts(&db).await, (0, 0));
    let versions: i64 = db.one("SELECT max(version) FROM tidegate.cron_tasks").await;
    assert_eq!(versions, 0, "no row was touched");
    assert!(matches!(tasks.write(batch.now, &held).await.unwrap(), Written::Done(done) if done.rows == 20));
    assert_eq!(counts(&db).await, (20, 20));
}

/// Whatever somebody changes between the read and the write makes the decision void, be it bookkeeping by hand.
#[tokio::test]
async fn what_was_changed_meanwhile_is_not_overwritten() {
    let db = Database::create().await;
    for change in [
        "UPDATE tidegate.cron_tasks SET cron_expression = '0 0 2 1 *'",
        "UPDATE tidegate.cron_tasks SET payload = '{\"n\": 1}'",
        "UPDATE tidegate.cron_tasks SET enabled = false",
        "UPDATE tidegate.cron_tasks SET next_fire_at = '2100-01-01Z'",
        "DELETE FROM tidegate.cron_tasks",
    ] {
        db.execute("DELETE FROM tidegate.cron_tasks").await;
        insert_due(&db).await;
        let batch = due(&db.store).await.unwrap();
        let held = decisions(&batch);
        db.execute(change).await;
        let written = db.store.cron_tasks().write(batch.now, &held).await.unwrap();
        assert!(
            matches!(written, Written::Done(done) if done.rows == 0 && done.lost == 20),
            "{change}"
        );
        assert_eq!(counts(&db).await, (0, 0), "{change}");
    }
}

/// Locked by a client that takes its time: the row is left out, the rest is written at once.
#[tokio::test]
async fn a_locked_row_is_passed_over() {
    let db = Database::create().await;
    insert_due(&db).await;
    let mut client = db.sql.begin().await.unwrap();
    sqlx::query("SELECT FROM tidegate.cron_tasks WHERE name = 'job-7' FOR UPDATE")
        .execute(&mut *client)
        .await
        .unwrap();
    assert_eq!(pass(&db.store).await, 19);
    client.rollback().await.unwrap();
    assert_eq!(pass(&db.store).await, 1);
    assert_eq!(counts(&db).await, (20, 20));
}

/// Of an occurrence that is on record already neither a second record nor a second task is made.
#[tokio::test]
async fn an_occurrence_on_record_is_not_sent_again() {
    let db = Database::create().await;
    insert_due(&db).await;
    let batch = due(&db.store).await.unwrap();
    let mut held = decisions(&batch);
    pass(&db.store).await;
    let after = counts(&db).await;
    // As if version and accounted_until had failed.
    for decision in &mut held {
        decision.version += 1;
        decision.verdict = Verdict::Next(DateTime::<Utc>::from_timestamp(4_000_000_000, 0).unwrap());
    }
    let again = db.store.cron_tasks().write(batch.now, &held).await.unwrap();
    assert!(matches!(again, Written::Done(done) if done.rows == 20 && done.fires.is_empty()));
    assert_eq!(counts(&db).await, after);
}
