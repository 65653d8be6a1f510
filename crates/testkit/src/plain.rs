//! Plain lapin at the same work, as a measure for ours: publishing with confirms.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{StreamExt, stream::FuturesUnordered};
use lapin::{
    BasicProperties, Confirmation, Connection, ConnectionProperties,
    options::{BasicPublishOptions, ConfirmSelectOptions},
};
use tokio::task::JoinSet;

/// As many connections and unconfirmed messages as Tidegate's publisher has.
const CONNECTIONS: usize = 2;
const IN_FLIGHT: usize = 1_000;

/// Publishes `bodies` to `key` of `exchange`, mandatory and persistent, and waits for all confirms. The time does not count
/// connecting.
///
/// # Panics
/// If a message is not confirmed by a queue.
pub async fn publish(amqp_url: &str, exchange: &str, key: &str, bodies: &Arc<Vec<String>>) -> Duration {
    let mut publishers = JoinSet::new();
    let mut channels = Vec::new();
    for _ in 0..CONNECTIONS {
        let connection = Connection::connect(amqp_url, ConnectionProperties::default())
            .await
            .expect("the broker accepts a connection");
        let channel = connection.create_channel().await.expect("a channel opens");
        channel
            .confirm_select(ConfirmSelectOptions::default())
            .await
            .expect("the channel confirms");
        channels.push((connection, channel));
    }
    let began = Instant::now();
    for (at, (connection, channel)) in channels.into_iter().enumerate() {
        let bodies = Arc::clone(bodies);
        let (exchange, key) = (exchange.to_owned(), key.to_owned());
        publishers.spawn(async move {
            let mut confirms = FuturesUnordered::new();
            for (n, body) in bodies.iter().enumerate().skip(at).step_by(CONNECTIONS) {
                if confirms.len() >= IN_FLIGHT {
                    confirmed(confirms.next().await);
                }
                let properties = BasicProperties::default()
                    .with_delivery_mode(2)
                    .with_content_type("application/json".into())
                    .with_type(key.as_str().into())
                    .with_message_id(format!("bench-{n:08}").into());
                let options = BasicPublishOptions {
                    mandatory: true,
                    ..BasicPublishOptions::default()
                };
                let sent = channel.basic_publish(
                    exchange.as_str().into(),
                    key.as_str().into(),
                    options,
                    body.as_bytes(),
                    properties,
                );
                confirms.push(sent.await.expect("the message is written"));
            }
            while let Some(confirm) = confirms.next().await {
                confirmed(Some(confirm));
            }
            let _ = connection.close(200, "done".into()).await;
        });
    }
    while let Some(ended) = publishers.join_next().await {
        ended.expect("the publisher ends");
    }
    began.elapsed()
}

fn confirmed(confirm: Option<lapin::Result<Confirmation>>) {
    assert!(
        matches!(confirm, Some(Ok(Confirmation::Ack(None)))),
        "{confirm:?}"
    );
}
