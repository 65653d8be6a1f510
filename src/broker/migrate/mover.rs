//! Moves the messages of a queue that nobody consumes to the shelter: publish, confirm, acknowledge.
//!
//! *Dies between confirm and acknowledgement:* the message is in both. The broker delivers it again as redelivered, and
//! the next run, which has taken [inventory](super::inventory) of the shelter by then, only acknowledges it.

use std::collections::HashSet;

use futures::{StreamExt, stream::FuturesUnordered};
use lapin::{
    Acker, Channel, Confirmation,
    message::Delivery,
    options::{
        BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions,
        ConfirmSelectOptions,
    },
    types::FieldTable,
};
use tokio::time::{MissedTickBehavior, interval};

use super::{
    LOOK, MigrateError, Migration, Progress, SAY,
    hands::{answer, name_of},
    identity::Identity,
};
use crate::{broker::message, topology::migration::Temporary};

/// Messages between delivery and acknowledgement.
const IN_FLIGHT: u16 = 500;

impl Migration {
    /// Moves messages until none is ready, somebody else consumes, or it is told to stop; what it has taken is finished.
    pub(super) async fn move_messages(&mut self) -> Result<(), MigrateError> {
        let doing = format!("moving messages of {}", self.queue);
        let channel = self.hands.channel().await?;
        answer(&doing, channel.confirm_select(ConfirmSelectOptions::default())).await?;
        answer(&doing, channel.basic_qos(IN_FLIGHT, BasicQosOptions::default())).await?;
        let tag = name_of(&format!("tidegate-{}", uuid::Uuid::now_v7()))?;
        let consume = channel.basic_consume(
            name_of(&self.queue)?,
            tag.clone(),
            BasicConsumeOptions::default(),
            FieldTable::default(),
        );
        let mut deliveries = answer(&doing, consume).await?;
        let mut inventory = None;
        let mut flight = FuturesUnordered::new();
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut ending, mut said) = (false, std::time::Instant::now());
        loop {
            tokio::select! {
                Some(moved) = flight.next(), if !flight.is_empty() => self.moved.note(moved?),
                next = deliveries.next() => match next {
                    Some(delivery) => {
                        let delivery = answer(&doing, async { delivery }).await?;
                        if delivery.redelivered && inventory.is_none() {
                            inventory = Some(self.inventory().await?);
                        }
                        if delivery.redelivered && contains(&inventory, &identity(&delivery)) {
                            acknowledge(&doing, &delivery.acker).await?;
                            self.report.already_moved += 1;
                        } else {
                            let next = Temporary::Next.of(&self.queue);
                            flight.push(move_one(doing.clone(), channel.clone(), next, delivery));
                        }
                    }
                    None if ending => break,
                    None => return Err(gone(&doing, "the broker ended the consumer")),
                },
                _ = looks.tick(), if !ending => {
                    let look = self.hands.look(&self.queue.clone()).await?;
                    ending = self.options.stop.is_cancelled()
                        || look.is_none_or(|look| look.consumers > 1 || look.ready == 0 && flight.is_empty());
                    if ending {
                        // What had arrived is still handed out, and then the stream ends.
                        let cancel = channel.basic_cancel(tag.clone(), BasicCancelOptions::default());
                        answer(&doing, cancel).await?;
                    } else if let (Some(look), true) = (look, said.elapsed() >= SAY) {
                        said = std::time::Instant::now();
                        let moved = self.moved.messages;
                        (self.progress)(Progress::Draining { left: look.ready, consumers: 0, moved });
                    }
                }
            }
        }
        while let Some(moved) = flight.next().await {
            self.moved.note(moved?);
        }
        answer(&doing, channel.close(200, "done".into())).await
    }
}

/// Publishes to the shelter, waits for the confirm, acknowledges. All of a channel's run in one task, so that lapin can't
/// mix their confirms up.
async fn move_one(
    doing: String,
    channel: Channel,
    exchange: String,
    delivery: Delivery,
) -> Result<Identity, MigrateError> {
    let (properties, headers) = message::carried(&delivery.properties);
    let options = BasicPublishOptions {
        mandatory: true,
        ..BasicPublishOptions::default()
    };
    let published = channel.basic_publish(
        name_of(&exchange)?,
        delivery.routing_key.clone(),
        options,
        &delivery.data,
        properties.with_headers(headers.into_table()),
    );
    let confirm = answer(&doing, published).await?;
    if !matches!(answer(&doing, confirm).await?, Confirmation::Ack(None)) {
        return Err(gone(&doing, "the temporary queue did not take a message"));
    }
    acknowledge(&doing, &delivery.acker).await?;
    Ok(identity(&delivery))
}

async fn acknowledge(doing: &str, acker: &Acker) -> Result<(), MigrateError> {
    if answer(doing, acker.ack(BasicAckOptions::default())).await? {
        Ok(())
    } else {
        Err(gone(doing, "the channel is gone"))
    }
}

fn contains(inventory: &Option<HashSet<Identity>>, identity: &Identity) -> bool {
    inventory
        .as_ref()
        .is_some_and(|inventory| inventory.contains(identity))
}

pub(super) fn identity(delivery: &Delivery) -> Identity {
    Identity::of(
        delivery.routing_key.as_str(),
        &delivery.properties,
        &delivery.data,
    )
}

pub(super) fn gone(doing: &str, reason: &str) -> MigrateError {
    MigrateError::Unavailable {
        doing: doing.to_owned(),
        reason: reason.to_owned(),
    }
}
