//! A consumer that comes back: after a cancel by the broker, a lost channel, a restart of the broker.
//!
//! May import: `broker`, `supervisor`, `telemetry`. The end of lapin's stream carries no error (a queue deleted
//! under us, a consumer timeout on 4.3), so every end means: subscribe again on a new channel with a new tag.
//!
//! Each delivery holds its own channel alive until it is settled, so that what is in flight when a consumer is
//! cancelled can still be acknowledged, and nothing is acknowledged on a channel it did not come from.

use std::time::Duration;

use futures::StreamExt;
use lapin::{
    Acker, BasicProperties, Channel,
    options::{BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions},
    types::FieldTable,
};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    connection::{Link, LinkError, within},
    message::short,
};
use crate::{
    supervisor::backoff,
    telemetry::{health::Health, metrics},
};

/// Longest wait for one method on a channel (qos, consume, cancel, ack).
const METHOD_TIMEOUT: Duration = Duration::from_secs(10);

/// A consumer that lasted this long was healthy: the next subscription starts without delay.
const HEALTHY: Duration = Duration::from_secs(10);

/// A message as it arrived. It must be settled exactly once; dropped unsettled, it goes back to its queue when the
/// channel closes.
#[derive(Debug)]
pub struct Incoming {
    /// The queue it was consumed from.
    pub queue: String,
    /// The bytes as published.
    pub body: Vec<u8>,
    /// Properties and headers, not to be trusted.
    pub properties: BasicProperties,
    /// Exchange it came through last.
    pub exchange: String,
    /// Routing key it came with last.
    pub routing_key: String,
    acker: Acker,
    /// Keeps the channel open until this is settled.
    _channel: Channel,
}

/// The settlement did not reach the broker: the channel is gone, and the message is or will be delivered again.
#[derive(Debug, thiserror::Error)]
#[error("the delivery's channel is gone; the broker will deliver it again")]
pub struct Stale;

impl Incoming {
    /// Acknowledges: its outcome is durable.
    pub async fn ack(self) -> Result<(), Stale> {
        match timeout(METHOD_TIMEOUT, self.acker.ack(BasicAckOptions::default())).await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false) | Err(_)) | Err(_) => Err(Stale),
        }
    }

    /// Puts it back on its queue, for when nothing could be published.
    pub async fn requeue(self) -> Result<(), Stale> {
        let options = BasicNackOptions {
            requeue: true,
            ..BasicNackOptions::default()
        };
        match timeout(METHOD_TIMEOUT, self.acker.nack(options)).await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false) | Err(_)) | Err(_) => Err(Stale),
        }
    }
}

/// What to consume and how much to hold.
#[derive(Clone, Debug)]
pub struct Subscription {
    /// Queue.
    pub queue: String,
    /// Most unsettled deliveries; at least 1, since 0 would mean no limit.
    pub prefetch: u16,
    /// Name of the part that [`Health`] shows.
    pub part: String,
}

/// Consumes until `cancel`, sending every delivery to `out`; then cancels the consumer at the broker, sends on
/// what had already arrived, and returns. It also returns when the receiver is gone.
pub async fn consume(
    link: Link,
    subscription: Subscription,
    out: mpsc::Sender<Incoming>,
    health: Health,
    cancel: CancellationToken,
) {
    let mut waits = backoff();
    health.expect(&subscription.part);
    while !cancel.is_cancelled() && !out.is_closed() {
        let started = Instant::now();
        let why = match run(&link, &subscription, &out, &health, &cancel).await {
            Ok(End::Stopped) => return,
            Ok(End::Cancelled) => "cancelled",
            Err(error) => {
                tracing::warn!(queue = %subscription.queue, %error, "consumer lost; subscribing again");
                health.down(&subscription.part, &error.to_string());
                "error"
            }
        };
        if why == "cancelled" {
            tracing::warn!(queue = %subscription.queue, "the broker ended the consumer; subscribing again");
            health.down(&subscription.part, "the broker ended the consumer");
        }
        metrics::resubscribed(&subscription.queue, why);
        if started.elapsed() > HEALTHY {
            waits = backoff();
        }
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(waits.next().unwrap_or_default()) => {}
        }
    }
}

enum End {
    /// We were told to stop.
    Stopped,
    /// The stream ended by itself.
    Cancelled,
}

async fn run(
    link: &Link,
    subscription: &Subscription,
    out: &mpsc::Sender<Incoming>,
    health: &Health,
    cancel: &CancellationToken,
) -> Result<End, LinkError> {
    let channel = link.channel().await?;
    let prefetch = subscription.prefetch.max(1);
    within(
        METHOD_TIMEOUT,
        channel.basic_qos(prefetch, BasicQosOptions::default()),
    )
    .await?;
    // A new tag each time: 3.10.8 mixes up a consumer that is registered again while deliveries are in flight.
    let tag = format!("tidegate-{}", uuid::Uuid::now_v7());
    let (Some(queue), Some(tag)) = (short(&subscription.queue), short(&tag)) else {
        return Err(LinkError::Name(subscription.queue.clone()));
    };
    let consume = channel.basic_consume(
        queue,
        tag.clone(),
        BasicConsumeOptions::default(),
        FieldTable::default(),
    );
    let mut deliveries = within(METHOD_TIMEOUT, consume).await?;
    health.up(&subscription.part);
    tracing::info!(queue = %subscription.queue, prefetch, "consuming");
    let mut stopping = false;
    loop {
        let next = tokio::select! {
            biased;
            () = cancel.cancelled(), if !stopping => {
                stopping = true;
                // After cancel-ok the stream hands out what had arrived and ends.
                within(METHOD_TIMEOUT, channel.basic_cancel(tag.clone(), BasicCancelOptions::default())).await?;
                continue;
            }
            next = deliveries.next() => next,
        };
        let delivery = match next {
            Some(delivery) => delivery?,
            None if stopping => return Ok(End::Stopped),
            None => return Ok(End::Cancelled),
        };
        let incoming = Incoming {
            queue: subscription.queue.clone(),
            body: delivery.data,
            properties: delivery.properties,
            exchange: delivery.exchange.to_string(),
            routing_key: delivery.routing_key.to_string(),
            acker: delivery.acker,
            _channel: channel.clone(),
        };
        if out.send(incoming).await.is_err() {
            return Ok(End::Stopped);
        }
    }
}
