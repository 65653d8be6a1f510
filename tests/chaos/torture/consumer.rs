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
use tokio_util::task::AbortOnDropHandle;

use crate::installation::{Installation, TICK_QUEUE, WORK_QUEUE};

/// All copies of one task.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) first: DateTime<Utc>,
    pub(super) copies: usize,
}

/// By task id.
pub(super) type Arrivals = BTreeMap<String, Arrival>;

/// Consumes until dropped; comes back by itself when the broker does.
pub(super) struct Consumer {
    seen: Arc<Mutex<Arrivals>>,
    _tasks: Vec<AbortOnDropHandle<()>>,
}

impl Consumer {
    pub(super) fn start(installation: &Arc<Installation>) -> Self {
        let seen = Arc::new(Mutex::new(Arrivals::new()));
        let high = format!("{WORK_QUEUE}.high");
        let tasks = [WORK_QUEUE.to_owned(), high, TICK_QUEUE.to_owned()].map(|queue| {
            let (installation, seen) = (Arc::clone(installation), Arc::clone(&seen));
            AbortOnDropHandle::new(tokio::spawn(async move {
                loop {
                    // It ends with an error whenever the broker does.
                    let _ = consume(&installation, &queue, &seen).await;
                    tokio::time::sleep(Duration::from_millis(300)).await;
                }
            }))
        });
        Self {
            seen,
            _tasks: tasks.into(),
        }
    }

    /// What has arrived so far.
    pub(super) fn arrivals(&self) -> Arrivals {
        self.seen.lock().unwrap().clone()
    }
}

async fn consume(installation: &Installation, queue: &str, seen: &Mutex<Arrivals>) -> lapin::Result<()> {
    let (_connection, channel) = installation.channel().await?;
    channel.basic_qos(200, BasicQosOptions::default()).await?;
    let options = BasicConsumeOptions::default();
    let mut deliveries = channel
        .basic_consume(queue.into(), "torture".into(), options, FieldTable::default())
        .await?;
    while let Some(delivery) = deliveries.next().await {
        let delivery = delivery?;
        let now = Utc::now();
        let id = delivery.properties.message_id().as_ref().map(ToString::to_string);
        seen.lock()
            .unwrap()
            .entry(id.unwrap_or_default())
            .and_modify(|arrival| arrival.copies += 1)
            .or_insert(Arrival {
                first: now,
                copies: 1,
            });
        delivery.ack(BasicAckOptions::default()).await?;
    }
    Ok(())
}
