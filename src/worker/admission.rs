//! The step that holds each type to its own limits: how many run at once, how many of those are retries, how many
//! start in a time.
//!
//! May import: `topology`. They hold for the whole process, whatever queues a type comes by. A delivery that is over a
//! limit waits a little without a slot, in one of few spots, and then goes to the ladder as the same attempt: so a type at its
//! limit keeps neither slots nor the window from others. Killed meanwhile, the broker delivers it again.

use std::{
    collections::HashMap,
    num::NonZeroU32,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use governor::{
    Quota, RateLimiter,
    clock::{Clock, MonotonicClock},
    middleware::NoOpMiddleware,
    state::{InMemoryState, NotKeyed},
};
use tidegate_core::admission::{Appointments, PATIENCE, SENIOR, SENIOR_PATIENCE, mean, spacing};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

use super::place::{Place, Waited};
use crate::topology::{Rate, TaskTypePolicy};

/// How long a rate may be made up for in one go: a tenth of a second's worth, and one at least.
const BURST: Duration = Duration::from_millis(100);

/// Taken for the duration of handlers of which none has ended yet.
const UNKNOWN_DURATION: Duration = Duration::from_millis(200);

/// The gates of all types that a worker handles.
pub(super) type Gates = HashMap<String, Arc<Gate>>;

/// The limits of one type.
pub(super) struct Gate {
    all: Option<Limit>,
    retries: Limit,
    rate: Option<Pace>,
    book: Mutex<Book>,
    since: Instant,
}

struct Limit {
    permits: Arc<Semaphore>,
    size: usize,
}

struct Pace {
    limiter: RateLimiter<
        NotKeyed,
        InMemoryState,
        MonotonicClock,
        NoOpMiddleware<<MonotonicClock as Clock>::Instant>,
    >,
    spacing: Duration,
}

/// What is known of how fast those that wait get through.
#[derive(Default)]
struct Book {
    mean: Option<Duration>,
    running: Appointments,
    retries: Appointments,
    rate: Appointments,
}

/// What comes of asking to start.
pub(super) enum Admitted {
    /// It may, as long as it holds this.
    In(Permits),
    /// It goes to the ladder for this long.
    Later {
        /// Which limit, as a metrics label.
        why: &'static str,
        stay: Duration,
    },
    /// Nothing may start any more: give it back.
    Closed,
}

/// Held while the handler runs; nothing, where nothing is limited.
#[derive(Default)]
pub(super) struct Permits(#[expect(dead_code, reason = "held for its drop")] Option<Held>);

struct Held {
    _all: Option<OwnedSemaphorePermit>,
    _retry: Option<OwnedSemaphorePermit>,
    gate: Arc<Gate>,
    since: Instant,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut book = self.gate.book();
        book.mean = Some(mean(book.mean, self.since.elapsed()));
    }
}

impl Gate {
    /// The gate of a type with `policy`.
    pub(super) fn new(policy: &TaskTypePolicy) -> Self {
        Self {
            all: policy.concurrency.map(Limit::new),
            retries: Limit::new(policy.retry_concurrency),
            rate: policy.rate.as_ref().map(Pace::new),
            book: Mutex::default(),
            since: Instant::now(),
        }
    }

    fn book(&self) -> std::sync::MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nothing could hold a first attempt up: then there is nothing to ask.
    pub(super) fn is_open(&self, number: u32) -> bool {
        number <= 1 && self.all.is_none() && self.rate.is_none()
    }

    /// Asks for attempt `number` to start, which was put off `waits` times so far.
    pub(super) async fn admit(self: &Arc<Self>, number: u32, waits: u32, place: &mut Place) -> Admitted {
        let senior = waits >= SENIOR;
        let mut retry = None;
        if number > 1 {
            match self.retries.enter(place, senior).await {
                Waited::Got(permit) => retry = Some(permit),
                Waited::Full => return self.later("retries", |book| (&mut book.retries, self.retries.size)),
                Waited::Closed => return Admitted::Closed,
            }
        }
        let mut all = None;
        if let Some(limit) = &self.all {
            match limit.enter(place, senior).await {
                Waited::Got(permit) => all = Some(permit),
                Waited::Full => return self.later("concurrency", |book| (&mut book.running, limit.size)),
                Waited::Closed => return Admitted::Closed,
            }
        }
        if let Some(pace) = &self.rate {
            match pace.start(place, senior).await {
                Ok(Waited::Got(())) => {}
                Ok(Waited::Closed) => return Admitted::Closed,
                Ok(Waited::Full) => return self.too_fast(Duration::ZERO, pace.spacing),
                Err(wait) => return self.too_fast(wait, pace.spacing),
            }
        }
        Admitted::In(Permits(Some(Held {
            _all: all,
            _retry: retry,
            gate: self.clone(),
            since: Instant::now(),
        })))
    }

    fn later(
        &self,
        why: &'static str,
        which: impl FnOnce(&mut Book) -> (&mut Appointments, usize),
    ) -> Admitted {
        let mut book = self.book();
        let mean = book.mean.unwrap_or(UNKNOWN_DURATION);
        let (appointments, size) = which(&mut book);
        let stay = appointments.next(
            self.since.elapsed(),
            Duration::ZERO,
            spacing(mean, size),
            rand::random(),
        );
        Admitted::Later { why, stay }
    }

    fn too_fast(&self, wait: Duration, spacing: Duration) -> Admitted {
        let stay = self
            .book()
            .rate
            .next(self.since.elapsed(), wait, spacing, rand::random());
        Admitted::Later { why: "rate", stay }
    }
}

impl Limit {
    fn new(size: usize) -> Self {
        let permits = Arc::new(Semaphore::new(size));
        Self { permits, size }
    }

    async fn enter(&self, place: &mut Place, senior: bool) -> Waited<OwnedSemaphorePermit> {
        if let Ok(permit) = self.permits.clone().try_acquire_owned() {
            return Waited::Got(permit);
        }
        // It is fair: who waits first gets the next.
        match place
            .wait(self.permits.clone().acquire_owned(), patience(senior), senior)
            .await
        {
            Waited::Got(Ok(permit)) => Waited::Got(permit),
            // Nobody closes it.
            Waited::Got(Err(_)) | Waited::Full => Waited::Full,
            Waited::Closed => Waited::Closed,
        }
    }
}

impl Pace {
    fn new(rate: &Rate) -> Self {
        let spacing = rate.per / rate.count.get();
        let burst = BURST.as_nanos() / spacing.as_nanos().max(1);
        let burst = u32::try_from(burst)
            .ok()
            .and_then(NonZeroU32::new)
            .unwrap_or(NonZeroU32::MIN);
        // `None` only for a period of zero, and a million in a second is a microsecond each.
        let quota = Quota::with_period(spacing).unwrap_or(Quota::per_second(rate.count));
        Self {
            limiter: RateLimiter::direct_with_clock(quota.allow_burst(burst), MonotonicClock),
            spacing,
        }
    }

    /// `Err`: it would have to wait longer than anybody waits here.
    async fn start(&self, place: &mut Place, senior: bool) -> Result<Waited<()>, Duration> {
        let clock = MonotonicClock;
        let Err(not_until) = self.limiter.check() else {
            return Ok(Waited::Got(()));
        };
        let patience = patience(senior);
        let wait = not_until.wait_time_from(clock.now());
        if wait > patience {
            return Err(wait);
        }
        let turn = async {
            let mut wait = wait;
            loop {
                tokio::time::sleep(wait).await;
                match self.limiter.check() {
                    Ok(()) => return,
                    Err(not_until) => wait = not_until.wait_time_from(clock.now()),
                }
            }
        };
        Ok(place.wait(turn, patience, senior).await)
    }
}

const fn patience(senior: bool) -> Duration {
    if senior { SENIOR_PATIENCE } else { PATIENCE }
}
