//! Plain clients: whatever they nack, reject, let expire or cannot place gets the same policy.

use futures::StreamExt;
use lapin::{
    BasicProperties,
    options::{BasicAckOptions, BasicNackOptions, BasicRejectOptions},
};
use tidegate_testkit::eventually;

use crate::platform::{PATIENCE, Platform, envelope};

/// A client of another language: no envelope, no headers of ours, just nack or reject without requeue.
#[tokio::test(flavor = "multi_thread")]
async fn a_plain_nack_is_retried_with_backoff_and_dead_lettered_once() {
    let platform = Platform::new().await;
    platform.run_router();
    let mut deliveries = platform.plain_consumer().await;
    for id in ["always", "twice"] {
        platform
            .publish_plain(
                "task.exchange",
                "order.close.x",
                envelope(id, "order.close.timeout", "").as_bytes(),
            )
            .await;
    }
    let (mut always, mut twice) = (0, 0);
    // 4 attempts of one that always fails, 3 of one that fails twice.
    while always < 4 || twice < 3 {
        let delivery = tokio::time::timeout(PATIENCE, deliveries.next())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        if String::from_utf8_lossy(&delivery.data).contains("always") {
            always += 1;
            delivery
                .acker
                .reject(BasicRejectOptions { requeue: false })
                .await
                .unwrap();
        } else {
            twice += 1;
            if twice < 3 {
                delivery
                    .acker
                    .nack(BasicNackOptions {
                        requeue: false,
                        multiple: false,
                    })
                    .await
                    .unwrap();
            } else {
                delivery.acker.ack(BasicAckOptions::default()).await.unwrap();
            }
        }
    }
    let dead = platform.dead_letters(1).await;
    assert_eq!(dead[0].reason(), "retries_exhausted");
    assert_eq!(dead[0].header("x-task-failed-queue"), "order.close.queue");
    assert_eq!(dead[0].header("x-task-routing-key"), "order.close.x");
    assert_eq!(
        dead[0].body,
        envelope("always", "order.close.timeout", "").as_bytes()
    );
    assert_eq!(
        platform.take("order.audit.queue", 2).await.len(),
        2,
        "retries reach the failing queue only"
    );
    platform.drained("order.close.queue").await;
    platform.close().await;
}

/// A message's own TTL that ends in a business queue is visible, not silent.
#[tokio::test(flavor = "multi_thread")]
async fn an_expired_task_is_a_dead_letter() {
    let platform = Platform::new().await;
    platform.run_router();
    let properties = BasicProperties::default().with_expiration("50".into());
    let body = envelope("stale", "order.close.timeout", "");
    platform
        .publish_with("task.exchange", "order.close.x", body.as_bytes(), properties)
        .await;
    // Both subscribers' copies expire.
    let dead = platform.dead_letters(2).await;
    assert!(
        dead.iter()
            .all(|d| d.reason() == "expired" && d.body == body.as_bytes())
    );
    platform.close().await;
}

/// What exceeds the delivery limit comes through the router too. 4.3 counts rejects, older brokers any return.
#[tokio::test(flavor = "multi_thread")]
async fn beyond_the_delivery_limit_is_a_dead_letter() {
    const LIMITED: &str = r#"
        [[queue]]
        name = "order.close.queue"
        bind = ["order.close.#"]
        owner = "test"
        delivery_limit = 2
    "#;
    let platform = Platform::with(LIMITED).await;
    platform.run_router();
    let mut deliveries = platform.plain_consumer().await;
    platform
        .publish_plain(
            "task.exchange",
            "order.close.x",
            envelope("loop", "order.close.timeout", "").as_bytes(),
        )
        .await;
    for _ in 0..3 {
        let delivery = tokio::time::timeout(PATIENCE, deliveries.next())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        delivery
            .acker
            .reject(BasicRejectOptions { requeue: true })
            .await
            .unwrap();
    }
    assert_eq!(platform.dead_letters(1).await[0].reason(), "delivery_limit");
    platform.close().await;
}

/// Poison that a plain client nacks is not retried.
#[tokio::test(flavor = "multi_thread")]
async fn poison_nacked_by_a_plain_client_dies_at_once() {
    let platform = Platform::new().await;
    platform.run_router();
    platform
        .publish_plain("task.exchange", "order.close.x", b"not json")
        .await;
    let mut deliveries = platform.plain_consumer().await;
    let delivery = tokio::time::timeout(PATIENCE, deliveries.next())
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    delivery
        .acker
        .reject(BasicRejectOptions { requeue: false })
        .await
        .unwrap();
    let dead = platform.dead_letters(1).await;
    assert_eq!(
        (dead[0].reason().as_str(), dead[0].body.as_slice()),
        ("invalid_envelope", b"not json".as_slice())
    );
    platform.close().await;
}

/// B37/B08 by AMQP: what no binding takes is neither lost nor silent, delayed or not.
#[tokio::test(flavor = "multi_thread")]
async fn what_no_queue_takes_becomes_a_dead_letter() {
    let platform = Platform::new().await;
    platform.run_router();
    let body = envelope("nowhere", "stock.count.daily", "");
    platform
        .publish_plain("task.exchange", "stock.count.daily", body.as_bytes())
        .await;
    platform
        .send(&body, std::time::Duration::from_millis(300))
        .await
        .unwrap();
    let dead = platform.dead_letters(2).await;
    assert!(
        dead.iter()
            .all(|d| d.reason() == "unroutable" && d.body == body.as_bytes())
    );
    eventually(PATIENCE, "the unrouted queue to drain", async || {
        platform
            .vhost
            .management()
            .queue("task.unrouted.queue")
            .await
            .is_some_and(|q| q.messages == 0)
    })
    .await;
    platform.close().await;
}
