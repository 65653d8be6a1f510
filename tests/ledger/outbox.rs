//! Tasks in the ledger: taken by one relay, kept when it dies, given back when nobody takes them.

use std::time::Duration;

use chrono::{TimeDelta, Utc};
use tidegate::store::{
    tasks::{Failure, NewTask, Settlement},
    wake::Channel,
};
use tidegate_core::headers::Origin;
use tokio::time::Instant;

use crate::support::Database;

fn task(id: &str, due_in: TimeDelta) -> NewTask {
    NewTask {
        task_id: id.to_owned(),
        task_type: "a.b".to_owned(),
        exchange: None,
        routing_key: None,
        envelope: format!(r#"{{"taskId":"{id}","taskType":"a.b","payload":{{"n":1.10}}}}"#),
        priority: 100,
        producer: None,
        trace_id: None,
        origin: Origin::Http,
        due_at: Utc::now() + due_in,
    }
}

fn published(ids: &[&str]) -> Settlement {
    Settlement {
        published: ids.iter().map(|id| (*id).to_owned()).collect(),
        ..Settlement::default()
    }
}

async fn state(db: &Database, id: &str) -> String {
    db.store.tasks().get(id).await.unwrap().unwrap().state
}

#[tokio::test]
async fn only_due_tasks_are_taken_and_each_by_one_relay() {
    let db = Database::create().await;
    let tasks = db.store.tasks();
    let past = TimeDelta::seconds(-1);
    let all = [
        task("a", past),
        task("b", past),
        task("c", past),
        task("later", TimeDelta::hours(1)),
    ];
    assert_eq!(tasks.insert(&all).await.unwrap(), 4);
    assert_eq!(
        tasks.insert(&all[..1]).await.unwrap(),
        0,
        "an id that exists is left as it is"
    );

    let first = tasks.lock_due(2).await.unwrap();
    let other = db.another_store();
    let second = other.tasks().lock_due(10).await.unwrap();
    let mut ids: Vec<&str> = first
        .tasks()
        .iter()
        .chain(second.tasks())
        .map(|task| task.task_id.as_str())
        .collect();
    assert_eq!(first.tasks().len(), 2);
    ids.sort_unstable();
    assert_eq!(ids, ["a", "b", "c"]);
    assert!(
        first.tasks()[0].envelope.contains("1.10"),
        "the producer's text, untouched"
    );

    // The first relay dies: its rows are free at once, without any lease to wait for.
    drop(first);
    second.settle(&published(&["c"])).await.unwrap();
    let again = tasks.lock_due(10).await.unwrap();
    assert_eq!(again.tasks().len(), 2);
    again
        .settle(&Settlement {
            failures: vec![Failure {
                task_id: "b".to_owned(),
                error: "nack".to_owned(),
                after: Duration::from_secs(60),
                maybe_sent: true,
            }],
            ..published(&["a"])
        })
        .await
        .unwrap();
    assert_eq!(state(&db, "a").await, "PUBLISHED");
    let b = tasks.get("b").await.unwrap().unwrap();
    assert_eq!(
        (b.state.as_str(), b.publish_attempts, b.last_error.as_deref()),
        ("PENDING", 1, Some("nack"))
    );
    assert!(b.next_try_at.unwrap() > Utc::now() + TimeDelta::seconds(50) && b.due_at < Utc::now());
    assert!(tasks.lock_due(10).await.unwrap().tasks().is_empty());
    let next = tasks.next_due().await.unwrap().unwrap();
    assert_eq!(next.at, b.next_try_at.unwrap());
    assert!(
        (Duration::from_secs(50)..=Duration::from_secs(60)).contains(&next.after),
        "{next:?}"
    );
    let counts: Vec<(String, i64)> = tasks.counts().await.unwrap();
    assert_eq!(counts, [("PENDING".to_owned(), 2), ("PUBLISHED".to_owned(), 2)]);
}

#[tokio::test]
async fn an_unroutable_task_comes_back_to_the_ledger() {
    let db = Database::create().await;
    let tasks = db.store.tasks();
    tasks
        .insert(&[task("a", TimeDelta::zero()), task("b", TimeDelta::zero())])
        .await
        .unwrap();
    let handover = tasks.lock_due(10).await.unwrap();

    // The broker's alternate exchange is faster than the relay's commit: taking back waits for it.
    let store = db.another_store();
    let taking_back = tokio::spawn(async move { store.tasks().unroutable("a", "no queue").await });
    while db.one::<i64>("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()").await == 0 {
        tokio::task::yield_now().await;
    }
    handover.settle(&published(&["a", "b"])).await.unwrap();
    assert!(taking_back.await.unwrap().unwrap());
    let a = tasks.get("a").await.unwrap().unwrap();
    assert_eq!(
        (a.state.as_str(), a.last_error.as_deref()),
        ("PENDING", Some("no queue"))
    );
    assert!(a.published_at.is_none() && a.next_try_at.unwrap() > Utc::now());

    db.execute("UPDATE tidegate.tasks SET state = 'SUCCESS' WHERE task_id = 'b'")
        .await;
    assert!(
        !tasks.unroutable("b", "no queue").await.unwrap(),
        "a task that has gone on stays as it is"
    );
    assert_eq!(state(&db, "b").await, "SUCCESS");
    assert!(!tasks.unroutable("nobody", "no queue").await.unwrap());
}

#[tokio::test]
async fn a_task_exists_if_and_only_if_its_transaction_commits() {
    let db = Database::create().await;
    let insert = "INSERT INTO tidegate.tasks (task_id, task_type, envelope) VALUES ('a', 'a.b', '{}')";
    let mut tx = db.sql.begin().await.unwrap();
    sqlx::query(insert).execute(&mut *tx).await.unwrap();
    assert!(db.store.tasks().lock_due(10).await.unwrap().tasks().is_empty());
    tx.rollback().await.unwrap();
    assert!(db.store.tasks().get("a").await.unwrap().is_none());
    db.execute(insert).await;
    assert_eq!(db.store.tasks().lock_due(10).await.unwrap().tasks().len(), 1);
}

#[tokio::test]
async fn an_insert_wakes_whoever_would_sleep_past_it() {
    let db = Database::create().await;
    let wakes = db.store.listen(Channel::Tasks);
    // The first wake says that it listens.
    let far = Instant::now() + Duration::from_secs(20);
    wakes.wait_until(far, None).await;
    assert!(Instant::now() < far);

    db.store
        .tasks()
        .insert(&[task("soon", TimeDelta::seconds(5))])
        .await
        .unwrap();
    wakes
        .wait_until(far, Some(Utc::now() + TimeDelta::seconds(10)))
        .await;
    assert!(Instant::now() < far, "something is due before what was planned");

    db.store
        .tasks()
        .insert(&[task("late", TimeDelta::seconds(9))])
        .await
        .unwrap();
    db.store
        .tasks()
        .insert(&[task("far", TimeDelta::hours(9))])
        .await
        .unwrap();
    let near = Instant::now() + Duration::from_millis(500);
    wakes
        .wait_until(near, Some(Utc::now() + TimeDelta::seconds(2)))
        .await;
    assert!(
        Instant::now() >= near,
        "what is due later than planned wakes nobody"
    );
}

/// The two statements of the relay's loop must not read the history.
#[tokio::test]
async fn the_relay_reads_only_what_waits() {
    let db = Database::create().await;
    db.execute(
        "INSERT INTO tidegate.tasks (task_id, task_type, envelope, state, due_at) \
         SELECT 't' || n, 'a.b', '{}', CASE WHEN n % 100 = 0 THEN 'PENDING' ELSE 'SUCCESS' END, now() + n * interval '1 s' \
         FROM generate_series(1, 20000) n",
    )
    .await;
    let mut tx = db.sql.begin().await.unwrap();
    // As every session of the store.
    sqlx::query("SET LOCAL enable_bitmapscan = off")
        .execute(&mut *tx)
        .await
        .unwrap();
    let plan: Vec<String> = sqlx::query_scalar(
        "EXPLAIN SELECT task_id FROM tidegate.tasks WHERE ready_at <= now() \
         ORDER BY ready_at LIMIT 500 FOR UPDATE SKIP LOCKED",
    )
    .fetch_all(&mut *tx)
    .await
    .unwrap();
    assert!(
        plan.iter().any(|line| line.contains("tasks_pending")),
        "{plan:#?}"
    );
    assert!(
        !plan
            .iter()
            .any(|line| line.contains("Seq Scan") || line.contains("Sort")),
        "{plan:#?}"
    );
}
