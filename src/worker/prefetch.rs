//! Prefetch that follows how long deliveries take; `core::prefetch` decides.
//!
//! May import: `core`, `broker`. What is measured is how long a delivery keeps its slot, with everything around the handler.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tidegate_core::prefetch::{BETWEEN_CHANGES, initial, is_worth_a_change, wanted};
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval},
};

use crate::broker::consumer::{Following, Prefetch};

/// How often it is looked at.
const LOOK: Duration = Duration::from_secs(2);

/// With fewer deliveries a mean says nothing.
const FEWEST: u64 = 10;

/// From a finished delivery to its acknowledgement being written, at most, and the broker's own time for the next one.
const ACK_AND_BROKER: Duration = Duration::from_millis(3);

/// How long deliveries kept their slots since this was last looked at.
#[derive(Debug, Default)]
pub(super) struct Pace {
    nanos: AtomicU64,
    count: AtomicU64,
}

impl Pace {
    pub(super) fn ended(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// The mean, once there are enough of them.
    fn mean(&self) -> Option<Duration> {
        if self.count.load(Ordering::Relaxed) < FEWEST {
            return None;
        }
        let (count, nanos) = (
            self.count.swap(0, Ordering::Relaxed),
            self.nanos.swap(0, Ordering::Relaxed),
        );
        Some(Duration::from_nanos(nanos / count.max(1)))
    }
}

/// What both lanes of a queue follow.
#[derive(Debug)]
pub(super) struct Adaptive {
    concurrency: usize,
    wanted: watch::Sender<u16>,
    /// Of the last method on a channel, in nanoseconds.
    round_trip: Arc<AtomicU64>,
}

impl Adaptive {
    pub(super) fn new(concurrency: usize) -> Self {
        Self {
            concurrency,
            wanted: watch::Sender::new(initial(concurrency)),
            round_trip: Arc::default(),
        }
    }

    pub(super) fn follow(&self) -> Prefetch {
        Prefetch::Following(Following {
            wanted: self.wanted.subscribe(),
            round_trip: self.round_trip.clone(),
        })
    }

    /// Changes the prefetch where it is worth a new subscription; runs until it is dropped.
    pub(super) async fn run(self: Arc<Self>, pace: Arc<Pace>) {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut changed: Option<Instant> = None;
        loop {
            looks.tick().await;
            if changed.is_some_and(|at| at.elapsed() < BETWEEN_CHANGES) {
                continue;
            }
            let Some(mean) = pace.mean() else { continue };
            let refill = Duration::from_nanos(self.round_trip.load(Ordering::Relaxed)) + ACK_AND_BROKER;
            let (current, wanted) = (*self.wanted.borrow(), wanted(self.concurrency, mean, refill));
            if is_worth_a_change(self.concurrency, current, wanted) {
                tracing::info!(?mean, ?refill, from = current, to = wanted, "prefetch changes");
                self.wanted.send_replace(wanted);
                changed = Some(Instant::now());
            }
        }
    }
}
