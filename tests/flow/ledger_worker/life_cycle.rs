//! From the ledger through the broker to an end that the row tells.

use std::time::Duration;

use tidegate::worker::{Context, TaskError};
use tidegate_core::headers::Origin;

use super::installation::{Installation, QUEUE, TASK};
use crate::platform::{Json, Seen, envelope, noting};

/// Ends as the task's id says.
async fn as_named(context: Context, _: Json) -> Result<(), TaskError> {
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
        move |context: Context, _: Json| {
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
    let stubborn = move |context: Context, _: Json| {
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

/// As by a kill: the broker has the delivery back, and nobody told the ledger.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_worker_ran_is_started_again() {
    let installation = Installation::new().await;
    let hangs = |_: Context, _: Json| std::future::pending::<Result<(), TaskError>>();
    let worker = installation.worker().handle(TASK, hangs).build().unwrap();
    let running = tokio::spawn(worker.run(tokio_util::sync::CancellationToken::new()));
    installation.insert(&["t"]).await;
    installation.reaches("t", "RUNNING").await;
    running.abort();
    let seen = Seen::default();
    installation
        .platform
        .run(installation.worker().handle(TASK, noting(&seen)));
    let row = installation.reaches("t", "SUCCESS").await;
    assert_eq!((row.attempts, seen.all().len()), (2, 1));
    installation.close().await;
}
