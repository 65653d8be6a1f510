//! Which messages are in the shelter: read without acknowledgement on a channel that is then thrown away, by which the
//! broker has them back.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use futures::{FutureExt, StreamExt, stream::SelectAll};
use lapin::{
    Channel, Consumer,
    options::{BasicConsumeOptions, BasicQosOptions, QueueDeclareOptions},
    types::FieldTable,
};
use tokio::time::interval;

use super::{
    MigrateError, Migration,
    hands::{answer, name_of},
    identity::Identity,
    mover::{gone, identity},
};
use crate::topology::migration::Temporary;

/// Most messages that are read.
const MOST: usize = 1_000_000;
/// Messages for one consumer; a quorum queue gives no more than 2,000 to one that states no number.
const EACH: u16 = 60_000;
/// What a killed run had published may still be on its way for a moment after its connection is gone.
const AFTERMATH: Duration = Duration::from_secs(1);

impl Migration {
    /// Everything that is in the shelter a moment after this was called. What comes in later is none of a killed run's.
    pub(super) async fn inventory(&mut self) -> Result<HashSet<Identity>, MigrateError> {
        let shelter = Temporary::Shelter.of(&self.queue);
        let mut reader = Reader {
            doing: format!("reading what is in {shelter}"),
            channel: self.hands.channel().await?,
            shelter,
            consumers: SelectAll::new(),
            found: HashSet::new(),
            read: 0,
        };
        let qos = reader.channel.basic_qos(EACH, BasicQosOptions::default());
        answer(&reader.doing, qos).await?;
        reader.subscribe().await?;
        let started = Instant::now();
        let mut ticks = interval(Duration::from_millis(50));
        loop {
            tokio::select! {
                next = reader.consumers.next() => reader.take(next).await?,
                _ = ticks.tick() => {
                    // Nothing ready: all that was there has been sent, and read by now.
                    if reader.catch_up().await? == 0 && started.elapsed() >= AFTERMATH {
                        break;
                    }
                    if reader.read >= reader.consumers.len() * usize::from(EACH) {
                        reader.subscribe().await?;
                    }
                }
            }
            if reader.read > MOST {
                return Err(MigrateError::Refusal {
                    reason: format!(
                        "it holds more than {MOST} messages; start a consumer of {} instead",
                        self.queue
                    ),
                    doing: reader.doing,
                });
            }
        }
        answer(&reader.doing, reader.channel.close(200, "seen".into())).await?;
        Ok(reader.found)
    }
}

struct Reader {
    doing: String,
    channel: Channel,
    shelter: String,
    consumers: SelectAll<Consumer>,
    found: HashSet<Identity>,
    read: usize,
}

impl Reader {
    async fn subscribe(&mut self) -> Result<(), MigrateError> {
        let consume = self.channel.basic_consume(
            name_of(&self.shelter)?,
            name_of(&format!("tidegate-{}", uuid::Uuid::now_v7()))?,
            BasicConsumeOptions::default(),
            FieldTable::default(),
        );
        self.consumers.push(answer(&self.doing, consume).await?);
        Ok(())
    }

    async fn take(
        &mut self,
        next: Option<lapin::Result<lapin::message::Delivery>>,
    ) -> Result<(), MigrateError> {
        let Some(delivery) = next else {
            return Err(gone(&self.doing, "the broker ended the consumer"));
        };
        let delivery = answer(&self.doing, async { delivery }).await?;
        self.found.insert(identity(&delivery));
        self.read += 1;
        Ok(())
    }

    /// Reads all that was sent so far, and answers how many messages are still ready. The question goes over the same
    /// channel, so whatever was sent before its answer has arrived when that does.
    async fn catch_up(&mut self) -> Result<usize, MigrateError> {
        let options = QueueDeclareOptions::durable().passive();
        let declare = self
            .channel
            .queue_declare(name_of(&self.shelter)?, options, FieldTable::default());
        let ready = answer(&self.doing, declare).await?.message_count();
        while let Some(next) = self.consumers.next().now_or_never() {
            self.take(next).await?;
        }
        Ok(ready as usize)
    }
}
