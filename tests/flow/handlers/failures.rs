//! What travels of an error (B17): enough to understand it, and never too much to publish.

use std::time::Duration;

use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldTable},
};
use tidegate::{
    core::headers::MAX_ERROR_BYTES,
    worker::{Context, TaskError},
};
use tidegate_testkit::eventually;

use crate::platform::{PATIENCE, Platform, Seen, envelope};

/// The platform's connections, once the broker lists those of the worker: one to consume, one to publish.
async fn connections(platform: &Platform) -> Vec<String> {
    let mut names = Vec::new();
    eventually(PATIENCE, "the connections to be listed", async || {
        names = platform.vhost.management().connection_names().await;
        names.len() >= 3
    })
    .await;
    names
}

/// B17 by the worker, and by the router for a second subscriber that has no SDK and refuses the same task.
#[tokio::test(flavor = "multi_thread")]
async fn an_error_too_big_to_publish_reaches_the_dead_letters_cut() {
    let platform = Platform::new().await;
    platform.run_router();
    platform.nacking("order.audit.queue").await;
    let seen = Seen::default();
    let noted = seen.clone();
    platform.run(platform.worker().queue("order.close.queue").handle(
        "order.close.timeout",
        move |context: Context| {
            noted.note(&context);
            async move {
                match context.envelope.task_id.as_str() {
                    "next" => Ok(()),
                    // 300 KiB of three bytes each, and a kind that no label could carry.
                    _ => Err(TaskError::retry(&"类".repeat(1_000), "错".repeat(100 * 1024))),
                }
            }
        },
    ));
    // As many of 4 KiB as fit the frame that a client of lapin may send; with what an attempt adds they do no longer.
    let publish = async |id: &str, count: usize| {
        let mut headers = FieldTable::default();
        for n in 0..count {
            headers.insert(
                format!("h{n}").into(),
                AMQPValue::LongString(vec![b'x'; 4_096].into()),
            );
        }
        headers.insert("tenant".into(), AMQPValue::LongString("shop".into()));
        let properties = BasicProperties::default()
            .with_headers(headers)
            .with_delivery_mode(2);
        let body = envelope(id, "order.close.timeout", r#","maxRetries":1"#);
        platform
            .publish_with("task.exchange", "order.close.x", body.as_bytes(), properties)
            .await;
    };
    publish("few", 0).await;
    let mut dead = platform.dead_letters(2).await;
    let standing = connections(&platform).await;
    publish("many", 31).await;
    dead.extend(platform.dead_letters(2).await);
    let (ours, refused): (Vec<_>, Vec<_>) = dead
        .iter()
        .partition(|letter| letter.header("x-task-failed-queue") == "order.close.queue");
    assert_eq!((ours.len(), refused.len()), (2, 2));
    for letter in refused {
        assert_eq!(letter.reason(), "retries_exhausted");
        assert_eq!(letter.header("tenant"), "shop");
    }
    for letter in ours {
        let text = letter.header("x-task-error");
        assert!(text.len() <= MAX_ERROR_BYTES && text.len() > MAX_ERROR_BYTES - 4);
        assert!(text.chars().all(|c| c == '错'), "cut on a character boundary");
        assert!(letter.header("x-task-error-kind").chars().all(|c| c == '类'));
        assert_eq!(letter.header("tenant"), "shop");
        assert_eq!(letter.reason(), "retries_exhausted");
    }
    platform
        .send(&envelope("next", "order.close.timeout", ""), Duration::ZERO)
        .await
        .unwrap();
    seen.wait(5).await;
    for queue in ["order.close.queue", "task.failed.queue"] {
        platform.drained(queue).await;
    }
    let now = platform.vhost.management().connection_names().await;
    assert!(
        standing.iter().all(|name| now.contains(name)),
        "every connection stayed up: {standing:?}, {now:?}"
    );
    platform.close().await;
}
