//! The loop of one business queue: both lanes, the high one first, at most `concurrency` handlers at once.
//!
//! May import: `core`, `broker`, `supervisor`, `telemetry`.
//!
//! While a suspect wants to be alone in this process ([`super::isolation`]), there is no consumer: a round ends, what had
//! been prefetched is given back, and the next round begins when the suspect has ended.
//!
//! Shutdown: nothing new starts, the consumers end, and only then is what had been prefetched given back: it would come
//! again to a consumer that still is there. What runs may finish until `hurry`, and then the loop ends. Killed in between,
//! the broker delivers again.
//!
//! What panics outside of a handler makes health red and keeps its delivery; a round that a panic ended begins again
//! after a growing pause, since each time costs what it held a return.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use tidegate_core::prefetch::{MOST_AHEAD, initial};
use tokio::{
    task::{JoinSet, coop},
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    delivery::Station,
    feeds::{Feed, Feeds, Next},
    isolation::{Isolation, Pass},
    place::{Place, Room},
    prefetch::{Adaptive, Pace},
};
use crate::{
    broker::{
        connection::Link,
        consumer::{Prefetch, Subscription, consume},
    },
    supervisor::backoff,
    telemetry::health::Health,
};

pub(super) struct QueueLoop {
    pub(super) link: Link,
    /// What handles the deliveries of each lane.
    pub(super) normal: Arc<Station>,
    pub(super) high: Option<Arc<Station>>,
    /// Where the user gave one; otherwise it follows the deliveries' duration.
    pub(super) prefetch: Option<u16>,
    pub(super) concurrency: usize,
    pub(super) health: Health,
    pub(super) isolation: Isolation,
    pub(super) shutdown: CancellationToken,
}

impl QueueLoop {
    /// Runs until shutdown has been carried out; a loop that panics begins again.
    pub(super) async fn run_on(self) {
        let mut waits = backoff();
        while AssertUnwindSafe(self.run()).catch_unwind().await.is_err() {
            // First, since what panicked may be the log.
            self.health.down(&self.part(), "its loop panicked");
            tracing::error!(queue = %self.normal.queue, "the worker's loop panicked; starting it again");
            tokio::time::sleep(waits.next().unwrap_or_default()).await;
        }
    }

    /// Its name in [`Health`].
    fn part(&self) -> String {
        part(&self.normal)
    }

    /// Says what has to work before the process is ready.
    pub(super) fn expect(&self) {
        for lane in std::iter::once(&self.normal).chain(&self.high) {
            self.health.expect(&part(lane));
        }
    }

    async fn run(&self) {
        let held = self.prefetch.unwrap_or_else(|| initial(self.concurrency));
        let room = Arc::new(Room::new(self.concurrency, held.into()));
        let (adaptive, pace) = (
            Arc::new(Adaptive::new(self.concurrency)),
            Arc::new(Pace::default()),
        );
        let _adapting = AbortOnDropHandle::new(tokio::spawn(adaptive.clone().run(pace.clone())));
        let (mut running, mut consumers) = (JoinSet::new(), JoinSet::new());
        let mut waits = backoff();
        while !self.shutdown.is_cancelled() {
            let pass = tokio::select! {
                biased;
                () = self.shutdown.cancelled() => break,
                // Waits while a suspect is alone.
                pass = self.isolation.pass() => pass,
            };
            let began = Instant::now();
            self.round(&pass, &room, (&adaptive, &pace), &mut running, &mut consumers)
                .await;
            if pass.closed().is_cancelled() {
                continue;
            }
            // A consumer ends by itself only if it panics. Each time costs what it held a return.
            if began.elapsed() > HEALTHY {
                waits = backoff();
            }
            let part = self.part();
            self.health.down(&part, "its consumer panicked");
            tokio::select! {
                () = self.shutdown.cancelled() => {}
                () = tokio::time::sleep(waits.next().unwrap_or_default()) => {}
            }
        }
        while running.join_next().await.is_some() {}
        while consumers.join_next().await.is_some() {}
    }

