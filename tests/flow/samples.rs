//! The envelopes of the requirement's authors, byte for byte, sent the way their producers send.

use tidegate::worker::{TaskError, extract::Payload};

use crate::platform::{Json, Platform, Seen};

const CAMEL: &[u8] = include_bytes!("../../conformance/envelope/valid/envelope-camel-case.json");
const SNAKE: &[u8] = include_bytes!("../../conformance/envelope/valid/envelope-snake-case.json");
const MINIMAL: &[u8] = include_bytes!("../../conformance/envelope/valid/envelope-minimal-go-producer.json");

#[tokio::test(flavor = "multi_thread")]
async fn sample_envelopes_reach_a_handler_as_they_stand() {
    let platform = Platform::new().await;
    let seen = Seen::default();
    let handler = |seen: Seen| {
        move |context: tidegate::worker::Context, Payload(payload): Payload<Json>| {
            seen.note(&context);
            async move {
                match payload.get("orderId").or(payload.get("order_id")) {
                    Some(Json::String(_)) => Ok(()),
                    other => Err(TaskError::reject("bad_payload", format!("{other:?}"))),
                }
            }
        }
    };
    platform.run(
        platform
            .worker()
            .queue("order.close.queue")
            .handle("order.close.timeout", handler(seen.clone()))
            .handle("order.close_timeout", handler(seen.clone())),
    );
    // The Go producer's way: `task.exchange`, key `order.close`, no headers, not mandatory.
    for body in [CAMEL, SNAKE, MINIMAL] {
        platform.publish_plain("task.exchange", "order.close", body).await;
    }
    let starts = seen.wait(3).await;
    let mut ids: Vec<_> = starts.iter().map(|s| s.task_id.as_str()).collect();
    ids.sort_unstable();
    assert_eq!(
        ids,
        [
            "b3e1d5a8-7f20-4f1b-ae7d-1234567890ab",
            "order_close_20250402120001_001",
            "order_close_20250402120001_001"
        ]
    );
    platform.drained("order.close.queue").await;
    // The other subscriber of the same key has the exact bytes.
    let mut bodies: Vec<_> = platform
        .take("order.audit.queue", 3)
        .await
        .into_iter()
        .map(|m| m.body)
        .collect();
    let mut sent = vec![CAMEL.to_vec(), SNAKE.to_vec(), MINIMAL.to_vec()];
    bodies.sort();
    sent.sort();
    assert_eq!(bodies, sent);
    assert!(platform.dead_letters(0).await.is_empty());
    platform.close().await;
}
