//! The loop of one business queue: both lanes, high first, at most `concurrency` handlers at once.
//!
//! Shutdown: the consumers are cancelled, nothing new starts, what had been prefetched is given back, what runs
//! may finish until `hurry`, and only then does the loop end. Killed in between, the broker delivers again.

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures::FutureExt;
use tokio::{
    sync::{Semaphore, mpsc},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use super::attempt::Station;
use crate::{
    broker::{
        connection::Link,
        consumer::{Incoming, Subscription, consume},
    },
    supervisor::backoff,
    telemetry::health::Health,
};

/// One lane: where its deliveries come from and what handles them.
pub(super) struct Lane {
    pub(super) station: Arc<Station>,
}

pub(super) struct QueueLoop {
    pub(super) link: Link,
    pub(super) normal: Lane,
    pub(super) high: Option<Lane>,
    pub(super) prefetch: u16,
    pub(super) concurrency: usize,
    pub(super) health: Health,
    pub(super) shutdown: CancellationToken,
}

struct Feed {
    station: Arc<Station>,
    deliveries: mpsc::Receiver<Incoming>,
}

impl QueueLoop {
    /// Runs until shutdown has been carried out; a loop that panics begins again.
    pub(super) async fn run_on(self) {
        let mut waits = backoff();
        while AssertUnwindSafe(self.run()).catch_unwind().await.is_err() {
            let queue = &self.normal.station.queue;
            tracing::error!(%queue, "the worker's loop panicked; starting it again");
            self.health.down(&format!("worker {queue}"), "its loop panicked");
            tokio::time::sleep(waits.next().unwrap_or_default()).await;
        }
    }

    async fn run(&self) {
        let mut consumers = JoinSet::new();
        let mut normal = self.subscribe(&self.normal, &mut consumers);
        let mut high = self
            .high
            .as_ref()
            .map(|lane| self.subscribe(lane, &mut consumers));
        let slots = Arc::new(Semaphore::new(self.concurrency));
        let mut running = JoinSet::new();
        loop {
            while running.try_join_next().is_some() {}
            let slot = tokio::select! {
                biased;
                () = self.shutdown.cancelled() => break,
                slot = slots.clone().acquire_owned() => slot,
            };
            // The semaphore is never closed.
            let Ok(slot) = slot else { break };
            let next = tokio::select! {
                biased;
                () = self.shutdown.cancelled() => break,
                Some(incoming) = recv(high.as_mut()) => high.as_ref().map(|feed| (feed.station.clone(), incoming)),
                incoming = normal.deliveries.recv() => incoming.map(|incoming| (normal.station.clone(), incoming)),
            };
            let Some((station, incoming)) = next else { break };
            running.spawn(async move {
                station.process(incoming).await;
                drop(slot);
            });
        }
        // The consumers end by the same token, and with them these channels.
        for feed in [Some(normal), high].into_iter().flatten() {
            let Feed {
                station,
                mut deliveries,
            } = feed;
            while let Some(incoming) = deliveries.recv().await {
                let station = station.clone();
                running.spawn(async move {
                    station.give_back(incoming).await;
                });
            }
        }
        while running.join_next().await.is_some() {}
        while consumers.join_next().await.is_some() {}
    }

    fn subscribe(&self, lane: &Lane, consumers: &mut JoinSet<()>) -> Feed {
        let (sender, deliveries) = mpsc::channel(usize::from(self.prefetch).max(1));
        let queue = lane.station.queue.to_string();
        let subscription = Subscription {
            part: format!("worker {queue}"),
            queue,
            prefetch: self.prefetch,
        };
        consumers.spawn(consume(
            self.link.clone(),
            subscription,
            sender,
            self.health.clone(),
            self.shutdown.clone(),
        ));
        Feed {
            station: lane.station.clone(),
            deliveries,
        }
    }
}

/// The next delivery of a lane; waits for ever where there is no such lane or it has ended.
async fn recv(feed: Option<&mut Feed>) -> Option<Incoming> {
    match feed {
        Some(feed) => match feed.deliveries.recv().await {
            Some(incoming) => Some(incoming),
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}
