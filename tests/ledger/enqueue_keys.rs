//! `tidegate.enqueue`, once per key and once per id, whoever calls at the same time.

use crate::{
    enqueue::{enqueue, told},
    support::{Database, SOON, eventually},
};

/// B76: the first use of a key by many at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_equal_calls_at_once_make_one_task() {
    let db = Database::create().await;
    let call = r#"'order.pay', '{"order":1,"amount":"89.90"}', idempotency_key => 'order-1'"#;
    let calls = (0..50).map(|_| enqueue(&db.sql, call));
    let ids: Vec<String> = futures::future::try_join_all(calls).await.unwrap();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(db.one::<i64>("SELECT count(*) FROM tidegate.tasks").await, 1);
    // The same things in another order, as maps of some languages give them.
    let same = r#"'order.pay', '{"amount": "89.90", "order": 1}'::jsonb, idempotency_key => 'order-1', due_at => now() + interval '1 hour'"#;
    assert_eq!(enqueue(&db.sql, same).await.unwrap(), ids[0]);
    let other = r#"'order.pay', '{"order":1,"amount":"89.91"}', idempotency_key => 'order-1'"#;
    let (code, message, column, _) = told(enqueue(&db.sql, other).await.unwrap_err());
    assert_eq!(
        (code.as_str(), column.as_str()),
        ("23505", "idempotency_key"),
        "{message}"
    );
    assert!(message.contains(&ids[0]), "{message}");
    // A key counts for its type.
    let elsewhere = enqueue(&db.sql, "'order.ship', '{}', idempotency_key => 'order-1'")
        .await
        .unwrap();
    assert_ne!(elsewhere, ids[0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_whose_first_use_was_rolled_back_is_free() {
    let db = Database::create().await;
    let call = "'order.pay', '{}', idempotency_key => 'k'";
    let mut tx = db.sql.begin().await.unwrap();
    let first: String =
        sqlx::query_scalar("SELECT tidegate.enqueue('order.pay', '{}', idempotency_key => 'k')")
            .fetch_one(&mut *tx)
            .await
            .unwrap();
    let sql = db.sql.clone();
    let second = tokio::spawn(async move { enqueue(&sql, call).await });
    eventually(SOON, "the second caller to wait", async || {
        db.one::<i64>("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()").await == 1
    })
    .await;
    tx.rollback().await.unwrap();
    let second = second.await.unwrap().unwrap();
    assert_ne!(first, second);
    assert!(db.store.tasks().get(&first).await.unwrap().is_none());
    assert_eq!(enqueue(&db.sql, call).await.unwrap(), second);

    // A cancelled task gives its key back.
    db.store.tasks().cancel(&second).await.unwrap();
    let third = enqueue(&db.sql, call).await.unwrap();
    assert_ne!(third, second);
}

/// After a commit without an answer the same call may be made again.
#[tokio::test]
async fn an_id_that_is_there_is_the_same_task_or_an_error() {
    let db = Database::create().await;
    let call = r#"'a.b', '{"n":1}', task_id => 't'"#;
    assert_eq!(enqueue(&db.sql, call).await.unwrap(), "t");
    assert_eq!(enqueue(&db.sql, call).await.unwrap(), "t");
    assert_eq!(db.one::<i64>("SELECT count(*) FROM tidegate.tasks").await, 1);
    for other in [
        r#"'a.b', '{"n":2}', task_id => 't'"#,
        r#"'a.c', '{"n":1}', task_id => 't'"#,
    ] {
        let (code, _, column, _) = told(enqueue(&db.sql, other).await.unwrap_err());
        assert_eq!((code.as_str(), column.as_str()), ("23505", "task_id"));
    }
    db.store.tasks().cancel("t").await.unwrap();
    let (code, message, ..) = told(enqueue(&db.sql, call).await.unwrap_err());
    assert_eq!(code, "23505");
    assert!(message.contains("canceled"), "{message}");
}
