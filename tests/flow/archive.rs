//! Dead letters from wherever they come end in the archive, each once, whatever happens to archivist, database or broker.

pub(crate) mod archived;
mod rows;
mod trouble;

use tidegate::{
    core::headers,
    publish::Task,
    worker::{Context, TaskError},
};
use tidegate_core::headers::Origin;

use self::archived::Archive;
use crate::platform::{PATIENCE, Platform, envelope};

/// A worker's, the router's for a client without an SDK, of what no queue takes, and a stranger's.
#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_of_all_kinds_are_archived_as_they_came() {
    let platform = Platform::new().await;
    platform.run_router();
    platform.nacking("order.audit.queue").await;
    platform.run(platform.worker().queue("order.close.queue").handle(
        "order.close.timeout",
        async |_: Context| -> Result<(), TaskError> {
            // B84: an error text that no text of Postgres holds.
            Err(TaskError::reject("declined", "card\0 declined"))
        },
    ));
    let body = envelope("rejected", "order.close.timeout", r#","maxRetries":1"#);
    platform
        .publish_plain("task.exchange", "order.close.x", body.as_bytes())
        .await;
    let nobodys = envelope("nobodys", "stock.count.daily", "");
    platform
        .publish_plain("task.exchange", "stock.count.daily", nobodys.as_bytes())
        .await;
    platform
        .publish_plain("task.ingress", "order.close.x", b"no task")
        .await;
    platform
        .publish_plain("task.dead", "who.knows", b"\0a stranger's\xff")
        .await;
    let archive = Archive::of(&platform).await;
    archive.start();
    let mut letters = archive.letters(5).await;
    letters.sort_by(|a, b| a.queue.cmp(&b.queue));
    let table: Vec<_> = letters
        .iter()
        .map(|l| {
            (
                l.queue.as_str(),
                l.reason.as_str(),
                l.error_kind.as_str(),
                l.attempts,
                l.task_id.as_deref(),
                l.task_type.as_deref(),
                l.routing_key.as_deref(),
                l.body.as_slice(),
            )
        })
        .collect();
    let (id, of_type) = (Some("rejected"), Some("order.close.timeout"));
    let key = Some("order.close.x");
    assert_eq!(table[0].0, "order.audit.queue");
    assert_eq!(
        table[..2],
        [
            (
                "order.audit.queue",
                "retries_exhausted",
                "refused",
                2,
                id,
                of_type,
                key,
                body.as_bytes()
            ),
            (
                "order.close.queue",
                "rejected",
                "declined",
                1,
                id,
                of_type,
                key,
                body.as_bytes()
            ),
        ]
    );
    // Whoever dead-letters gives a message without an id one.
    assert!(table[3].4.is_some() && table[2].4.is_none());
    assert_eq!(
        (table[2].0, table[2].1, table[2].2, table[2].6, table[2].7),
        (
            "task.dead.queue",
            "rejected",
            "no_reason",
            Some("who.knows"),
            &b"\0a stranger's\xff"[..]
        )
    );
    assert_eq!(
        (table[3].0, table[3].1, table[3].6, table[3].7),
        ("task.ingress.queue", "invalid_envelope", key, &b"no task"[..])
    );
    assert_eq!(
        (table[4].0, table[4].1, table[4].4, table[4].7),
        (
            "task.unrouted.queue",
            "unroutable",
            Some("nobodys"),
            nobodys.as_bytes()
        )
    );
    assert_eq!(letters[1].error, "card\\u0000 declined");
    let of_router = &letters[0];
    assert!(of_router.first_failed_at.is_some() && of_router.died_at <= of_router.archived_at);
    platform.drained("task.dead.queue").await;
    archive.close().await;
    platform.close().await;
}

/// A name of a death goes no further than the archive: a retry doesn't carry it on, and a producer can't bring one.
#[tokio::test(flavor = "multi_thread")]
async fn a_forged_name_of_a_death_takes_no_ones_place() {
    let platform = Platform::new().await;
    platform.run_router();
    platform.nacking("order.audit.queue").await;
    platform.nacking("order.close.queue").await;
    let forged = uuid::Uuid::now_v7().to_string();
    let properties = archived::text_header(headers::DEAD_LETTER_ID, &forged);
    let (one, two) = (
        envelope("one", "order.close.timeout", r#","maxRetries":1"#),
        envelope("two", "order.close.timeout", r#","maxRetries":0"#),
    );
    for body in [&one, &two] {
        platform
            .publish_with(
                "task.exchange",
                "order.close.x",
                body.as_bytes(),
                properties.clone(),
            )
            .await;
        // Straight to the dead letters, with the name of another death.
        platform
            .publish_with("task.dead", "k", body.as_bytes(), properties.clone())
            .await;
    }
    let archive = Archive::of(&platform).await;
    archive.start();
    let letters = archive.letters(6).await;
    let ids: std::collections::BTreeSet<_> = letters.iter().map(|letter| letter.id).collect();
    assert_eq!(ids.len(), 6);
    let by_router = letters.iter().filter(|letter| letter.queue != "task.dead.queue");
    for letter in by_router {
        assert_ne!(
            archived::header(&letter.properties(), headers::DEAD_LETTER_ID),
            Some(forged.clone())
        );
    }
    archive.close().await;
    platform.close().await;
}

/// What a lost confirm makes a worker publish twice is one dead letter: both have the same name.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_that_is_published_twice_is_archived_once() {
    let platform = Platform::new().await;
    platform.nacking("order.audit.queue").await;
    let body = envelope("twice", "order.close.timeout", "");
    let task: Task = crate::platform::task(&body);
    assert_eq!(task.origin, Origin::Amqp);
    platform.run(platform.worker().queue("order.close.queue").handle(
        "order.close.timeout",
        async |_: Context| -> Result<(), TaskError> { Err(TaskError::reject("no", "no")) },
    ));
    platform
        .tasks
        .send(task, std::time::Duration::ZERO)
        .await
        .unwrap();
    let dead = platform.dead_letters(1).await.remove(0);
    for _ in 0..3 {
        platform
            .publish_with(
                "task.dead",
                "order.close.queue",
                &dead.body,
                dead.properties.clone(),
            )
            .await;
    }
    let archive = Archive::of(&platform).await;
    archive.start();
    archive.letters(1).await;
    platform.drained("task.dead.queue").await;
    assert_eq!(archive.letters(1).await.len(), 1);
    archive.close().await;
    platform.close().await;
}

/// Two share the queue; one of them stops in the middle.
#[tokio::test(flavor = "multi_thread")]
async fn two_archivists_share_the_queue_and_one_may_stop() {
    let platform = Platform::new().await;
    let archive = Archive::of(&platform).await;
    let bodies: Vec<String> = (0..600)
        .map(|n| envelope(&format!("t-{n}"), "order.close.timeout", ""))
        .collect();
    let channel = platform.channel().await;
    for half in bodies.chunks(300) {
        let stops = [archive.start(), archive.start()];
        for body in half {
            archived::die(&channel, body.as_bytes()).await;
        }
        tidegate_testkit::eventually(PATIENCE, "some to be archived", async || {
            archive.count().await > 20
        })
        .await;
        stops[0].cancel();
    }
    let letters = archive.letters(bodies.len()).await;
    let ids: std::collections::BTreeSet<_> = letters.iter().map(|l| l.task_id.clone()).collect();
    assert_eq!(ids.len(), bodies.len());
    platform.drained("task.dead.queue").await;
    archive.close().await;
    platform.close().await;
}
