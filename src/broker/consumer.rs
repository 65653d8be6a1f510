//! A consumer that comes back: after a cancel by the broker, a lost channel, a restart of the broker.
//!
//! May import: `broker`, `supervisor`, `telemetry`. The end of lapin's stream carries no error (a queue deleted
//! under us, a consumer timeout on 4.3), so every end means: subscribe again on a new channel with a new tag.
//!
//! Each delivery is settled by the [`line`] of its own channel, which keeps the channel open until all of them are, so
//! that what is in flight when a consumer is cancelled can still be acknowledged, and nothing is acknowledged on a
//! channel it did not come from.

mod line;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_channel::Sender;
use bytes::Bytes;
use futures::{FutureExt, StreamExt};
use lapin::{
    BasicProperties,
    message::Delivery,
    options::{BasicCancelOptions, BasicConsumeOptions, BasicQosOptions},
    types::FieldTable,
};
use tidegate_core::acks::Word;
use tokio::{sync::watch, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use self::line::Line;
use super::{
    connection::{Link, LinkError, within},
    message::short,
};
use crate::{
    supervisor::backoff,
    telemetry::{health::Health, metrics},
};

/// Longest wait for one method on a channel (qos, consume, cancel), and for frames to be written.
const METHOD_TIMEOUT: Duration = Duration::from_secs(10);
/// After how long without a delivery, nothing being acknowledged meanwhile, none is on its way.
const QUIET: Duration = Duration::from_millis(50);

/// A consumer that lasted this long was healthy: the next subscription starts without delay.
const HEALTHY: Duration = Duration::from_secs(10);

/// A message as it arrived. It must be settled exactly once; dropped unsettled, it goes back to its queue when the
/// channel closes.
#[derive(Debug)]
pub struct Incoming {
    /// The queue it was consumed from.
    pub queue: Arc<str>,
    /// The bytes as published.
    pub body: Bytes,
    /// Properties and headers, not to be trusted.
    pub properties: BasicProperties,
    /// Exchange it came through last.
    pub exchange: String,
    /// Routing key it came with last.
    pub routing_key: String,
    /// When it arrived; the broker's patience with it began shortly before.
    pub arrived: Instant,
    /// Whether the broker has delivered it before.
    pub redelivered: bool,
    receipt: Receipt,
}

/// The right to settle one delivery, once.
#[derive(Debug)]
struct Receipt {
    tag: u64,
    line: Arc<Line>,
    settled: bool,
}

impl Receipt {
    fn settle(mut self, word: Word) -> Result<(), Stale> {
        self.settled = true;
        self.line.finish(self.tag, word)
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        if !self.settled {
            self.line.abandon(self.tag);
        }
    }
}

/// The settlement can't reach the broker: the channel is gone, and the message is or will be delivered again.
#[derive(Debug, thiserror::Error)]
#[error("the delivery's channel is gone; the broker will deliver it again")]
pub struct Stale;

impl Incoming {
    /// Acknowledges: its outcome is durable. The broker hears of it within milliseconds, together with others; if the
    /// channel or the process is lost before that, it delivers the message again.
    pub fn ack(self) -> Result<(), Stale> {
        self.receipt.settle(Word::Ack)
    }

    /// Puts it back on its queue, for when nothing could be published; as soon as [`ack`](Self::ack).
    pub fn requeue(self) -> Result<(), Stale> {
        self.receipt.settle(Word::Requeue)
    }
}

/// What to consume and how much to hold.
#[derive(Clone, Debug)]
pub struct Subscription {
    /// Queue.
    pub queue: String,
    /// Most unsettled deliveries.
    pub prefetch: Prefetch,
    /// Name of the part that [`Health`] shows.
    pub part: String,
}

/// Most unsettled deliveries of a consumer; at least 1, since 0 would mean no limit.
#[derive(Clone, Debug)]
pub enum Prefetch {
    /// Always the same.
    Fixed(u16),
    /// Follows somebody's word.
    Following(Following),
}

/// A prefetch that changes: the consumer subscribes anew on a new channel, and what it holds stays on the old one.
#[derive(Clone, Debug)]
pub struct Following {
    /// The prefetch to have.
    pub wanted: watch::Receiver<u16>,
    /// Where the consumer says how long the broker took to answer, in nanoseconds.
    pub round_trip: Arc<AtomicU64>,
}

impl Prefetch {
    fn current(&mut self) -> u16 {
        let prefetch = match self {
            Self::Fixed(prefetch) => *prefetch,
            Self::Following(following) => *following.wanted.borrow_and_update(),
        };
        prefetch.max(1)
    }

    fn answered(&self, took: Duration) {
        if let Self::Following(following) = self {
            let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
            following.round_trip.store(nanos, Ordering::Relaxed);
        }
    }

    /// Whether another one may be wanted than [`current`](Self::current) gave.
    fn has_changed(&self) -> bool {
        match self {
            Self::Fixed(_) => false,
            Self::Following(following) => following.wanted.has_changed().unwrap_or(false),
        }
    }

    /// Ready once another one is wanted than [`current`](Self::current) gave.
    async fn changed(&mut self) {
        if let Self::Following(following) = self
            && following.wanted.changed().await.is_ok()
        {
            return;
        }
        std::future::pending().await
    }
}

/// Consumes until `cancel`, sending every delivery to `out`; then cancels the consumer at the broker, sends on
/// what had already arrived, and returns once all deliveries are settled and the broker has been told. It does so too
/// when the receiver is gone.
pub async fn consume(
    link: Link,
    subscription: Subscription,
    out: Sender<Incoming>,
    health: Health,
    cancel: CancellationToken,
) {
    let mut lines = JoinSet::new();
    keep_consuming(link, subscription, out, health, cancel, &mut lines).await;
    while lines.join_next().await.is_some() {}
}

async fn keep_consuming(
    link: Link,
    mut subscription: Subscription,
    out: Sender<Incoming>,
    health: Health,
    cancel: CancellationToken,
    lines: &mut JoinSet<()>,
) {
    let mut waits = backoff();
    health.expect(&subscription.part);
    while !cancel.is_cancelled() && !out.is_closed() {
        let started = Instant::now();
        while lines.try_join_next().is_some() {}
        let why = match run(&link, &mut subscription, &out, &health, &cancel, lines).await {
            Ok(End::Stopped) => return,
            Ok(End::Renewed) => continue,
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
    /// It has to be subscribed with another prefetch.
    Renewed,
    /// The stream ended by itself.
    Cancelled,
}

#[allow(clippy::large_enum_variant, reason = "it is looked at as soon as it is made")]
enum Next {
    Delivery(Option<lapin::Result<Delivery>>),
    End(End),
    /// Nothing is on its way any more.
    Quiet,
}

async fn run(
    link: &Link,
    subscription: &mut Subscription,
    out: &Sender<Incoming>,
    health: &Health,
    cancel: &CancellationToken,
    lines: &mut JoinSet<()>,
) -> Result<End, LinkError> {
    let channel = link.channel().await?;
    let prefetch = subscription.prefetch.current();
    let asked = Instant::now();
    within(
        METHOD_TIMEOUT,
        channel.basic_qos(prefetch, BasicQosOptions::default()),
    )
    .await?;
    subscription.prefetch.answered(asked.elapsed());
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
    tracing::info!(queue = %subscription.queue, prefetch, "consuming");
    health.up(&subscription.part);
    let queue: Arc<str> = subscription.queue.as_str().into();
    let line = Arc::new(Line::new(channel.clone(), prefetch, queue.clone()));
    lines.spawn(line.clone().run());
    let _left = Left(&line);
    let (mut ending, mut is_cancelled) = (None, false);
    loop {
        let asked = ending.is_some() || cancel.is_cancelled() || subscription.prefetch.has_changed();
        // Under load the next one has arrived already, and nothing need be set up to wait for it.
        let arrived = (!asked).then(|| deliveries.next().now_or_never()).flatten();
        let next = match arrived {
            Some(delivery) => Next::Delivery(delivery),
            None => {
                let quiet = if ending.is_some() && line.untold() >= usize::from(prefetch) {
                    Duration::ZERO
                } else {
                    QUIET
                };
                tokio::select! {
                biased;
                () = cancel.cancelled(), if ending.is_none() => Next::End(End::Stopped),
                () = subscription.prefetch.changed(), if ending.is_none() => Next::End(End::Renewed),
                () = tokio::time::sleep(quiet), if ending.is_some() && !is_cancelled => Next::Quiet,
                next = deliveries.next() => Next::Delivery(next),
                }
            }
        };
        let delivery = match next {
            Next::Delivery(Some(delivery)) => delivery?,
            Next::Delivery(None) => return Ok(ending.unwrap_or(End::Cancelled)),
            Next::End(end) => {
                ending = Some(end);
                // What is on its way when a consumer is cancelled, brokers before 4.3 take back unseen, and count it as if a
                // process had died. So acknowledgements wait until the window is full, or nothing comes.
                line.hold(true);
                continue;
            }
            Next::Quiet => {
                is_cancelled = true;
                // After cancel-ok the stream hands out what had arrived and ends.
                let options = BasicCancelOptions::default();
                within(METHOD_TIMEOUT, channel.basic_cancel(tag.clone(), options)).await?;
                line.hold(false);
                continue;
            }
        };
        let tag = delivery.delivery_tag;
        line.arrive(tag);
        let incoming = Incoming {
            queue: queue.clone(),
            body: delivery.data.into(),
            arrived: Instant::now(),
            properties: delivery.properties,
            exchange: delivery.exchange.to_string(),
            routing_key: delivery.routing_key.to_string(),
            redelivered: delivery.redelivered,
            receipt: Receipt {
                tag,
                line: line.clone(),
                settled: false,
            },
        };
        if out.send(incoming).await.is_err() {
            return Ok(End::Stopped);
        }
    }
}

/// However the consumer ends, its line is told.
struct Left<'a>(&'a Line);

impl Drop for Left<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}
