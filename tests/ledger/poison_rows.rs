//! Rows that can never be sent are set aside with the reason, and hold up no other.

use tidegate::scheduler::relay::{self, RelaySettings};

use crate::{
    broker::{Broker, RelayLoop},
    support::{Database, SOON, eventually},
};

/// What somebody may insert by hand.
const ROWS: &str = r#"
INSERT INTO tidegate.tasks (task_id, task_type, envelope, routing_key) VALUES
('empty', 'order.close.timeout', '{}', NULL),
('no-json', 'order.close.timeout', 'close it', NULL),
('other-id', 'order.close.timeout', '{"taskId":"x","taskType":"order.close.timeout","payload":{}}', NULL),
('other-type', 'order.close.timeout', '{"taskId":"other-type","taskType":"order.close.now","payload":{}}', NULL),
('double', 'order.close.timeout', '{"taskId":"double","taskType":"order.close.timeout","payload":{"a":1,"a":2}}', NULL),
('good', 'order.close.timeout', '{"taskId":"good","taskType":"order.close.timeout","payload":{}}', NULL)
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_is_no_task_is_set_aside_with_the_reason() {
    let (db, broker) = (Database::create().await, Broker::create().await);
    db.execute(ROWS).await;
    let batch = relay::pass(&db.store, &broker.tasks, &RelaySettings::default())
        .await
        .unwrap();
    assert_eq!((batch.taken, batch.published, batch.set_aside), (6, 1, 5));
    for (id, why) in [
        ("empty", "/taskId"),
        ("no-json", "syntax"),
        ("other-id", "taskId is x"),
        ("other-type", "taskType is order.close.now"),
        ("double", "/payload/a"),
    ] {
        let row = db.store.tasks().get(id).await.unwrap().unwrap();
        let error = row.last_error.unwrap_or_default();
        assert!(row.state == "FAILED" && error.contains(why), "{id}: {error}");
        assert!(row.finished_at.is_some() && row.published_at.is_none(), "{id}");
    }
    assert_eq!(broker.take().await.len(), 1);
    assert_eq!(db.one::<i64>("SELECT count(*) FROM tidegate.handovers").await, 0);

    // Put right and promoted, one goes its way.
    let relay = RelayLoop::start(&db.store, &broker.tasks);
    db.execute("UPDATE tidegate.tasks SET envelope = '{\"taskId\":\"empty\",\"taskType\":\"order.close.timeout\",\"payload\":{}}' WHERE task_id = 'empty'").await;
    db.store.tasks().promote("empty").await.unwrap();
    eventually(SOON, "the promoted task", async || broker.take().await.len() == 1).await;
    eventually(SOON, "its state", async || {
        let row = db.store.tasks().get("empty").await.unwrap().unwrap();
        row.state == "PUBLISHED" && row.last_error.is_none()
    })
    .await;
    relay.stop().await;
}

/// A full batch of poison at the head of the queue is gone after one pass.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn poison_at_the_head_holds_up_nothing() {
    let (db, broker) = (Database::create().await, Broker::create().await);
    db.execute(
        "INSERT INTO tidegate.tasks (task_id, task_type, envelope, due_at) \
         SELECT 'p' || n, 'order.close.timeout', '{}', now() - interval '1 hour' FROM generate_series(1, 40) n",
    )
    .await;
    db.execute("SELECT tidegate.enqueue('order.close.timeout', '{}', task_id => 'good')")
        .await;
    let relay = RelayLoop::start_with(
        &db.store,
        &broker.tasks,
        RelaySettings {
            batch: 10,
            ..RelaySettings::default()
        },
    );
    eventually(SOON, "the good one", async || broker.take().await.len() == 1).await;
    relay.stop().await;
    assert_eq!(
        db.one::<i64>("SELECT count(*) FROM tidegate.tasks WHERE state = 'FAILED'")
            .await,
        40
    );
}
