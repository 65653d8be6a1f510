//! Cancel, promote, reschedule: what they answer in each state, and about what relays that die or freeze leave behind.

use std::time::{Duration, Instant};

use chrono::{TimeDelta, Utc};
use tidegate::store::{
    StoreError,
    tasks::{Failure, SetAside, Settlement},
};
use tidegate_core::lifecycle::{CancelOutcome, MoveOutcome, TaskState};

use crate::support::{Database, SOON, eventually};

/// A task due in so many milliseconds, made as a service makes it.
async fn enqueue(db: &Database, id: &str, millis: i64) {
    sqlx::query("SELECT tidegate.enqueue('order.close.timeout', '{}', due_at => clock_timestamp() + $2 * interval '1 ms', task_id => $1)")
        .bind(id)
        .bind(millis)
        .execute(&db.sql)
        .await
        .unwrap();
}

async fn set_state(db: &Database, id: &str, state: &str) {
    let sql = "UPDATE tidegate.tasks SET state = $2, published_at = now(), attempts = 1 WHERE task_id = $1";
    sqlx::query(sql)
        .bind(id)
        .bind(state)
        .execute(&db.sql)
        .await
        .unwrap();
}

#[tokio::test]
async fn every_state_has_its_answer() {
    let db = Database::create().await;
    let tasks = db.store.tasks();
    let future = Utc::now() + TimeDelta::hours(1);
    for state in TaskState::ALL {
        let id = state.as_str();
        enqueue(&db, id, 3_600_000).await;
        if *state != TaskState::Pending {
            set_state(&db, id, id).await;
        }
        let moved = match state {
            TaskState::Pending => MoveOutcome::Rescheduled,
            TaskState::Published | TaskState::Running | TaskState::Retrying => MoveOutcome::AlreadyPublished,
            TaskState::Canceled => MoveOutcome::AlreadyCanceled,
            TaskState::Success | TaskState::Failed => MoveOutcome::AlreadyEnded,
        };
        assert_eq!(tasks.reschedule(id, future).await.unwrap(), moved, "{id}");
        let promoted = match moved {
            MoveOutcome::Rescheduled => MoveOutcome::Promoted,
            refused => refused,
        };
        assert_eq!(tasks.promote(id).await.unwrap(), promoted, "{id}");
        let (first, second, after) = match state {
            TaskState::Pending => (
                CancelOutcome::Canceled,
                CancelOutcome::AlreadyCanceled,
                "CANCELED",
            ),
            TaskState::Published | TaskState::Retrying => (
                CancelOutcome::CanceledInFlight,
                CancelOutcome::AlreadyCanceled,
                "CANCELED",
            ),
            TaskState::Running => (
                CancelOutcome::CancelRequested,
                CancelOutcome::CancelRequested,
                "RUNNING",
            ),
            TaskState::Canceled => (
                CancelOutcome::AlreadyCanceled,
                CancelOutcome::AlreadyCanceled,
                "CANCELED",
            ),
            TaskState::Success | TaskState::Failed => {
                (CancelOutcome::AlreadyEnded, CancelOutcome::AlreadyEnded, id)
            }
        };
        assert_eq!(tasks.cancel(id).await.unwrap(), first, "{id}");
        let row = tasks.get(id).await.unwrap().unwrap();
        assert_eq!(row.state, after, "{id}");
        assert_eq!(row.cancel_requested_at.is_some(), first.took_effect(), "{id}");
        assert_eq!(
            row.finished_at.is_some(),
            after == "CANCELED" && *state != TaskState::Canceled,
            "{id}"
        );
        assert_eq!(tasks.cancel(id).await.unwrap(), second, "{id}");
        let again = tasks.get(id).await.unwrap().unwrap();
        assert_eq!(
            again.cancel_requested_at, row.cancel_requested_at,
            "{id}: the first wish counts"
        );
    }
    assert_eq!(tasks.cancel("nobody").await.unwrap(), CancelOutcome::NotFound);
    assert_eq!(tasks.promote("nobody").await.unwrap(), MoveOutcome::NotFound);
    assert_eq!(
        tasks.reschedule("nobody", future).await.unwrap(),
        MoveOutcome::NotFound
    );
    let far = Utc::now() + TimeDelta::days(91);
    let error = tasks.reschedule("PENDING", far).await.unwrap_err();
    assert!(error.to_string().contains("90 days"), "{error}");
}

