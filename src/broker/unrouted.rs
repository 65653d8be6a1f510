//! Sees which publishes no queue took, although the broker confirmed them.
//!
//! May import: `broker`, lapin. `task.exchange` has an alternate exchange, so a mandatory publish is confirmed and not
//! returned even if no queue is bound to its key. A queue of our own on that alternate gets a copy of each such
//! message, and gets it before the broker confirms the publish: what it does not hold by then was routed.

use std::{collections::HashSet, time::Duration};

use lapin::{
    Channel,
    options::{BasicGetOptions, QueueBindOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable, ShortString},
};

use super::{
    connection::{Link, LinkError, within},
    message::short,
};

/// Longest wait for one method.
const METHOD_TIMEOUT: Duration = Duration::from_secs(10);

/// Most copies held between two looks; older ones are dropped.
const MAX_COPIES: u32 = 100_000;

/// Copies of what no queue took since it was opened.
#[derive(Debug)]
pub struct UnroutedWatch {
    channel: Channel,
    queue: ShortString,
    seen: HashSet<String>,
}

impl UnroutedWatch {
    /// Starts watching `alternate`. The queue is exclusive and goes with the connection of `link`.
    ///
    /// # Errors
    /// Among others where the user may not configure, write and read queues that the broker names (`amq.gen-…`) or read
    /// `alternate`; `link` is as good as before.
    pub async fn open(link: &Link, alternate: &str) -> Result<Self, LinkError> {
        let alternate = short(alternate).ok_or_else(|| LinkError::Name(alternate.to_owned()))?;
        let channel = link.channel().await?;
        let mut arguments = FieldTable::default();
        // Stated, because a vhost's default type may be one that can't be exclusive.
        arguments.insert("x-queue-type".into(), AMQPValue::LongString("classic".into()));
        arguments.insert("x-max-length".into(), AMQPValue::LongUInt(MAX_COPIES));
        let options = QueueDeclareOptions {
            exclusive: true,
            auto_delete: true,
            ..QueueDeclareOptions::default()
        };
        let declared = within(
            METHOD_TIMEOUT,
            channel.queue_declare(ShortString::default(), options, arguments),
        )
        .await?;
        let queue = declared.name().clone();
        let bind = channel.queue_bind(
            queue.clone(),
            alternate,
            ShortString::default(),
            QueueBindOptions::default(),
            FieldTable::default(),
        );
        within(METHOD_TIMEOUT, bind).await?;
        Ok(Self {
            channel,
            queue,
            seen: HashSet::new(),
        })
    }

    /// Takes in what has arrived. Call it after the confirms of the publishes in question.
    pub async fn look(&mut self) -> Result<(), LinkError> {
        loop {
            let get = self
                .channel
                .basic_get(self.queue.clone(), BasicGetOptions { no_ack: true });
            let Some(copy) = within(METHOD_TIMEOUT, get).await? else {
                return Ok(());
            };
            if let Some(id) = copy.delivery.properties.message_id() {
                self.seen.insert(id.to_string());
            }
        }
    }

    /// Whether a message of this id was taken by no queue, as of the last [`look`](Self::look).
    pub fn saw(&self, message_id: &str) -> bool {
        self.seen.contains(message_id)
    }
}
