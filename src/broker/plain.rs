//! Plain lapin at the work of publisher and worker, as a measure for ours: the loops that a careful user would write.
//!
//! May import: lapin, `connection`. For benchmarks only; no retry, no recovery.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{StreamExt, stream::FuturesUnordered};
use lapin::{
    BasicProperties, Channel, Confirmation, Connection,
    message::Delivery,
    options::{
        BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions,
    },
    types::FieldTable,
};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant as Tick, timeout},
};

use super::{
    BrokerSettings,
    connection::{self, LinkError, within},
    message::short,
};

/// Longest wait for one frame.
const LIMIT: Duration = Duration::from_secs(30);

/// Why a loop ended early.
#[derive(Debug, thiserror::Error)]
pub enum PlainError {
    /// The broker.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// Not confirmed by a queue.
    #[error("a message was not confirmed by a queue: {0}")]
    NotConfirmed(String),
    /// Nothing came any more.
    #[error("after {got} of {want} messages none came for {LIMIT:?}")]
    Silent {
        /// So many came.
        got: u64,
        /// So many were to come.
        want: u64,
    },
}

/// Makes the message of a number.
pub type Body = Arc<dyn Fn(u64) -> String + Send + Sync>;

/// Where and what to publish.
#[derive(Clone)]
pub struct Sending {
    /// Exchange.
    pub exchange: String,
    /// Routing key, and the property `type`.
    pub key: String,
    /// The message of each number.
    pub body: Body,
    /// How long to go on.
    pub length: Duration,
    /// At most so many a second; `None`: as many as go.
    pub per_second: Option<f64>,
}

impl std::fmt::Debug for Sending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sending")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

/// Publishes for a while, persistent, mandatory and confirmed, on as many connections and with as many messages in
/// flight as our publisher has by `settings`. How many, and how long it took until the last confirm.
pub async fn publish(settings: &BrokerSettings, sending: &Sending) -> Result<(u64, Duration), PlainError> {
    let lanes = settings.publish_connections.max(1);
    let mut channels = Vec::new();
    for _ in 0..lanes {
        let connection = connection::connect(settings, "plain").await?;
        let channel = within(LIMIT, connection.create_channel()).await?;
        within(LIMIT, channel.confirm_select(ConfirmSelectOptions::default())).await?;
        channels.push((connection, channel));
    }
    let mut publishers = JoinSet::new();
    let began = Instant::now();
    for (lane, (connection, channel)) in channels.into_iter().enumerate() {
        let (sending, in_flight) = (sending.clone(), settings.in_flight);
        publishers.spawn(async move {
            let sent = lane_of(&channel, &sending, lane, lanes, in_flight).await;
            let _ = connection.close(200, "done".into()).await;
            sent
        });
    }
    let mut sent = 0;
    while let Some(ended) = publishers.join_next().await {
        // A panic of the loop is a bug of this file; it shows as nothing sent.
        sent += ended.unwrap_or(Ok(0))?;
    }
    Ok((sent, began.elapsed()))
}

async fn lane_of(
    channel: &Channel,
    sending: &Sending,
    lane: usize,
    lanes: usize,
    in_flight: usize,
) -> Result<u64, PlainError> {
    let name =
        |text: &str| short(text).ok_or_else(|| PlainError::NotConfirmed(format!("{text:?} is too long")));
    let (exchange, key) = (name(&sending.exchange)?, name(&sending.key)?);
    let mut confirms = FuturesUnordered::new();
    let (began, mut sent) = (Tick::now(), 0_u64);
    let pace = sending.per_second.map(|rate| rate / lanes as f64);
    for n in (lane as u64..).step_by(lanes) {
        if let Some(pace) = pace {
            tokio::time::sleep_until(began + Duration::from_secs_f64(sent as f64 / pace)).await;
        }
        if began.elapsed() >= sending.length {
            break;
        }
        if confirms.len() >= in_flight {
            confirmed(confirms.next().await)?;
        }
        let properties = BasicProperties::default()
            .with_delivery_mode(2)
            .with_content_type("application/json".into())
            .with_type(key.clone())
            .with_message_id(short(&format!("bench-{n:08}")).unwrap_or_default());
        let options = BasicPublishOptions {
            mandatory: true,
            ..BasicPublishOptions::default()
        };
        let body = (sending.body)(n);
        let written = channel.basic_publish(
            exchange.clone(),
            key.clone(),
            options,
            body.as_bytes(),
            properties,
        );
        confirms.push(within(LIMIT, written).await?);
        sent += 1;
    }
    while let Some(confirm) = confirms.next().await {
        confirmed(Some(confirm))?;
    }
    Ok(sent)
}

fn confirmed(confirm: Option<lapin::Result<Confirmation>>) -> Result<(), PlainError> {
    match confirm {
        Some(Ok(Confirmation::Ack(None))) | None => Ok(()),
        Some(Ok(other)) => Err(PlainError::NotConfirmed(format!("{other:?}"))),
        Some(Err(error)) => Err(PlainError::NotConfirmed(error.to_string())),
    }
}

/// A consumer that stands ready.
#[derive(Debug)]
pub struct Drain {
    connection: Connection,
    deliveries: lapin::Consumer,
    batch: u64,
}

impl Drain {
    /// Subscribes to `queue`; acknowledges `batch` messages at once, awaiting each frame.
    pub async fn start(
        settings: &BrokerSettings,
        queue: &str,
        prefetch: u16,
        batch: u64,
    ) -> Result<Self, PlainError> {
        let connection = connection::connect(settings, "plain").await?;
        let channel = within(LIMIT, connection.create_channel()).await?;
        within(LIMIT, channel.basic_qos(prefetch, BasicQosOptions::default())).await?;
        let queue = short(queue).ok_or_else(|| LinkError::Name(queue.to_owned()))?;
        let consume = channel.basic_consume(
            queue,
            "plain".into(),
            BasicConsumeOptions::default(),
            FieldTable::default(),
        );
        let deliveries = within(LIMIT, consume).await?;
        Ok(Self {
            connection,
            deliveries,
            batch: batch.max(1),
        })
    }

    /// Takes as many messages as `count` says once it knows; until then whatever comes. The time from the first to the last.
    pub async fn take(mut self, mut count: mpsc::Receiver<u64>) -> Result<Duration, PlainError> {
        let (mut got, mut want) = (0_u64, None);
        let (mut first, mut last, mut unacked): (Option<Instant>, _, Option<Delivery>) =
            (None, Instant::now(), None);
        while want.is_none_or(|want| got < want) {
            let delivery = tokio::select! {
                known = count.recv(), if want.is_none() => {
                    want = known.or(Some(got));
                    continue;
                }
                delivery = timeout(LIMIT, self.deliveries.next()) => match delivery {
                    Ok(Some(delivery)) => delivery.map_err(LinkError::from)?,
                    _ => return Err(PlainError::Silent { got, want: want.unwrap_or_default() }),
                },
            };
            first.get_or_insert_with(Instant::now);
            got += 1;
            let multiple = self.batch > 1;
            if got.is_multiple_of(self.batch) {
                within(LIMIT, delivery.ack(BasicAckOptions { multiple })).await?;
                unacked = None;
            } else {
                unacked = Some(delivery);
            }
            last = Instant::now();
        }
        if let Some(delivery) = unacked {
            within(LIMIT, delivery.ack(BasicAckOptions { multiple: true })).await?;
        }
        let _ = self.connection.close(200, "done".into()).await;
        Ok(first.map_or(Duration::ZERO, |first| last - first))
    }
}