#[tokio::test]
async fn a_moved_task_is_due_then_and_a_promoted_one_now() {
    let db = Database::create().await;
    let tasks = db.store.tasks();
    enqueue(&db, "a", 3_600_000).await;
    enqueue(&db, "b", 7_200_000).await;
    let soon = Utc::now() + TimeDelta::seconds(100);
    tasks.reschedule("a", soon).await.unwrap();
    let next = tasks.next_due().await.unwrap().unwrap();
    assert_eq!(next.at.timestamp_micros(), soon.timestamp_micros());
    tasks.promote("b").await.unwrap();
    let due = tasks.lock_due(10).await.unwrap();
    assert_eq!(due.tasks().len(), 1);
    assert_eq!(due.tasks()[0].task_id, "b");
    let failure = Failure {
        task_id: "b".to_owned(),
        error: "no route".to_owned(),
        after: Duration::from_secs(300),
        maybe_sent: false,
    };
    due.settle(&Settlement {
        failures: vec![failure],
        ..Settlement::default()
    })
    .await
    .unwrap();
    assert!(tasks.lock_due(10).await.unwrap().tasks().is_empty());
    // What waits for its next try need not wait for it.
    let planned = tasks.get("b").await.unwrap().unwrap().due_at;
    tasks.promote("b").await.unwrap();
    let row = tasks.get("b").await.unwrap().unwrap();
    assert_eq!(
        (row.due_at, row.next_try_at, row.publish_attempts),
        (planned, None, 0)
    );
    assert_eq!(tasks.lock_due(10).await.unwrap().tasks().len(), 1);
}

#[tokio::test]
async fn a_task_that_was_set_aside_is_taken_back() {
    let db = Database::create().await;
    let tasks = db.store.tasks();
    enqueue(&db, "a", 0).await;
    let set_aside = Settlement {
        set_aside: vec![SetAside {
            task_id: "a".to_owned(),
            error: "no task".to_owned(),
        }],
        ..Settlement::default()
    };
    tasks.lock_due(1).await.unwrap().settle(&set_aside).await.unwrap();
    let row = tasks.get("a").await.unwrap().unwrap();
    assert_eq!(
        (row.state.as_str(), row.last_error.as_deref()),
        ("FAILED", Some("no task"))
    );
    assert!(row.finished_at.is_some());
    assert!(tasks.next_due().await.unwrap().is_none());
    assert_eq!(tasks.cancel("a").await.unwrap(), CancelOutcome::AlreadyEnded);
    assert_eq!(tasks.promote("a").await.unwrap(), MoveOutcome::Promoted);
    let row = tasks.get("a").await.unwrap().unwrap();
    assert_eq!(
        (row.state.as_str(), row.finished_at, row.last_error.as_deref()),
        ("PENDING", None, Some("no task"))
    );
    assert_eq!(tasks.lock_due(1).await.unwrap().tasks().len(), 1);
}

