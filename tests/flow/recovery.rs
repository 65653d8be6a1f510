//! Consumption comes back by itself: after a cancel by the broker and after lost connections.

use std::{sync::Arc, time::Duration};

use lapin::options::QueueDeleteOptions;
use tidegate::{
    broker::declare,
    telemetry::health::Health,
    worker::{Context, TaskError},
};
use tidegate_testkit::eventually;
use tokio::sync::Semaphore;

use crate::platform::{PATIENCE, Platform, Seen, envelope, metrics};

/// A worker whose tasks with an id of `held…` wait for a permit before they succeed.
fn listening(platform: &Platform) -> (Seen, Health, Arc<Semaphore>) {
    let (seen, health, gate) = (Seen::default(), Health::default(), Arc::new(Semaphore::new(0)));
    let handler = {
        let (seen, gate) = (seen.clone(), gate.clone());
        move |context: Context| {
            seen.note(&context);
            let gate = gate.clone();
            async move {
                if context.envelope.task_id.as_str().starts_with("held") {
                    gate.acquire().await?.forget();
                }
                Ok::<(), TaskError>(())
            }
        }
    };
    platform.run(
        platform
            .worker()
            .queue("order.close.queue")
            .health(health.clone())
            .handle("order.close.timeout", handler),
    );
    (seen, health, gate)
}

async fn publish(platform: &Platform, id: &str) {
    platform
        .send(&envelope(id, "order.close.timeout", ""), Duration::ZERO)
        .await
        .unwrap();
}

/// B23: the queue is deleted under a live worker, while a task runs, and comes back; and so is one of the router's.
#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_queue_is_consumed_again_once_it_is_back() {
    let platform = Platform::new().await;
    platform.run_router();
    let metrics = metrics();
    let (seen, health, gate) = listening(&platform);
    // One after the other: handlers of two that wait in the queue begin in any order.
    for (sent, id) in ["before", "held"].into_iter().enumerate() {
        publish(&platform, id).await;
        seen.wait(sent + 1).await;
    }
    assert!(health.is_ready());
    let channel = platform.channel().await;
    for queue in ["order.close.queue", "task.failed.queue"] {
        channel
            .queue_delete(queue.into(), QueueDeleteOptions::default())
            .await
            .unwrap();
    }
    eventually(PATIENCE, "readiness to turn red", async || !health.is_ready()).await;
    // It ends with nothing to acknowledge: its message went with the queue.
    gate.add_permits(1);
    let connection =
        lapin::Connection::connect(platform.vhost.amqp_url(), lapin::ConnectionProperties::default())
            .await
            .unwrap();
    declare::apply(&connection, &platform.topology.objects(), |_| {})
        .await
        .unwrap();
    publish(&platform, "after").await;
    seen.wait(3).await;
    assert_eq!(seen.ids(), ["before", "held", "after"]);
    eventually(PATIENCE, "readiness to be green again", async || {
        health.is_ready()
    })
    .await;
    // The router is not in the worker's health, and comes back in its own time.
    for queue in ["order.close.queue", "task.failed.queue"] {
        eventually(PATIENCE, &format!("{queue} to be consumed again"), async || {
            metrics.render().lines().any(|line| {
                line.starts_with("tidegate_consumer_resubscribed_total")
                    && line.contains(queue)
                    && line.contains("\"cancelled\"")
            })
        })
        .await;
    }
    // The router has its queue back too.
    platform.nacking("order.audit.queue").await;
    let body = envelope("refused", "order.audit.write", r#","maxRetries":0"#);
    platform
        .publish_plain("task.exchange", "order.audit.write", body.as_bytes())
        .await;
    let refused = async || {
        let dead = platform.vhost.management().queue("task.dead.queue").await;
        dead.is_some_and(|queue| queue.messages >= 1)
    };
    eventually(PATIENCE, "a dead letter by the router", refused).await;
    platform.close().await;
}

/// B22 by the management API: every connection is closed under a running task, several times over, and work goes on. What
/// ran is not run a second time, and no acknowledgement of a lost channel reaches a delivery of the next one.
#[tokio::test(flavor = "multi_thread")]
async fn closed_connections_are_opened_again() {
    let platform = Platform::new().await;
    let (seen, health, gate) = listening(&platform);
    let management = platform.vhost.management();
    let starts = |id: &str| seen.ids().iter().filter(|seen| *seen == id).count();
    // The broker lists what has changed some seconds later, which makes each round a long one.
    let rounds = if crate::is_long() { 5 } else { 2 };
    for round in 0..rounds {
        let (held, next) = (format!("held{round}"), format!("t{round}"));
        // A publish on a connection that dies meanwhile has no known outcome; whoever cares sends it again.
        let send = async |id: &str| {
            let body = envelope(id, "order.close.timeout", "");
            eventually(PATIENCE, "a confirmed publish", async || {
                platform.send(&body, Duration::ZERO).await.is_ok()
            })
            .await;
            eventually(PATIENCE, "its start", async || starts(id) > 0).await;
        };
        send(&held).await;
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
        // What ran is delivered again, and runs on; the acknowledgement of another task leaves it alone.
        send(&next).await;
        eventually(PATIENCE, "one delivery to be left", async || {
            let queue = management.queue("order.close.queue").await;
            queue.is_some_and(|q| (q.messages, q.messages_ready) == (1, 0))
        })
        .await;
        gate.add_permits(10);
        platform.drained("order.close.queue").await;
        gate.forget_permits(10);
        assert!(health.is_ready());
        assert_eq!(starts(&held), 1, "it ran to its end, and not twice");
    }
    for n in rounds..15 {
        publish(&platform, &format!("t{n}")).await;
    }
    eventually(PATIENCE, "all of them", async || {
        (0..15).all(|n| starts(&format!("t{n}")) > 0)
    })
    .await;
    platform.drained("order.close.queue").await;
    let dead = management.queue("task.dead.queue").await;
    assert_eq!(dead.unwrap().messages, 0);
    platform.close().await;
}
