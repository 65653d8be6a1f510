//! What the broker has confirmed and the ledger can't write down is not sent again, and holds up no other task.

use std::time::Duration;

use tidegate::scheduler::relay::{self, RelaySettings};

use crate::{
    broker::{Broker, RelayLoop},
    support::{Database, SOON, eventually},
};

/// Two dozen tasks, of which the trigger of a team takes no update of one.
async fn with_a_veto(db: &Database) {
    db.execute(
        "SELECT tidegate.enqueue('order.close.timeout', '{}', task_id => 't' || n) FROM generate_series(1, 24) n",
    )
    .await;
    db.execute(
        "CREATE FUNCTION veto() RETURNS trigger LANGUAGE plpgsql AS \
         $$BEGIN RAISE EXCEPTION 'not this one' USING ERRCODE = 'SHOP1'; END$$",
    )
    .await;
    db.execute("CREATE TRIGGER veto BEFORE UPDATE ON tidegate.tasks FOR EACH ROW WHEN (OLD.task_id = 't7') EXECUTE FUNCTION veto()")
        .await;
}

async fn published(db: &Database) -> i64 {
    db.one("SELECT count(*) FROM tidegate.tasks WHERE state = 'PUBLISHED'")
        .await
}

/// A row of which an update raised took its whole batch with it, which was sent again every few seconds, for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_takes_no_update_is_sent_once_and_holds_up_no_other() {
    let (db, broker) = (Database::create().await, Broker::create().await);
    with_a_veto(&db).await;
    let batch = relay::pass(&db.store, &broker.tasks, &RelaySettings::default())
        .await
        .unwrap();
    assert_eq!((batch.published, batch.unwritten), (24, 1));
    assert_eq!(published(&db).await, 23, "the others are written");
    assert_eq!(broker.take().await.len(), 24);

    // A relay that runs, is killed and starts again in the same process; then something else is due.
    for id in ["after-1", "after-2"] {
        let relay = RelayLoop::start(&db.store, &broker.tasks);
        sqlx::query("SELECT tidegate.enqueue('order.close.timeout', '{}', task_id => $1)")
            .bind(id)
            .execute(&db.sql)
            .await
            .unwrap();
        eventually(SOON, "the task after it", async || {
            db.store.tasks().get(id).await.unwrap().unwrap().state == "PUBLISHED"
        })
        .await;
        drop(relay);
    }
    eventually(SOON, "a try on its own", async || {
        let back = db.store.tasks().write_back().await.unwrap();
        back.refused
            .iter()
            .any(|one| one.published && one.task_id == "t7" && one.why.contains("not this one"))
    })
    .await;
    assert_eq!(
        db.one::<Vec<String>>("SELECT task_ids FROM tidegate.handovers")
            .await,
        ["t7"],
        "whoever cancels it is told that the broker may have it"
    );
    let taken = broker.take().await;
    assert_eq!(taken.len(), 2, "only what came after was sent");

    db.execute("DROP TRIGGER veto ON tidegate.tasks").await;
    let relay = RelayLoop::start(&db.store, &broker.tasks);
    eventually(Duration::from_secs(30), "its state", async || {
        published(&db).await == 26
    })
    .await;
    relay.stop().await;
    assert!(broker.take().await.is_empty());
}

/// A deferred constraint raises at the commit only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_fails_at_the_commit_is_sent_once_too() {
    let (db, broker) = (Database::create().await, Broker::create().await);
    with_a_veto(&db).await;
    db.execute("DROP TRIGGER veto ON tidegate.tasks").await;
    db.execute(
        "CREATE CONSTRAINT TRIGGER veto AFTER UPDATE ON tidegate.tasks DEFERRABLE INITIALLY DEFERRED FOR EACH ROW \
         WHEN (OLD.task_id = 't7') EXECUTE FUNCTION veto()",
    )
    .await;
    let settings = RelaySettings::default();
    relay::pass(&db.store, &broker.tasks, &settings)
        .await
        .unwrap_err();
    assert_eq!(published(&db).await, 0);
    assert_eq!(broker.take().await.len(), 24);
    eventually(SOON, "the others", async || {
        relay::pass(&db.store, &broker.tasks, &settings).await.unwrap();
        published(&db).await == 23
    })
    .await;
    assert!(broker.take().await.is_empty());
}

