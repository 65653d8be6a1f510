//! Cancelled after the hand-over: before the start with certainty, while it runs by agreement.

use std::time::Duration;

use tidegate::worker::{Context, TaskError};
use tidegate_core::headers;
use tokio::time::Instant;

use super::{
    installation::{Installation, QUEUE, TASK},
    races::cancel,
};
use crate::platform::{Seen, envelope, noting};

#[tokio::test(flavor = "multi_thread")]
async fn what_was_cancelled_in_flight_is_not_started() {
    let installation = Installation::new().await;
    installation.insert(&["t"]).await;
    installation.reaches("t", "PUBLISHED").await;
    assert_eq!(cancel(&installation.sql, "t").await, "canceled_in_flight");
    let seen = Seen::default();
    installation
        .platform
        .run(installation.worker().handle(TASK, noting(&seen)));
    let dead = installation.platform.dead_letters(1).await;
    assert_eq!(dead[0].reason(), "canceled_in_flight");
    assert_eq!(dead[0].header(headers::FAILED_QUEUE), QUEUE);
    assert_eq!(dead[0].body, envelope("t", TASK, "").as_bytes());
    installation.platform.drained(QUEUE).await;
    assert!(seen.all().is_empty(), "its handler was not entered");
    let row = installation.row("t").await;
    assert_eq!((row.state.as_str(), row.attempts), ("CANCELED", 0));
    installation.close().await;
}

/// In the ladder between two attempts.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_cancelled_between_two_attempts_gets_no_second() {
    let installation = Installation::new().await;
    let seen = Seen::default();
    let noted = seen.clone();
    let handler = move |context: Context| {
        noted.note(&context);
        async { Err(TaskError::retry_after(Duration::from_secs(1), "busy", "later")) }
    };
    installation
        .platform
        .run(installation.worker().handle(TASK, handler));
    installation.insert(&["t"]).await;
    installation.reaches("t", "RETRYING").await;
    assert_eq!(cancel(&installation.sql, "t").await, "canceled_in_flight");
    let dead = installation.platform.dead_letters(1).await;
    assert_eq!(dead[0].reason(), "canceled_in_flight");
    assert_eq!(seen.all().len(), 1);
    installation.close().await;
}

/// Waits for a request to cancel; then does what the task's id says.
async fn cooperative(context: Context) -> Result<(), TaskError> {
    context.cancel.cancelled().await;
    match context.envelope.task_id.as_str() {
        "ends" => Err(TaskError::canceled()),
        "fails" => Err(TaskError::retry("http_500", "the call was broken off")),
        "rejects" => Err(TaskError::reject("bad_order", "no such order")),
        _ => Ok(()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_handler_is_told_and_decides() {
    let installation = Installation::new().await;
    installation
        .platform
        .run(installation.worker().handle(TASK, cooperative));
    let ends = [
        ("ends", "CANCELED"),
        ("fails", "CANCELED"),
        ("rejects", "FAILED"),
        ("finishes", "SUCCESS"),
    ];
    installation.insert(&ends.map(|(id, _)| id)).await;
    for (id, _) in ends {
        installation.reaches(id, "RUNNING").await;
    }
    let asked = Instant::now();
    for (id, _) in ends {
        assert_eq!(cancel(&installation.sql, id).await, "cancel_requested");
    }
    for (id, state) in ends {
        let row = installation.reaches(id, state).await;
        assert_eq!(row.attempts, 1, "{id} is not tried again");
        assert!(row.finished_at.is_some());
    }
    assert!(
        asked.elapsed() < Duration::from_secs(10),
        "told within a second or two"
    );
    let dead = installation.platform.dead_letters(1).await;
    assert_eq!(
        dead[0].reason(),
        "rejected",
        "what ended by agreement is acknowledged"
    );
    installation.platform.drained(QUEUE).await;
    installation.close().await;
}

/// A handler that mistakes one token for another must not lose a task.
#[tokio::test(flavor = "multi_thread")]
async fn ending_as_canceled_without_a_request_is_a_failed_attempt() {
    let installation = Installation::new().await;
    let handler = |context: Context| async move {
        match context.attempt {
            1 => Err(TaskError::canceled()),
            _ => Ok(()),
        }
    };
    installation
        .platform
        .run(installation.worker().handle(TASK, handler));
    installation.insert(&["t"]).await;
    assert_eq!(installation.reaches("t", "SUCCESS").await.attempts, 2);
    installation.close().await;
}
