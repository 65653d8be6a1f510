//! Sends the probes of a batch and watches where they come out.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt, stream};
use lapin::{
    BasicProperties, Channel, Connection,
    message::Delivery,
    options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions, BasicRejectOptions},
    types::{AMQPValue, FieldTable},
};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};

use crate::{
    broker::{
        connection::{LinkError, within},
        message::{Headers, short, text},
        publisher::{Outgoing, PublishOutcome, Publisher},
    },
    topology::{
        live::Live,
        verify::{Arrival, BODY_BYTES, Batch, Death, Probe, Sent, missing},
    },
};

/// The header that marks a probe; its value is the probe's number.
pub(super) const PROBE: &str = "x-task-probe";
/// Probes that are published at the same time.
const AT_ONCE: usize = 256;
/// Unsettled probes per queue.
const PREFETCH: u16 = 250;
const ANSWER: Duration = Duration::from_secs(30);
/// How often it is counted what is still missing.
const LOOK: Duration = Duration::from_millis(20);
/// What is missing and has not come for so long, while nothing else came either, does not come.
const QUIET: Duration = Duration::from_secs(10);

/// What came out so far, of the batch that is under way.
#[derive(Clone, Default)]
pub(super) struct Arrivals {
    inner: Arc<Mutex<(Vec<Probe>, Vec<Arrival>)>>,
}

impl Arrivals {
    /// Forgets what came and expects the probes of `batch`.
    pub(super) fn begin(&self, batch: &Batch) {
        *self.lock() = (batch.probes.clone(), Vec::new());
    }

    /// What came out.
    pub(super) fn taken(&self) -> Vec<Arrival> {
        self.lock().1.clone()
    }

    /// No code panics while it holds the lock.
    fn lock(&self) -> MutexGuard<'_, (Vec<Probe>, Vec<Arrival>)> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a delivery; says whether it is to be rejected.
    fn note(&self, queue: &str, delivery: &Delivery) -> bool {
        let number = text(&delivery.properties, PROBE).and_then(|number| number.parse().ok());
        let mut inner = self.lock();
        let Some(probe) = number else { return false };
        let rejects = inner
            .0
            .get(probe)
            .is_some_and(|p: &Probe| p.reject_in.as_deref() == Some(queue));
        inner.1.push(Arrival {
            probe,
            queue: queue.to_owned(),
            key: delivery.routing_key.to_string(),
            deaths: deaths(&delivery.properties),
        });
        rejects
    }
}

/// Consumers on some queues, until dropped.
pub(super) struct Tap {
    channel: Channel,
    task: JoinHandle<()>,
}

impl Tap {
    /// Consumes `queues`, which must exist.
    pub(super) async fn open(
        conn: &Connection,
        queues: &[&str],
        arrivals: &Arrivals,
    ) -> Result<Self, LinkError> {
        let channel = within(ANSWER, conn.create_channel()).await?;
        within(ANSWER, channel.basic_qos(PREFETCH, BasicQosOptions::default())).await?;
        let mut consumers = Vec::new();
        for queue in queues {
            let name = short(queue).unwrap_or_default();
            let consume = channel.basic_consume(
                name,
                "".into(),
                BasicConsumeOptions::default(),
                FieldTable::default(),
            );
            let queue = (*queue).to_owned();
            consumers.push(
                within(ANSWER, consume)
                    .await?
                    .map(move |next| (queue.clone(), next)),
            );
        }
        let arrivals = arrivals.clone();
        let task = tokio::spawn(async move {
            let mut all = stream::select_all(consumers);
            while let Some((queue, next)) = all.next().await {
                // A lost channel: what doesn't arrive is seen as missing, and the next publish fails.
                let Ok(delivery) = next else { return };
                let settled = if arrivals.note(&queue, &delivery) {
                    delivery.acker.reject(BasicRejectOptions { requeue: false }).await
                } else {
                    delivery.acker.ack(BasicAckOptions::default()).await
                };
                if settled.is_err() {
                    return;
                }
            }
        });
        Ok(Self { channel, task })
    }

