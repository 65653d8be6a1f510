//! What becomes of a queue's messages when consumers come and go.

use std::time::Duration;

use lapin::{
    BasicProperties, Connection, ConnectionProperties,
    options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable},
};
use tidegate::{
    broker::{
        BrokerSettings,
        connection::Link,
        consumer::{Prefetch, Subscription, consume},
        message,
    },
    core::crash::Returns,
    telemetry::health::Health,
};
use tidegate_testkit::Vhost;
use tokio_util::sync::CancellationToken;

const QUEUE: &str = "traffic";
const PREFETCH: u16 = 32;
const ROUNDS: u64 = 120;
/// More than all rounds take, so that something is on its way whenever a consumer stops.
const MESSAGES: usize = 20_000;
/// A round stops after so many at the latest.
const MOST: usize = 100;

/// Brokers before 4.3 take back what is on its way when a consumer is cancelled, and count that as they count the death of
/// a worker: healthy tasks became dead letters, `worker_crash`, though no process had died.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_that_stops_amid_traffic_has_nothing_taken_back() {
    let vhost = Vhost::create().await;
    let connection = Connection::connect(vhost.amqp_url(), ConnectionProperties::default())
        .await
        .unwrap();
    let channel = connection.create_channel().await.unwrap();
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    let options = QueueDeclareOptions {
        durable: true,
        ..QueueDeclareOptions::default()
    };
    channel
        .queue_declare(QUEUE.into(), options, arguments)
        .await
        .unwrap();
    channel
        .confirm_select(ConfirmSelectOptions::default())
        .await
        .unwrap();
    let mut confirms = Vec::new();
    for _ in 0..MESSAGES {
        let options = BasicPublishOptions::default();
        let properties = BasicProperties::default().with_delivery_mode(2);
        let sent = channel.basic_publish("".into(), QUEUE.into(), options, &[0; 500], properties);
        confirms.push(sent.await.unwrap());
    }
    futures::future::try_join_all(confirms).await.unwrap();
    let link = Link::new(BrokerSettings::new(vhost.amqp_url().to_owned().into()), "consume");
    let (mut taken_back, mut seen) = (0, 0);
    for round in 0..ROUNDS {
        let (sender, deliveries) = async_channel::bounded(PREFETCH.into());
        let stop = CancellationToken::new();
        let subscription = Subscription {
            queue: QUEUE.to_owned(),
            prefetch: Prefetch::Fixed(PREFETCH),
            part: QUEUE.to_owned(),
        };
        let health = Health::default();
        let consumer = tokio::spawn(consume(link.clone(), subscription, sender, health, stop.clone()));
        // From before the first delivery to well after it.
        let stopped = tokio::spawn({
            let stop = stop.clone();
            async move {
                tokio::time::sleep(Duration::from_micros(round * 400)).await;
                stop.cancel();
            }
        });
        let before = seen;
        while let Ok(incoming) = deliveries.recv().await {
            let returns = message::returns(&incoming.properties, incoming.redelivered);
            taken_back += usize::from(returns != Returns::Counted(0));
            incoming.ack().unwrap();
            seen += 1;
            if seen - before == MOST {
                stop.cancel();
            }
        }
        stopped.await.unwrap();
        consumer.await.unwrap();
    }
    assert_eq!(taken_back, 0, "of {seen}");
    assert!(seen > 1_000 && seen < MESSAGES, "{seen}");
    connection.close(200, "done".into()).await.unwrap();
    vhost.close().await;
}
