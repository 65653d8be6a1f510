//! Consumption comes back by itself: after a cancel by the broker and after lost connections.

use std::time::Duration;

use lapin::options::QueueDeleteOptions;
use tidegate::{broker::declare, telemetry::health::Health, worker::Context};
use tidegate_testkit::eventually;

use crate::platform::{Json, PATIENCE, Platform, Seen, envelope};

fn listening(platform: &Platform) -> (Seen, Health) {
    let (seen, health) = (Seen::default(), Health::default());
    platform.run(
        platform
            .worker()
            .queue("order.close.queue")
            .health(health.clone())
            .handle("order.close.timeout", {
                let seen = seen.clone();
                move |context: Context, _: Json| {
                    seen.note(&context);
                    async { Ok(()) }
                }
            }),
    );
    (seen, health)
}

/// B23: the queue is deleted under a live worker and comes back.
#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_queue_is_consumed_again_once_it_is_back() {
    let platform = Platform::new().await;
    let (seen, health) = listening(&platform);
    platform
        .send(&envelope("before", "order.close.timeout", ""), Duration::ZERO)
        .await
        .unwrap();
    seen.wait(1).await;
    assert!(health.is_ready());
    let channel = platform.channel().await;
    channel
        .queue_delete("order.close.queue".into(), QueueDeleteOptions::default())
        .await
        .unwrap();
    eventually(PATIENCE, "readiness to turn red", async || !health.is_ready()).await;
    let connection =
        lapin::Connection::connect(platform.vhost.amqp_url(), lapin::ConnectionProperties::default())
            .await
            .unwrap();
    declare::apply(&connection, &platform.topology.objects(), |_| {})
        .await
        .unwrap();
    platform
        .send(&envelope("after", "order.close.timeout", ""), Duration::ZERO)
        .await
        .unwrap();
    seen.wait(2).await;
    assert_eq!(seen.ids(), ["before", "after"]);
    eventually(PATIENCE, "readiness to be green again", async || {
        health.is_ready()
    })
    .await;
    platform.close().await;
}

/// B22 by the management API: every connection is closed, five times over, and work goes on.
#[tokio::test(flavor = "multi_thread")]
async fn closed_connections_are_opened_again() {
    let platform = Platform::new().await;
    let (seen, _) = listening(&platform);
    for round in 0..5 {
        let body = envelope(&format!("t{round}"), "order.close.timeout", "");
        // A publish on a connection that dies meanwhile has no known outcome; whoever cares sends it again.
        eventually(PATIENCE, "a confirmed publish", async || {
            platform.send(&body, Duration::from_millis(50)).await.is_ok()
        })
        .await;
        seen.wait(round + 1).await;
        platform.drained("order.close.queue").await;
        let management = platform.vhost.management();
        let before = eventually(PATIENCE, "the connections to be listed", async || {
            let names = management.connection_names().await;
            (names.len() >= 2).then_some(names)
        })
        .await;
        eventually(PATIENCE, "new connections only", async || {
            // Again and again: the broker's list is some seconds old, and may lack one that must be closed.
            management.close_those(&before).await;
            let now = management.connection_names().await;
            !now.is_empty() && now.iter().all(|name| !before.contains(name))
        })
        .await;
    }
    for n in 5..15 {
        platform
            .send(
                &envelope(&format!("t{n}"), "order.close.timeout", ""),
                Duration::ZERO,
            )
            .await
            .unwrap();
    }
    seen.wait(15).await;
    platform.drained("order.close.queue").await;
    let mut ids = seen.ids();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 15);
    platform.close().await;
}