    pub(super) async fn close(&self) {
        let _ = within(ANSWER, self.channel.close(200, "done".into())).await;
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Publishes the probes of `batch` that `which` names, and adds how it ended to `sent`.
pub(super) async fn publish(
    publisher: &Publisher,
    batch: &Batch,
    live: &Live,
    sent: &mut [Sent],
    which: impl Fn(&Probe) -> bool,
) {
    let copies = batch
        .probes
        .iter()
        .enumerate()
        .filter(|(_, probe)| which(probe))
        .flat_map(|(number, probe)| (0..probe.copies).map(move |copy| (number, probe, copy)));
    let publishes = copies.map(|(number, probe, copy)| async move {
        // A publish to an internal exchange would cost the channel; that it is one is told from what was read.
        let internal = live
            .exchange(&probe.exchange)
            .is_some_and(|exchange| exchange.internal);
        let outcome = if internal {
            Err("the exchange is internal".to_owned())
        } else {
            outcome(publisher.publish(message(probe, number, copy)).await)
        };
        (number, outcome)
    });
    let mut outcomes = stream::iter(publishes).buffer_unordered(AT_ONCE);
    while let Some((number, outcome)) = outcomes.next().await {
        match outcome {
            Ok(()) => sent[number].confirmed += 1,
            Err(why) => sent[number].refused = Some(why),
        }
    }
}

/// Waits until everything that was confirmed came out, or nothing comes any more.
pub(super) async fn settle(batch: &Batch, sent: &[Sent], arrivals: &Arrivals) {
    let (mut left, mut since) = (u32::MAX, Instant::now());
    while left > 0 && since.elapsed() < QUIET {
        let now = missing(batch, sent, &arrivals.taken()).iter().sum();
        if now < left {
            (left, since) = (now, Instant::now());
        }
        if left > 0 {
            sleep(LOOK).await;
        }
    }
}

/// A message that looks like a task to whoever looks, of a type that nobody has.
pub(super) fn message(probe: &Probe, number: usize, copy: u32) -> Outgoing {
    let id = format!("verify-{number}-{copy}");
    let body = format!(r#"{{"taskId":"{id}","taskType":"tidegate.verify","payload":{{}}}}"#);
    let headers = Headers::default().text(PROBE, &number.to_string());
    let properties = BasicProperties::default()
        .with_message_id(id.as_str().into())
        .with_type("tidegate.verify".into())
        .with_content_type("application/json".into())
        .with_delivery_mode(2)
        .with_headers(headers.into_table());
    Outgoing {
        exchange: probe.exchange.clone(),
        routing_key: probe.key.clone(),
        body: Bytes::from(format!("{body:BODY_BYTES$}")),
        properties,
    }
}

pub(super) fn outcome(outcome: PublishOutcome) -> Result<(), String> {
    match outcome {
        PublishOutcome::Confirmed => Ok(()),
        PublishOutcome::Returned { text, .. } => Err(format!("no queue took it ({text})")),
        PublishOutcome::Nacked => Err("the queue refused it (nack)".to_owned()),
        PublishOutcome::NoExchange => Err("the exchange does not exist".to_owned()),
        PublishOutcome::Forbidden { why } => Err(format!("the exchange is closed to this user: {why}")),
        PublishOutcome::TimedOut { why } | PublishOutcome::Invalid { why } => Err(why),
    }
}

/// `x-death` holds each queue and reason once.
fn deaths(properties: &BasicProperties) -> Vec<Death> {
    let headers = properties.headers().as_ref().map(FieldTable::inner);
    let Some(AMQPValue::FieldArray(all)) = headers.and_then(|headers| headers.get("x-death")) else {
        return Vec::new();
    };
    let of = |value: &AMQPValue| {
        let AMQPValue::FieldTable(death) = value else {
            return None;
        };
        let field = |name: &str| match death.inner().get(name) {
            Some(AMQPValue::LongString(text)) => String::from_utf8_lossy(text.as_bytes()).into_owned(),
            _ => String::new(),
        };
        Some(Death {
            queue: field("queue"),
            reason: field("reason"),
        })
    };
    all.as_slice().iter().filter_map(of).collect()
}
