//! From the ledger through the broker to an end that the row tells.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tidegate::worker::{Context, TaskError};
use tidegate_core::headers::Origin;

use super::installation::{Installation, QUEUE, TASK};
use crate::platform::{PATIENCE, Seen, envelope, noting};

/// Ends as the task's id says.
async fn as_named(context: Context) -> Result<(), TaskError> {
    match (context.envelope.task_id.as_str(), context.attempt) {
        ("rejects", _) => Err(TaskError::reject("bad_order", "no such order")),
        ("twice", 1 | 2) => Err(TaskError::retry("http_500", "not yet")),
        ("never", _) => Err(TaskError::retry("http_500", "not\0ever")),
        ("panics", _) => panic!("a bug"),
        _ => Ok(()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_end_is_in_the_row() {
    let installation = Installation::new().await;
    installation
        .platform
        .run(installation.worker().handle(TASK, as_named));
    installation
        .insert(&["succeeds", "twice", "never", "panics", "rejects"])
        .await;
    let row = installation.reaches("succeeds", "SUCCESS").await;
    assert_eq!((row.attempts, row.last_error), (1, None));
    assert!(row.published_at <= row.started_at && row.started_at <= row.finished_at);
    let row = installation.reaches("twice", "SUCCESS").await;
    assert_eq!((row.attempts, row.last_error), (3, None));
    let row = installation.reaches("never", "FAILED").await;
    assert_eq!(row.attempts, 4);
    assert_eq!(
        row.last_error.as_deref(),
        Some("retries_exhausted: http_500: not\\u0000ever")
    );
    let row = installation.reaches("panics", "FAILED").await;
    assert_eq!(row.last_error.as_deref(), Some("retries_exhausted: panic: a bug"));
    let row = installation.reaches("rejects", "FAILED").await;
    assert_eq!(
        (row.attempts, row.last_error.as_deref()),
        (1, Some("rejected: bad_order: no such order"))
    );
    assert!(row.finished_at.is_some());
    installation.platform.dead_letters(3).await;
    installation.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn between_two_attempts_it_is_retrying_and_while_it_runs_running() {
    let installation = Installation::new().await;
    let release = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
    let handler = {
        let release = release.clone();
        move |context: Context| {
            let release = release.clone();
            async move {
                release.acquire().await?.forget();
                match context.attempt {
                    1 => Err(TaskError::retry_after(Duration::from_secs(2), "busy", "later")),
                    _ => Ok(()),
                }
            }
        }
    };
    installation
        .platform
        .run(installation.worker().handle(TASK, handler));
    installation.insert(&["t"]).await;
    assert_eq!(installation.reaches("t", "RUNNING").await.finished_at, None);
    release.add_permits(1);
    let row = installation.reaches("t", "RETRYING").await;
    assert_eq!(
        (row.attempts, row.last_error.as_deref()),
        (1, Some("busy: later"))
    );
    release.add_permits(1);
    assert_eq!(installation.reaches("t", "SUCCESS").await.attempts, 2);
    installation.close().await;
}

/// The relay may publish a task twice (it dies after a publish and before its commit).
#[tokio::test(flavor = "multi_thread")]
async fn a_duplicate_of_what_succeeded_is_acknowledged_without_running() {
    let installation = Installation::new().await;
    let seen = Seen::default();
    installation
        .platform
        .run(installation.worker().handle(TASK, noting(&seen)));
    installation.insert(&["t"]).await;
    installation.reaches("t", "SUCCESS").await;
    installation.publish("t").await;
    installation.platform.drained(QUEUE).await;
    assert_eq!(seen.all().len(), 1);
    assert_eq!(installation.row("t").await.attempts, 1);
    installation.close().await;
}

/// `order.close.timeout` is bound to both queues of the topology.
#[tokio::test(flavor = "multi_thread")]
async fn each_subscriber_of_a_key_runs_it() {
    let installation = Installation::new().await;
    let (close, audit) = (Seen::default(), Seen::default());
    installation
        .platform
        .run(installation.worker().handle(TASK, noting(&close)));
    let worker = installation.platform.worker().queue("order.audit.queue");
    installation.insert(&["t"]).await;
    installation.reaches("t", "SUCCESS").await;
    // Only now: the row says SUCCESS already.
    installation
        .platform
        .run(worker.ledger(installation.ledger()).handle(TASK, noting(&audit)));
    audit.wait(1).await;
    installation.platform.drained("order.audit.queue").await;
    assert_eq!((close.all().len(), audit.all().len()), (1, 1));
    let row = installation.row("t").await;
    assert_eq!(
        (row.state.as_str(), row.attempts),
        ("SUCCESS", 1),
        "it follows one of them"
    );
    installation.close().await;
}

/// Published by any client, or by a client that says otherwise: neither has a row.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_without_a_row_runs() {
    let installation = Installation::new().await;
    let seen = Seen::default();
    installation
        .platform
        .run(installation.worker().handle(TASK, noting(&seen)));
    for (id, origin) in [("amqp", Origin::Amqp), ("pretends", Origin::Sql)] {
        let mut task = crate::platform::task(&envelope(id, TASK, ""));
        task.origin = origin;
        installation
            .platform
            .tasks
            .send(task, Duration::ZERO)
            .await
            .unwrap();
    }
    seen.wait(2).await;
    installation.platform.drained(QUEUE).await;
    assert_eq!(installation.store.tasks().counts().await.unwrap(), []);
    installation.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_shutdown_gives_back_is_published_again_in_the_row() {
    let installation = Installation::new().await;
    let seen = Seen::default();
    let noted = seen.clone();
    let stubborn = move |context: Context| {
        noted.note(&context);
        std::future::pending::<Result<(), TaskError>>()
    };
    let worker = installation.worker().grace(Duration::from_millis(200));
    let stop = installation.platform.run(worker.handle(TASK, stubborn));
    installation.insert(&["t"]).await;
    installation.reaches("t", "RUNNING").await;
    seen.wait(1).await;
    stop.cancel();
    let row = installation.reaches("t", "PUBLISHED").await;
    assert_eq!((row.attempts, row.finished_at), (1, None));
    let again = Seen::default();
    installation
        .platform
        .run(installation.worker().handle(TASK, noting(&again)));
    assert_eq!(again.wait(1).await[0].attempt, 1, "not counted as an attempt");
    assert_eq!(
        installation.reaches("t", "SUCCESS").await.attempts,
        2,
        "it was started twice"
    );
    installation.close().await;
}

/// B35, as by a kill: the broker has the delivery back, and the ledger has not been told. The worker dies while the task runs,
/// or while its success is being written: somebody has locked its row.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_worker_ran_is_started_again() {
    let installation = Installation::new().await;
    for (id, ends) in [("runs", false), ("is-written", true)] {
        let locked = Arc::new(Mutex::new(None));
        let handler = {
            let (locked, sql) = (locked.clone(), installation.sql.clone());
            move || {
                let (locked, sql) = (locked.clone(), sql.clone());
                async move {
                    if !ends {
                        std::future::pending::<()>().await;
                    }
                    let mut lock = sql.begin().await?;
                    sqlx::query("SELECT FROM tidegate.tasks WHERE task_id = $1 FOR UPDATE")
                        .bind(id)
                        .execute(&mut *lock)
                        .await?;
                    *locked.lock().unwrap() = Some(lock);
                    Ok::<(), TaskError>(())
                }
            }
        };
        let worker = installation.worker().handle(TASK, handler).build().unwrap();
        let running = tokio::spawn(worker.run(tokio_util::sync::CancellationToken::new()));
        installation.insert(&[id]).await;
        installation.reaches(id, "RUNNING").await;
        tidegate_testkit::eventually(PATIENCE, "the handler to end", async || {
            !ends || locked.lock().unwrap().is_some()
        })
        .await;
        running.abort();
        let _ = running.await;
        assert_eq!(installation.row(id).await.state, "RUNNING");
        drop(locked.lock().unwrap().take());
        let seen = Seen::default();
        let next = installation
            .platform
            .run(installation.worker().handle(TASK, noting(&seen)));
        let row = installation.reaches(id, "SUCCESS").await;
        assert_eq!((row.attempts, seen.all().len()), (2, 1), "{id}");
        next.cancel();
    }
    installation.close().await;
}
