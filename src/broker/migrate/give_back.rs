//! Empties the shelter: every message is rejected, and the broker dead-letters it, at least once, to the queue.
//!
//! Rejecting is one operation on the broker, so there is no half. *Dies here:* what was rejected arrives, what was not
//! is delivered again.

use std::time::Instant;

use futures::StreamExt;
use lapin::{
    options::{BasicConsumeOptions, BasicNackOptions, BasicQosOptions},
    types::FieldTable,
};
use tokio::time::{MissedTickBehavior, interval};

use super::{
    LOOK, MigrateError, Migration, Progress, SAY, counts,
    hands::{answer, name_of},
    mover::{gone, identity},
};
use crate::topology::migration::{Settle, Temporary};

/// Deliveries held at once.
const PREFETCH: u16 = 1_000;

impl Migration {
    pub(super) async fn give_back(&mut self) -> Result<(), MigrateError> {
        let shelter = Temporary::Shelter.of(&self.queue);
        let doing = format!("emptying {shelter}");
        let channel = self.hands.channel().await?;
        answer(&doing, channel.basic_qos(PREFETCH, BasicQosOptions::default())).await?;
        let consume = channel.basic_consume(
            name_of(&shelter)?,
            name_of(&format!("tidegate-{}", uuid::Uuid::now_v7()))?,
            BasicConsumeOptions::default(),
            FieldTable::default(),
        );
        let mut deliveries = answer(&doing, consume).await?.ready_chunks(PREFETCH.into());
        let mut settle = Settle::new(self.options.settle);
        let (mut least, mut fell) = (u64::MAX, Instant::now());
        let mut said = Instant::now();
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                next = deliveries.next() => {
                    let Some(chunk) = next else {
                        return Err(gone(&doing, "the broker ended the consumer"));
                    };
                    // As many as have arrived at once: one write each would be most of the time.
                    let mut last = 0;
                    let mut identities = Vec::with_capacity(chunk.len());
                    for delivery in chunk {
                        let delivery = answer(&doing, async { delivery }).await?;
                        last = delivery.delivery_tag;
                        identities.push(identity(&delivery));
                    }
                    identities.iter().for_each(|identity| self.arrived.note(*identity));
                    let reject = BasicNackOptions { multiple: true, requeue: false };
                    answer(&doing, channel.basic_nack(last, reject)).await?;
                    identities.into_iter().for_each(|identity| self.returned.note(identity));
                }
                _ = looks.tick() => {
                    self.stop_if_told()?;
                    let look = self.hands.look(&shelter).await?;
                    let ready = look.map_or(0, |look| look.ready);
                    let total = counts::of(&self.management, &shelter).await?.unwrap_or(1);
                    let now = Instant::now();
                    if settle.read(total.max(ready), now) {
                        break;
                    }
                    if total + ready < least || settle.is_settling() {
                        (least, fell) = (total + ready, now);
                    } else if fell.elapsed() > self.options.patience {
                        return Err(MigrateError::NotTaken { queue: self.queue.clone(), left: total });
                    }
                    if said.elapsed() >= SAY {
                        said = now;
                        let returned = self.returned.messages;
                        (self.progress)(Progress::Returning { left: total, returned });
                    }
                }
            }
        }
        answer(&doing, channel.close(200, "done".into())).await
    }
}
