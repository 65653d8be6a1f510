//! The same key again: at once, later, under other names.

use lapin::{
    BasicProperties,
    options::BasicGetOptions,
    types::{AMQPValue, FieldTable},
};
use tidegate::{
    core::headers,
    worker::{BuildError, Context, TaskError},
};
use tidegate_testkit::eventually;

use super::stage::{BY_KEY, DATABASE, QUEUE, Stage, handling};
use crate::platform::PATIENCE;

/// Producers that publish again because they saw no confirm, all at once.
#[tokio::test(flavor = "multi_thread")]
async fn fifty_duplicates_run_once() {
    let stage = Stage::new().await;
    stage
        .platform
        .run(handling(stage.worker().concurrency(20), &stage.sql));
    for task_type in [BY_KEY, DATABASE] {
        let order = format!("order of {task_type}");
        let ids: Vec<String> = (0..50).map(|n| format!("{task_type}.{}", n % 25)).collect();
        futures::future::join_all(
            ids.iter()
                .map(|id| stage.send(task_type, id, &order, r#","ms":50"#)),
        )
        .await;
        stage.done(&order).await;
    }
    stage.settled().await;
    for task_type in [BY_KEY, DATABASE] {
        let order = format!("order of {task_type}");
        assert_eq!(stage.count(&order, "start").await, 1, "{task_type}");
        assert_eq!(stage.count(&order, "effect").await, 1, "{task_type}");
        assert_eq!(stage.key(&order).await.unwrap().0, "DONE");
    }
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_is_the_envelopes_then_the_payloads_then_the_task_id() {
    let stage = Stage::new().await;
    let seen = crate::platform::Seen::default();
    stage
        .platform
        .run(stage.worker().handle(BY_KEY, crate::platform::noting(&seen)));
    let send = async |id: &str, payload: &str, more: &str| {
        let body = format!(r#"{{"taskId":"{id}","taskType":"{BY_KEY}","payload":{payload}{more}}}"#);
        stage
            .platform
            .send(&body, std::time::Duration::ZERO)
            .await
            .unwrap();
    };
    let long = "x".repeat(3_000);
    for (id, payload, more, key) in [
        ("a", r#"{"orderId":9007199254740991}"#, "", "9007199254740991"),
        ("b", r#"{"orderId":"A\u002d1"}"#, "", "A-1"),
        ("c", r#"{"orderId":"A-1"}"#, r#","idempotencyKey":"own""#, "own"),
        ("d", r#"{"orderId":null}"#, "", "d"),
        ("e", &format!(r#"{{"orderId":"{long}"}}"#), "", "sha256:"),
    ] {
        send(id, payload, more).await;
        seen.wait(
            seen.all()
                .len()
                .max(["a", "b", "c", "d", "e"].iter().position(|x| *x == id).unwrap() + 1),
        )
        .await;
        let found: Option<String> =
            sqlx::query_scalar("SELECT idempotency_key FROM tidegate.executions WHERE task_id = $1 AND starts_with(idempotency_key, $2)")
                .bind(id)
                .bind(key)
                .fetch_optional(&stage.sql)
                .await
                .unwrap();
        assert!(found.is_some_and(|found| found.len() < 100), "{id} under {key}");
    }
    // Each of them again, under another task id.
    for (id, payload, more) in [
        ("f", r#"{"orderId":9007199254740991}"#, ""),
        ("g", r#"{"orderId":"A-1"}"#, ""),
        ("h", "{}", r#","idempotencyKey":"own""#),
        ("d", "{}", ""),
    ] {
        send(id, payload, more).await;
    }
    stage.settled().await;
    assert_eq!(seen.ids(), ["a", "b", "c", "d", "e"]);
    stage.close().await;
}

/// Two tasks of the ledger with one key: each row has its success.
#[tokio::test(flavor = "multi_thread")]
async fn the_row_of_a_duplicate_says_success() {
    let stage = Stage::new().await;
    stage.platform.run(handling(stage.worker(), &stage.sql));
    for id in ["first", "second"] {
        let body = format!(r#"{{"taskId":"{id}","taskType":"{BY_KEY}","payload":{{"orderId":"k"}}}}"#);
        sqlx::query("INSERT INTO tidegate.tasks (task_id, task_type, envelope, state, published_at) VALUES ($1, $2, $3, 'PUBLISHED', now())")
            .bind(id)
            .bind(BY_KEY)
            .bind(&body)
            .execute(&stage.sql)
            .await
            .unwrap();
        let mut task = crate::platform::task(&body);
        task.origin = tidegate::core::headers::Origin::Sql;
        stage
            .platform
            .tasks
            .send(task, std::time::Duration::ZERO)
            .await
            .unwrap();
        tidegate_testkit::eventually(crate::platform::PATIENCE, "success", async || {
            let state: String = sqlx::query_scalar("SELECT state FROM tidegate.tasks WHERE task_id = $1")
                .bind(id)
                .fetch_one(&stage.sql)
                .await
                .unwrap();
            state == "SUCCESS"
        })
        .await;
    }
    assert_eq!(stage.count("k", "start").await, 1);
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_without_a_ledger_refuses_such_types() {
    let stage = Stage::new().await;
    let handler = |_: Context| async { Ok::<(), TaskError>(()) };
    for (task_type, mode) in [(BY_KEY, "key"), (DATABASE, "database")] {
        let built = stage
            .platform
            .worker()
            .queue(super::stage::QUEUE)
            .handle(task_type, handler)
            .build();
        let Err(error @ BuildError::NeedsLedger { .. }) = built else {
            panic!("{built:?}")
        };
        let text = error.to_string();
        assert!(
            text.contains(task_type) && text.contains(mode) && text.contains("ledger"),
            "{text}"
        );
    }
    stage.close().await;
}

/// A success whose acknowledgement was lost again and again, with the processes that were about to send it.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_done_is_no_dead_letter_however_many_processes_died_with_it() {
    let stage = Stage::new().await;
    sqlx::query(
        "INSERT INTO tidegate.executions (task_type, idempotency_key, state, owner, lease_until, task_id, finished_at) \
         VALUES ($1, 'done', 'DONE', 'somebody', now(), 'done', now())",
    )
    .bind(BY_KEY)
    .execute(&stage.sql)
    .await
    .unwrap();
    let channel = stage.platform.channel().await;
    for order in ["done", "open"] {
        let mut headers = FieldTable::default();
        headers.insert(headers::CRASHES.into(), AMQPValue::LongLongInt(3));
        let properties = BasicProperties::default().with_headers(headers);
        let body =
            format!(r#"{{"taskId":"{order}","taskType":"{BY_KEY}","payload":{{"orderId":"{order}"}}}}"#);
        stage
            .platform
            .publish_with("task.exchange", BY_KEY, body.as_bytes(), properties)
            .await;
        // Held until the channel closes: then the broker takes it back, as from a process that dies.
        eventually(PATIENCE, "the message", async || {
            let options = BasicGetOptions::default();
            channel.basic_get(QUEUE.into(), options).await.unwrap().is_some()
        })
        .await;
    }
    channel.close(200, "died".into()).await.unwrap();
    stage.platform.run(handling(stage.worker(), &stage.sql));
    let letters = stage.platform.dead_letters(1).await;
    assert_eq!(letters[0].reason(), "worker_crash");
    assert!(String::from_utf8_lossy(&letters[0].body).contains("open"));
    stage.settled().await;
    assert_eq!(stage.key("open").await, None, "what was asked for is given back");
    assert_eq!(
        stage.count("done", "start").await + stage.count("open", "start").await,
        0
    );
    stage.close().await;
}
