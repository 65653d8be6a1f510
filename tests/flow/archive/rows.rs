//! Tasks of the ledger that died at workers which tell it nothing: their rows say so once they are archived.

use std::time::Duration;

use tidegate::worker::{Context, TaskError};
use tidegate_core::headers::Origin;
use tidegate_testkit::eventually;

use super::archived::Archive;
use crate::platform::{PATIENCE, Platform, envelope, task};

const TASK: &str = "order.close.timeout";
const QUEUE: &str = "order.close.queue";

/// As the relay leaves it once it has handed the task over.
async fn published(archive: &Archive, id: &str) {
    sqlx::query(
        "INSERT INTO tidegate.tasks (task_id, task_type, envelope, state, published_at) VALUES ($1, $2, $3, 'PUBLISHED', now())",
    )
    .bind(id)
    .bind(TASK)
    .bind(envelope(id, TASK, ""))
    .execute(&archive.sql)
    .await
    .unwrap();
}

async fn send(platform: &Platform, id: &str, origin: Origin) {
    let mut task = task(&envelope(id, TASK, ""));
    task.origin = origin;
    platform.tasks.send(task, Duration::ZERO).await.unwrap();
}

/// State, queue and error of a row, and whether it has ended.
async fn row(archive: &Archive, id: &str) -> (String, Option<String>, Option<String>, bool) {
    sqlx::query_as(
        "SELECT state, queue, last_error, finished_at IS NOT NULL FROM tidegate.tasks WHERE task_id = $1",
    )
    .bind(id)
    .fetch_one(&archive.sql)
    .await
    .unwrap()
}

async fn reaches_failed(archive: &Archive, id: &str) {
    eventually(PATIENCE, &format!("the row of {id} to be told"), async || {
        row(archive, id).await.0 == "FAILED"
    })
    .await;
}

/// A worker that has no ledger, and rejects everything.
fn run_rejecting(platform: &Platform) {
    platform.run(
        platform
            .worker()
            .queue(QUEUE)
            .handle(TASK, async |_: Context| -> Result<(), TaskError> {
                Err(TaskError::reject("declined", "card declined"))
            }),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_row_of_a_dead_task_says_so_though_its_worker_told_nobody() {
    let platform = Platform::new().await;
    let archive = Archive::of(&platform).await;
    platform.nacking("order.audit.queue").await;
    run_rejecting(&platform);
    for id in ["told", "done", "of-amqp"] {
        published(&archive, id).await;
    }
    // Somebody knows better.
    sqlx::query("UPDATE tidegate.tasks SET state = 'SUCCESS' WHERE task_id = 'done'")
        .execute(&archive.sql)
        .await
        .unwrap();
    send(&platform, "told", Origin::Sql).await;
    send(&platform, "done", Origin::Cron).await;
    send(&platform, "without-a-row", Origin::Sql).await;
    // Of a message that comes from no ledger a row of the same name is another task's.
    send(&platform, "of-amqp", Origin::Amqp).await;
    archive.start();
    archive.letters(4).await;
    reaches_failed(&archive, "told").await;
    platform.drained("task.dead.queue").await;
    let why = "rejected: declined: card declined".to_owned();
    assert_eq!(
        row(&archive, "told").await,
        ("FAILED".to_owned(), Some(QUEUE.to_owned()), Some(why), true)
    );
    assert_eq!(row(&archive, "done").await.0, "SUCCESS");
    assert_eq!(row(&archive, "of-amqp").await.0, "PUBLISHED");
    archive.close().await;
    platform.close().await;
}

/// A row that somebody has locked holds up no archive for long; a lock of a moment, nothing at all.
#[tokio::test(flavor = "multi_thread")]
async fn a_locked_row_holds_up_the_archive_for_seconds_only() {
    let platform = Platform::new().await;
    let archive = Archive::of(&platform).await;
    run_rejecting(&platform);
    for id in ["locked", "free"] {
        published(&archive, id).await;
        send(&platform, id, Origin::Sql).await;
    }
    let mut lock = archive.sql.begin().await.unwrap();
    sqlx::query("SELECT FROM tidegate.tasks WHERE task_id = 'locked' FOR UPDATE")
        .execute(&mut *lock)
        .await
        .unwrap();
    archive.start();
    archive.letters(2).await;
    reaches_failed(&archive, "free").await;
    platform.drained("task.dead.queue").await;
    assert_eq!(row(&archive, "locked").await.0, "PUBLISHED");

    published(&archive, "for-a-moment").await;
    sqlx::query("SELECT FROM tidegate.tasks WHERE task_id = 'for-a-moment' FOR UPDATE")
        .execute(&mut *lock)
        .await
        .unwrap();
    send(&platform, "for-a-moment", Origin::Sql).await;
    archive.letters(3).await;
    lock.rollback().await.unwrap();
    reaches_failed(&archive, "for-a-moment").await;
    archive.close().await;
    platform.close().await;
}