/// A relay that died after it had begun to send, or that got no answer, leaves a task of which nobody knows whether it
/// is out: its cancellation must not be called certain.
#[tokio::test]
async fn what_may_have_been_sent_is_not_called_certain() {
    let db = Database::create().await;
    let tasks = db.store.tasks();
    for id in ["locked", "announced", "unanswered", "answered"] {
        enqueue(&db, id, -1_000).await;
    }
    let only = |id: &'static str| {
        let db = &db;
        async move {
            sqlx::query("UPDATE tidegate.tasks SET next_try_at = CASE task_id WHEN $1 THEN NULL ELSE now() + interval '1 hour' END WHERE state = 'PENDING'")
                .bind(id)
                .execute(&db.sql)
                .await
                .unwrap();
            db.store.tasks().lock_due(10).await.unwrap()
        }
    };
    drop(only("locked").await);
    let mut handover = only("announced").await;
    handover.announce(SOON).await.unwrap();
    drop(handover);
    for (id, maybe_sent) in [("unanswered", true), ("answered", false)] {
        let mut handover = only(id).await;
        handover.announce(SOON).await.unwrap();
        let failure = Failure {
            task_id: id.to_owned(),
            error: "x".to_owned(),
            after: SOON,
            maybe_sent,
        };
        handover
            .settle(&Settlement {
                failures: vec![failure],
                ..Settlement::default()
            })
            .await
            .unwrap();
    }
    assert_eq!(
        db.one::<i64>("SELECT count(*) FROM tidegate.handovers").await,
        1,
        "what is settled is not announced"
    );
    let later = Utc::now() + TimeDelta::hours(1);
    assert_eq!(
        tasks.reschedule("announced", later).await.unwrap(),
        MoveOutcome::AlreadyPublished
    );
    for (id, answer) in [
        ("locked", CancelOutcome::Canceled),
        ("announced", CancelOutcome::CanceledInFlight),
        ("unanswered", CancelOutcome::CanceledInFlight),
        ("answered", CancelOutcome::Canceled),
    ] {
        assert_eq!(tasks.cancel(id).await.unwrap(), answer, "{id}");
    }

    // Forgotten once nothing of it waits, and not before two minutes.
    assert_eq!(tasks.forget_announcements().await.unwrap(), 0);
    db.execute("UPDATE tidegate.handovers SET started_at = now() - interval '3 minutes'")
        .await;
    db.execute("UPDATE tidegate.tasks SET state = 'PENDING' WHERE task_id = 'announced'")
        .await;
    assert_eq!(tasks.forget_announcements().await.unwrap(), 0);
    db.execute("UPDATE tidegate.tasks SET state = 'PUBLISHED' WHERE task_id = 'announced'")
        .await;
    assert_eq!(tasks.forget_announcements().await.unwrap(), 1);
}

/// A transaction that sees old tables can't see what a relay has announced meanwhile.
#[tokio::test]
async fn an_old_snapshot_gives_no_certainty_about_what_is_due() {
    let db = Database::create().await;
    enqueue(&db, "due", 0).await;
    enqueue(&db, "later", 3_600_000).await;
    let mut tx = db.sql.begin().await.unwrap();
    let cancel = async |id: &str, tx: &mut sqlx::PgConnection| {
        let answer = sqlx::query_scalar("SELECT tidegate.cancel($1)").bind(id);
        answer.fetch_one(tx).await.unwrap()
    };
    sqlx::query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        .execute(&mut *tx)
        .await
        .unwrap();
    let answers: [String; 2] = [cancel("due", &mut tx).await, cancel("later", &mut tx).await];
    assert_eq!(answers, ["canceled_in_flight", "canceled"]);
}

/// Rows are free soon after the relay that holds them freezes, and it notices before it sends anything.
#[tokio::test]
async fn a_frozen_relay_loses_its_rows() {
    let db = Database::create().await;
    let tasks = db.store.tasks();
    enqueue(&db, "a", 0).await;
    let mut frozen = tasks.lock_due(1).await.unwrap();
    frozen.announce(Duration::from_millis(500)).await.unwrap();
    let began = Instant::now();
    eventually(SOON, "the row to be free", async || {
        tasks.lock_due(1).await.unwrap().tasks().len() == 1
    })
    .await;
    assert!(
        began.elapsed() >= Duration::from_millis(400),
        "{:?}",
        began.elapsed()
    );
    let error = frozen.settle(&Settlement::default()).await.unwrap_err();
    assert!(error.is_transient(), "{error:?}");
    assert_eq!(
        tasks.cancel("a").await.unwrap(),
        CancelOutcome::CanceledInFlight,
        "it may have sent it"
    );

    // One that freezes between the lock and the announcement is told so when it announces.
    enqueue(&db, "b", 0).await;
    let mut frozen = tasks.lock_due(1).await.unwrap();
    db.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE state = 'idle in transaction' AND datname = current_database()",
    )
    .await;
    assert_eq!(tasks.cancel("b").await.unwrap(), CancelOutcome::Canceled);
    frozen.announce(SOON).await.unwrap_err();
}

#[tokio::test]
async fn a_cancel_does_not_wait_for_long() {
    let db = Database::create().await;
    enqueue(&db, "a", 0).await;
    let held = db.store.tasks().lock_due(1).await.unwrap();
    let began = Instant::now();
    let error = db.store.tasks().cancel("a").await.unwrap_err();
    assert!(
        matches!(&error, StoreError::Busy(why) if why.contains("being handed to the broker")),
        "{error:?}"
    );
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    drop(held);
    assert_eq!(
        db.store.tasks().cancel("a").await.unwrap(),
        CancelOutcome::Canceled
    );
}
