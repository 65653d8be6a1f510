//! Takes messages off one platform queue, a bounded number at a time, until told to stop.
//!
//! On stop: what is being routed is finished, what has only arrived is put back. Killed in between, the broker
//! delivers it again.

use futures::{StreamExt, stream::FuturesUnordered};
use tokio_util::sync::CancellationToken;

use crate::{
    broker::{
        connection::Link,
        consumer::{Incoming, Prefetch, Subscription, consume},
    },
    telemetry::health::Health,
};

/// Messages routed at once, which is also the prefetch: enough to fill a confirm round trip.
const IN_FLIGHT: u16 = 200;

pub(super) struct Pump {
    pub(super) link: Link,
    pub(super) queue: String,
    pub(super) health: Health,
    pub(super) cancel: CancellationToken,
}

impl Pump {
    pub(super) async fn run<F, Fut>(self, route: F)
    where
        F: Fn(Incoming) -> Fut,
        Fut: Future<Output = ()>,
    {
        let (sender, incoming) = async_channel::bounded(IN_FLIGHT.into());
        let subscription = Subscription {
            part: format!("router {}", self.queue),
            queue: self.queue,
            prefetch: Prefetch::Fixed(IN_FLIGHT),
        };
        let consumer = consume(self.link, subscription, sender, self.health, self.cancel.clone());
        let work = async {
            let mut routing = FuturesUnordered::new();
            loop {
                tokio::select! {
                    biased;
                    Some(()) = routing.next(), if !routing.is_empty() => {}
                    next = incoming.recv() => match next {
                        Ok(next) if self.cancel.is_cancelled() => {
                            // Stale means that the broker has it back already.
                            let _ = next.requeue();
                        }
                        Ok(next) => routing.push(route(next)),
                        // The consumer has ended.
                        Err(_) => break,
                    },
                }
            }
            while routing.next().await.is_some() {}
        };
        tokio::join!(consumer, work);
    }
}
