//! A plain AMQP client that notes what arrives and when, by the machine's true clock, which is the database's too.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use chrono::{DateTime, Utc};
use futures::StreamExt;
use lapin::{
    options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions},
    types::FieldTable,
};
use tidegate::{broker::message, core::headers};
use tokio_util::task::AbortOnDropHandle;

use crate::installation::Installation;

/// All copies of one task.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) first: DateTime<Utc>,
    pub(crate) copies: usize,
    /// Why it is a dead letter, if it is one: of the first copy.
    pub(crate) reason: Option<String>,
}

/// By task id.
pub(crate) type Arrivals = BTreeMap<String, Arrival>;

/// Consumes until dropped; comes back by itself when the broker does.
pub(crate) struct Consumer {
    seen: Arc<Mutex<Arrivals>>,
    _tasks: Vec<AbortOnDropHandle<()>>,
}

impl Consumer {
    pub(crate) fn start(installation: &Arc<Installation>, queues: &[&str]) -> Self {
        let seen = Arc::new(Mutex::new(Arrivals::new()));
        let tasks = queues.iter().map(|queue| {
            let (installation, seen) = (Arc::clone(installation), Arc::clone(&seen));
            let queue = (*queue).to_owned();
            AbortOnDropHandle::new(tokio::spawn(async move {
                loop {
                    // It ends with an error whenever the broker does.
                    let _ = consume(&installation, &queue, &seen).await;
                    tokio::time::sleep(Duration::from_millis(300)).await;
                }
            }))
        });
        let tasks = tasks.collect();
        Self { seen, _tasks: tasks }
    }

    /// How many ids have arrived so far.
    pub(crate) fn count(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    /// What has arrived so far.
    pub(crate) fn arrivals(&self) -> Arrivals {
        self.seen.lock().unwrap().clone()
    }
}

async fn consume(installation: &Installation, queue: &str, seen: &Mutex<Arrivals>) -> lapin::Result<()> {
    let (_connection, channel) = installation.channel().await?;
    channel.basic_qos(200, BasicQosOptions::default()).await?;
    let options = BasicConsumeOptions::default();
    let mut deliveries = channel
        .basic_consume(queue.into(), "watcher".into(), options, FieldTable::default())
        .await?;
    while let Some(delivery) = deliveries.next().await {
        let delivery = delivery?;
        let now = Utc::now();
        let id = delivery.properties.message_id().as_ref().map(ToString::to_string);
        seen.lock()
            .unwrap()
            .entry(id.unwrap_or_default())
            .and_modify(|arrival| arrival.copies += 1)
            .or_insert_with(|| Arrival {
                first: now,
                copies: 1,
                reason: message::text(&delivery.properties, headers::DEAD_REASON).map(ToOwned::to_owned),
            });
        delivery.ack(BasicAckOptions::default()).await?;
    }
    Ok(())
}
