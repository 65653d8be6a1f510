//! Which messages are in the shelter: read without acknowledgement on a channel that is then thrown away, by which the
//! broker has them back.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use futures::{FutureExt, StreamExt};
use lapin::{
    options::{BasicConsumeOptions, QueueDeclareOptions},
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
/// What a killed run had published may still be on its way for a moment after its connection is gone.
const AFTERMATH: Duration = Duration::from_secs(1);

impl Migration {
    pub(super) async fn inventory(&mut self) -> Result<HashSet<Identity>, MigrateError> {
        let shelter = Temporary::Shelter.of(&self.queue);
        let doing = format!("reading what is in {shelter}");
        let channel = self.hands.channel().await?;
        let consume = channel.basic_consume(
            name_of(&shelter)?,
            name_of(&format!("tidegate-{}", uuid::Uuid::now_v7()))?,
            BasicConsumeOptions::default(),
            FieldTable::default(),
        );
        let mut deliveries = answer(&doing, consume).await?;
        let (mut found, mut read) = (HashSet::new(), 0);
        let (started, mut ticks, mut whole) = (Instant::now(), interval(Duration::from_millis(100)), None);
        while whole.is_none_or(|whole| read < whole) {
            let next = tokio::select! {
                next = deliveries.next() => next,
                _ = ticks.tick(), if whole.is_none() => {
                    if started.elapsed() >= AFTERMATH {
                        // On the same channel: whatever was sent before this answer has arrived when it does.
                        let options = QueueDeclareOptions::durable().passive();
                        let declare = channel.queue_declare(name_of(&shelter)?, options, FieldTable::default());
                        let ready = answer(&doing, declare).await?.message_count() as usize;
                        while let Some(Some(delivery)) = deliveries.next().now_or_never() {
                            found.insert(identity(&answer(&doing, async { delivery }).await?));
                            read += 1;
                        }
                        whole = Some(read + ready);
                    }
                    continue;
                }
            };
            let Some(delivery) = next else {
                return Err(gone(&doing, "the broker ended the consumer"));
            };
            found.insert(identity(&answer(&doing, async { delivery }).await?));
            read += 1;
            if read > MOST {
                return Err(MigrateError::Refusal {
                    doing,
                    reason: format!(
                        "it holds more than {MOST} messages; start a consumer of {} instead",
                        self.queue
                    ),
                });
            }
        }
        answer(&doing, channel.close(200, "seen".into())).await?;
        Ok(found)
    }
}
