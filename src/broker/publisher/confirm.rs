//! A message from its place in lapin's order to its confirm, in memory that the next message uses again: lapin's future for a
//! publish takes kilobytes, and there are tens of thousands a second.
//!
//! May import: lapin.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures::TryFutureExt;
use lapin::{Channel, Confirmation, options::BasicPublishOptions};
use tokio_util::sync::ReusableBoxFuture;

use super::{Outgoing, key::MessageKey};

type Publishing = ReusableBoxFuture<'static, lapin::Result<Confirmation>>;

/// A message on its way. Its first poll gives it its place.
pub(super) enum Confirm {
    Waiting {
        sequence: u64,
        publishing: Publishing,
    },
    /// Only until it is polled.
    Ended(Box<Ended>),
    Taken,
}

/// A message that has been confirmed, or never will be.
pub(super) struct Ended {
    pub(super) sequence: u64,
    pub(super) result: lapin::Result<Confirmation>,
    memory: Publishing,
}

impl Future for Confirm {
    type Output = Ended;

    fn poll(mut self: Pin<&mut Self>, polling: &mut Context<'_>) -> Poll<Ended> {
        let mut answer = None;
        if let Self::Waiting { publishing, .. } = &mut *self {
            match publishing.poll(polling) {
                Poll::Ready(result) => answer = Some(result),
                Poll::Pending => return Poll::Pending,
            }
        }
        match (std::mem::replace(&mut *self, Self::Taken), answer) {
            (Self::Waiting { sequence, publishing }, Some(result)) => Poll::Ready(Ended {
                sequence,
                result,
                memory: publishing,
            }),
            (Self::Ended(ended), _) => Poll::Ready(*ended),
            // Polled after its end: it has nothing more to say.
            _ => Poll::Pending,
        }
    }
}

/// Memory of messages that have ended; at most as much as was in flight at once.
#[derive(Default)]
pub(super) struct Memory(Vec<Publishing>);

impl Memory {
    /// `message` as number `sequence` over `channel`; `key` has its names.
    pub(super) fn publish(
        &mut self,
        channel: Arc<Channel>,
        sequence: u64,
        key: &MessageKey,
        message: Outgoing,
    ) -> Confirm {
        let (exchange, routing_key) = (key.exchange.clone(), key.routing_key.clone());
        let Outgoing { body, properties, .. } = message;
        let published = async move {
            let options = BasicPublishOptions {
                mandatory: true,
                ..BasicPublishOptions::default()
            };
            let written = channel.basic_publish(exchange, routing_key, options, &body, properties);
            written.and_then(|confirm| confirm).await
        };
        let publishing = match self.0.pop() {
            Some(mut memory) => {
                memory.set(published);
                memory
            }
            None => ReusableBoxFuture::new(published),
        };
        Confirm::Waiting { sequence, publishing }
    }

    /// Takes back the memory of what has ended.
    pub(super) fn keep(&mut self, ended: Ended) -> (u64, lapin::Result<Confirmation>) {
        self.0.push(ended.memory);
        (ended.sequence, ended.result)
    }
}
