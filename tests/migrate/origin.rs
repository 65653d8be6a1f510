//! A task that waited in a migration is the same task afterwards: its key, its queue, its attempts.

use std::{collections::BTreeMap, time::Duration};

use futures::StreamExt;
use lapin::{
    Connection, ConnectionProperties,
    options::{BasicAckOptions, BasicConsumeOptions, BasicNackOptions},
    types::FieldTable,
};
use tidegate::{
    broker::{connection::Link, message},
    core::{envelope::Limits, headers},
    router::Router,
    telemetry::health::Health,
    topology::migration::Action,
};
use tokio_util::sync::CancellationToken;

use crate::platform::{FILES, PATIENCE, Platform, QUEUE};

/// What the broker writes into a message on its way through the temporary queue must not be taken for a failure of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_nack_after_a_migration_is_retried_in_its_queue_with_its_own_key() {
    let (platform, topology) = Platform::from_files(FILES, &[QUEUE]).await;
    let stop = CancellationToken::new();
    let router = Router::new(
        Link::new(platform.settings.clone(), "consume"),
        platform.tasks(&topology),
        Limits::standard(),
        None,
    );
    let router = tokio::spawn({
        let stop = stop.clone();
        async move { router.run(Health::default(), stop).await }
    });
    let body = |id: &str| format!(r#"{{"taskId":"{id}","taskType":"order.close.timeout","payload":{{}}}}"#);
    platform
        .publish("task.exchange", "order.close.eu", &body("moved"))
        .await;
    let mut migration = platform.migration(QUEUE).await;
    while let Some(action) = migration.step().await.unwrap() {
        if action == Action::PullLever {
            platform
                .publish("task.exchange", "order.close.eu", &body("waited"))
                .await;
        }
    }
    assert_eq!(
        (
            migration.report().moved.messages,
            migration.report().returned.messages
        ),
        (1, 2)
    );
    migration.close().await;

    // A client that knows nothing of us: it refuses each task once.
    let connection = Connection::connect(platform.vhost.amqp_url(), ConnectionProperties::default())
        .await
        .unwrap();
    let channel = connection.create_channel().await.unwrap();
    let consume = channel.basic_consume(
        QUEUE.into(),
        "plain".into(),
        BasicConsumeOptions::default(),
        FieldTable::default(),
    );
    let mut deliveries = consume.await.unwrap();
    let mut ended = BTreeMap::new();
    while ended.len() < 2 {
        let next = tokio::time::timeout(PATIENCE, deliveries.next())
            .await
            .expect("both come again");
        let delivery = next.unwrap().unwrap();
        let id = delivery.properties.message_id().as_ref().unwrap().to_string();
        let attempt = message::attempt(&delivery.properties);
        if attempt == 1 {
            assert_eq!(delivery.routing_key.as_str(), "order.close.eu");
            delivery
                .acker
                .nack(BasicNackOptions {
                    requeue: false,
                    ..BasicNackOptions::default()
                })
                .await
                .unwrap();
            continue;
        }
        let header = |name| {
            message::text(&delivery.properties, name)
                .unwrap_or_default()
                .to_owned()
        };
        ended.insert(
            id,
            (
                attempt,
                header(headers::ROUTING_KEY),
                header(headers::FAILED_QUEUE),
                header(headers::ERROR_KIND),
            ),
        );
        delivery.acker.ack(BasicAckOptions::default()).await.unwrap();
    }
    for (id, how) in &ended {
        let expected = (
            2,
            "order.close.eu".to_owned(),
            QUEUE.to_owned(),
            "refused".to_owned(),
        );
        assert_eq!(how, &expected, "{id}");
    }
    stop.cancel();
    tokio::time::timeout(Duration::from_secs(30), router)
        .await
        .unwrap()
        .unwrap();
    platform.vhost.close().await;
}