    /// Consumes until `pass` is closed, and gives back what has not started.
    async fn round(
        &self,
        pass: &Pass,
        room: &Arc<Room>,
        (adaptive, pace): (&Adaptive, &Arc<Pace>),
        running: &mut JoinSet<()>,
        consumers: &mut JoinSet<()>,
    ) {
        let feeds = Arc::new(Feeds::new(
            self.subscribe(&self.normal, adaptive, pass, consumers),
            self.high
                .as_ref()
                .map(|lane| self.subscribe(lane, adaptive, pass, consumers)),
        ));
        loop {
            while running.try_join_next().is_some() {}
            while consumers.try_join_next().is_some() {}
            let slot = tokio::select! {
                biased;
                () = pass.closed().cancelled() => break,
                slot = room.slot() => slot,
            };
            let Some(slot) = slot else { break };
            let next = tokio::select! {
                biased;
                () = pass.closed().cancelled() => break,
                next = feeds.next() => next,
            };
            let Some(next) = next else { break };
            let place = Place::new(pass.clone(), slot, room.clone());
            running.spawn(work(
                feeds.clone(),
                next,
                place,
                pace.clone(),
                self.health.clone(),
            ));
        }
        // The consumers end by the same token, and with them these channels. Nothing is given back before that: it would come
        // again at once, to be given back again, while acknowledgements are held; and a kill would make each a copy.
        let mut unstarted = Vec::new();
        for feed in feeds.all() {
            while let Ok(incoming) = feed.deliveries.recv().await {
                unstarted.push((feed.station.clone(), incoming));
            }
        }
        let mut returned = JoinSet::new();
        for (station, incoming) in unstarted {
            returned.spawn(async move { station.give_back(incoming).await });
        }
        // The consumers go on until the last of their deliveries is settled, and a suspect is one of them: not waited for.
        while returned.join_next().await.is_some() {}
    }

    fn subscribe(
        &self,
        station: &Arc<Station>,
        adaptive: &Adaptive,
        pass: &Pass,
        consumers: &mut JoinSet<()>,
    ) -> Feed {
        let (prefetch, most) = match self.prefetch {
            Some(prefetch) => (Prefetch::Fixed(prefetch), usize::from(prefetch)),
            None => (adaptive.follow(), self.concurrency + usize::from(MOST_AHEAD)),
        };
        let (sender, deliveries) = async_channel::bounded(most.max(1));
        let queue = station.queue.to_string();
        let subscription = Subscription {
            part: part(station),
            queue,
            prefetch,
        };
        consumers.spawn(consume(
            self.link.clone(),
            subscription,
            sender,
            self.health.clone(),
            pass.closed().clone(),
        ));
        Feed {
            station: station.clone(),
            deliveries,
        }
    }
}

/// A lane's name in [`Health`].
fn part(station: &Station) -> String {
    format!("worker {}", station.queue)
}

/// A round that lasted this long was healthy: the next one begins without delay.
const HEALTHY: Duration = Duration::from_secs(10);

/// Runs `next`, and what is there by then, in one place: under load a slot goes from one delivery to the next without
/// the loop.
async fn work(feeds: Arc<Feeds>, next: Next, mut place: Place, pace: Arc<Pace>, health: Health) {
    let mut next = Some(next);
    while let Some(Next { lane, incoming }) = next {
        let began = Instant::now();
        let station = &feeds.feed(lane).station;
        let ended = AssertUnwindSafe(station.process(incoming, &mut place)).catch_unwind();
        if ended.await.is_err() {
            // A handler's panic is its outcome. What panics around it is a log or a metrics recorder, for every delivery alike:
            // this one stays with us unacknowledged, since given back it would soon have used up its delivery limit.
            let why = "a delivery panicked outside of its handler, and is held unacknowledged: it comes again when its consumer or this process ends";
            health.down(&format!("{} deliveries", part(station)), why);
            tracing::error!(queue = %station.queue, why);
            return;
        }
        pace.ended(began.elapsed());
        // Handlers that never wait must leave the thread to others now and then.
        coop::consume_budget().await;
        next = if place.may_go_on() { feeds.try_next() } else { None };
    }
}