/// While a right is missing nothing new is sent; what was sent is written once it is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_right_lets_nothing_be_sent_twice() {
    let (db, broker) = (Database::create().await, Broker::create().await);
    let role = format!("relay_{}", std::process::id());
    db.run(&format!(
        "CREATE ROLE {role}; GRANT USAGE ON SCHEMA tidegate TO {role}; \
         GRANT SELECT, INSERT, UPDATE, DELETE ON tidegate.handovers TO {role}; \
         GRANT SELECT, UPDATE (state) ON tidegate.tasks TO {role}"
    ))
    .await;
    db.execute("SELECT tidegate.enqueue('order.close.timeout', '{}', task_id => 't' || n) FROM generate_series(1, 5) n")
        .await;
    let store = db.store_as(&role);
    let settings = RelaySettings::default();
    for _ in 0..3 {
        relay::pass(&store, &broker.tasks, &settings).await.unwrap_err();
    }
    db.execute("SELECT tidegate.enqueue('order.close.timeout', '{}', task_id => 'later')")
        .await;
    relay::pass(&store, &broker.tasks, &settings).await.unwrap_err();
    assert_eq!(broker.take().await.len(), 5);
    db.run(&format!("GRANT UPDATE ON tidegate.tasks TO {role}")).await;
    relay::pass(&store, &broker.tasks, &settings).await.unwrap();
    assert_eq!(published(&db).await, 6);
    assert_eq!(broker.take().await.len(), 1, "only the later one");
    db.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}

/// Counted up beyond the end of the column, the row took no update and its batch was sent for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_count_at_its_end_stays_there() {
    let (db, broker) = (Database::create().await, Broker::create().await);
    db.execute("SELECT tidegate.enqueue('order.close.timeout', '{}', exchange => 'nowhere', task_id => 'x')")
        .await;
    db.execute("UPDATE tidegate.tasks SET publish_attempts = 2147483647")
        .await;
    let batch = relay::pass(&db.store, &broker.tasks, &RelaySettings::default())
        .await
        .unwrap();
    assert_eq!((batch.undeliverable, batch.unwritten), (1, 0));
    let row = db.store.tasks().get("x").await.unwrap().unwrap();
    assert_eq!((row.state.as_str(), row.publish_attempts), ("PENDING", i32::MAX));
    assert!(row.next_try_at.is_some() && row.last_error.is_some());

    db.execute("UPDATE tidegate.tasks SET state = 'PUBLISHED', next_try_at = NULL")
        .await;
    assert!(db.store.tasks().unroutable("x", "no queue").await.unwrap());
    let row = db.store.tasks().get("x").await.unwrap().unwrap();
    assert_eq!((row.state.as_str(), row.publish_attempts), ("PENDING", i32::MAX));
}

/// A dead letter doesn't stay PUBLISHED because its row could not be put back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unroutable_task_whose_row_takes_nothing_ends_failed() {
    let (db, broker) = (Database::create().await, Broker::create().await);
    // It takes every state but PENDING again.
    db.execute(
        "CREATE FUNCTION no_way_back() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'no way back'; END$$",
    )
    .await;
    db.execute(
        "CREATE TRIGGER no_way_back BEFORE UPDATE ON tidegate.tasks FOR EACH ROW \
         WHEN (NEW.state = 'PENDING' AND OLD.state = 'PUBLISHED') EXECUTE FUNCTION no_way_back()",
    )
    .await;
    db.execute("SELECT tidegate.enqueue('order.close.timeout', '{}', task_id => 'sent')")
        .await;
    relay::pass(&db.store, &broker.tasks, &RelaySettings::default())
        .await
        .unwrap();
    assert!(!db.store.tasks().unroutable("sent", "no queue").await.unwrap());
    let row = db.store.tasks().get("sent").await.unwrap().unwrap();
    assert_eq!(
        (row.state.as_str(), row.last_error.as_deref()),
        ("FAILED", Some("no queue"))
    );

    // It takes nothing at all, until somebody mends that.
    with_a_veto(&db).await;
    relay::pass(&db.store, &broker.tasks, &RelaySettings::default())
        .await
        .unwrap();
    assert!(
        !db.another_store()
            .tasks()
            .unroutable("t7", "no queue")
            .await
            .unwrap()
    );
    db.execute("DROP TRIGGER veto ON tidegate.tasks").await;
    eventually(SOON, "its end", async || {
        db.store.tasks().write_back().await.unwrap();
        let row = db.store.tasks().get("t7").await.unwrap().unwrap();
        assert_ne!(row.state, "PUBLISHED");
        row.state == "FAILED"
    })
    .await;
}

/// Of a dead relay's announcement only what waits is kept, however long one of its tasks is stuck.
#[tokio::test]
async fn an_announcement_shrinks_to_what_waits() {
    let db = Database::create().await;
    db.execute("SELECT tidegate.enqueue('a.b', '{}', task_id => 't' || n) FROM generate_series(1, 3) n")
        .await;
    db.execute("INSERT INTO tidegate.handovers (task_ids, started_at) VALUES ('{t1,t2,t3,gone}', now() - interval '1 hour')")
        .await;
    db.execute("UPDATE tidegate.tasks SET state = 'PUBLISHED' WHERE task_id <> 't2'")
        .await;
    let tasks = db.store.tasks();
    assert_eq!(tasks.forget_announcements().await.unwrap(), 0);
    assert_eq!(
        db.one::<Vec<String>>("SELECT task_ids FROM tidegate.handovers")
            .await,
        ["t2"]
    );
    db.execute("UPDATE tidegate.tasks SET state = 'PUBLISHED'").await;
    assert_eq!(tasks.forget_announcements().await.unwrap(), 1);
}
