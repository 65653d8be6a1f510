//! Failures, and what happens to keys meanwhile: a task's own retry is never blocked by its own key.

use std::time::Duration;

use tidegate::worker::{Context, TaskError};

use super::stage::{BY_KEY, DATABASE, LEASE, Stage, handling};
use crate::platform::PATIENCE;

/// B74: a failed task's retry found the lock of its own first attempt, and was acknowledged without work.
#[tokio::test(flavor = "multi_thread")]
async fn a_retry_is_not_blocked_by_its_own_key() {
    // Far beyond anybody's patience: whoever waited for a lease would not be done in time.
    let stage = Stage::leasing("1h").await;
    stage.platform.run(handling(stage.worker(), &stage.sql));
    for task_type in [BY_KEY, DATABASE] {
        stage
            .send(task_type, &format!("t.{task_type}"), task_type, r#","fails":2"#)
            .await;
    }
    for task_type in [BY_KEY, DATABASE] {
        stage.done(task_type).await;
        assert_eq!(stage.count(task_type, "start").await, 3);
    }
    assert_eq!(
        stage.count(BY_KEY, "effect").await,
        3,
        "by key, each attempt did it"
    );
    assert_eq!(
        stage.count(DATABASE, "effect").await,
        1,
        "what failed was rolled back"
    );
    stage.settled().await;
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ends_without_success_leaves_its_key_free() {
    let stage = Stage::new().await;
    let handler = |context: Context| async move {
        match context.envelope.task_id.as_str() {
            "rejected" => Err(TaskError::reject("business", "no")),
            "panics" => panic!("as asked"),
            "slow" => std::future::pending().await,
            _ => Ok(()),
        }
    };
    let worker = stage.worker().default_timeout(Duration::from_millis(200));
    stage.platform.run(worker.handle(BY_KEY, handler));
    for id in ["rejected", "panics", "slow"] {
        let body = format!(
            r#"{{"taskId":"{id}","taskType":"{BY_KEY}","payload":{{"orderId":"{id}"}},"maxRetries":0}}"#
        );
        stage.platform.send(&body, Duration::ZERO).await.unwrap();
    }
    stage.platform.dead_letters(3).await;
    for id in ["rejected", "panics", "slow"] {
        assert_eq!(stage.key(id).await, None, "{id}");
        stage.send(BY_KEY, &format!("replay-{id}"), id, "").await;
        stage.done(id).await;
    }
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_shutdown_interrupts_leaves_its_key_free() {
    let stage = Stage::new().await;
    let worker = handling(stage.worker().grace(Duration::from_millis(100)), &stage.sql);
    let stop = stage.platform.run(worker);
    stage.send(DATABASE, "t", "k", r#","ms":60000"#).await;
    stage.reaches("k", "start", 1).await;
    stop.cancel();
    tidegate_testkit::eventually(PATIENCE, "the key to be free", async || {
        stage.key("k").await.is_none()
    })
    .await;
    stage.close().await;
}

/// B74: the row is deleted while its task runs. Nothing is acknowledged without a success that is on record.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_vanishes_mid_run_makes_the_run_count_for_nothing() {
    let stage = Stage::new().await;
    stage.platform.run(handling(stage.worker(), &stage.sql));
    for task_type in [BY_KEY, DATABASE] {
        stage
            .send(task_type, &format!("t.{task_type}"), task_type, r#","ms":500"#)
            .await;
        stage.reaches(task_type, "start", 1).await;
        sqlx::query("DELETE FROM tidegate.executions")
            .execute(&stage.sql)
            .await
            .unwrap();
        stage.done(task_type).await;
        stage.settled().await;
        assert_eq!(stage.count(task_type, "start").await, 2);
    }
    assert_eq!(stage.count(DATABASE, "effect").await, 1);
    stage.close().await;
}

/// A handler that runs for longer than its lease keeps its key, even if all threads of the worker are blocked (B32).
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_renewed_while_handlers_block_every_thread() {
    let stage = Stage::new().await;
    let blocked = stage.process();
    let blocks = format!(r#","ms":{},"blocks":true"#, LEASE.as_millis() * 3);
    for n in 0..4 {
        stage
            .send(BY_KEY, &format!("t{n}"), &format!("k{n}"), &blocks)
            .await;
    }
    tidegate_testkit::eventually(PATIENCE, "all threads to be blocked", async || {
        stage.count("k0", "start").await
            + stage.count("k1", "start").await
            + stage.count("k2", "start").await
            + stage.count("k3", "start").await
            >= 2
    })
    .await;
    // A second worker, with a duplicate of each.
    stage.platform.run(handling(stage.worker(), &stage.sql));
    for n in 0..4 {
        stage.send(BY_KEY, &format!("d{n}"), &format!("k{n}"), "").await;
    }
    stage.settled().await;
    for n in 0..4 {
        assert_eq!(stage.count(&format!("k{n}"), "effect").await, 1, "k{n}");
    }
    drop(blocked);
    stage.close().await;
}
