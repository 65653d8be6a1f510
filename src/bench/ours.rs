//! Our workers, with a handler that does nothing but count.
//!
//! May import: `broker`, `ledger`, `topology`, `worker`.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use chrono::Utc;
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    BenchError, BenchSettings,
    ground::{QUEUE, TASK_TYPE},
};
use crate::{
    broker::BrokerSettings,
    ledger::PostgresLedger,
    telemetry::health::Health,
    topology::Topology,
    worker::{Worker, extract::Payload},
};

/// Longest wait for the next task.
const SILENCE: Duration = Duration::from_secs(30);

#[derive(serde::Deserialize)]
struct Work {
    /// When it was due, in milliseconds since 1970, if it was delayed.
    due: Option<i64>,
}

/// What came out.
pub(super) struct Handled {
    /// From the first task to the last.
    pub(super) span: Duration,
    /// When the last began.
    pub(super) last: Instant,
    /// How late delayed tasks began, in milliseconds.
    pub(super) late: Vec<f64>,
}

struct Count {
    handled: AtomicU64,
    want: AtomicU64,
    seen: Mutex<Option<(Instant, Instant)>>,
    late: Mutex<Vec<f64>>,
    done: CancellationToken,
}

impl Count {
    fn one(&self, work: &Work) {
        let now = Instant::now();
        if let Some(due) = work.due {
            let late = (Utc::now().timestamp_millis() - due) as f64;
            self.late
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(late);
        }
        let handled = self.handled.fetch_add(1, Ordering::SeqCst) + 1;
        // The first, and whatever may be the last.
        if handled == 1 || handled >= self.want.load(Ordering::SeqCst) {
            self.mark(now);
        }
        self.check(handled);
    }

    fn mark(&self, now: Instant) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let first = seen.map_or(now, |(first, _)| first);
        *seen = Some((first, now));
    }

    fn check(&self, handled: u64) {
        if handled >= self.want.load(Ordering::SeqCst) {
            self.done.cancel();
        }
    }
}

/// Workers that run.
pub(super) struct Workers {
    running: JoinSet<()>,
    count: Arc<Count>,
    health: Health,
    stop: CancellationToken,
}

impl Workers {
    pub(super) fn start(
        broker: &BrokerSettings,
        topology: &Arc<Topology>,
        ledger: Option<PostgresLedger>,
        settings: &BenchSettings,
    ) -> Result<Self, BenchError> {
        let count = Arc::new(Count {
            handled: AtomicU64::new(0),
            want: AtomicU64::new(u64::MAX),
            seen: Mutex::default(),
            late: Mutex::default(),
            done: CancellationToken::new(),
        });
        let (mut running, stop, health) = (JoinSet::new(), CancellationToken::new(), Health::default());
        for _ in 0..settings.workers {
            let counting = count.clone();
            let builder = Worker::builder(broker.clone(), topology.clone())
                .queue(QUEUE)
                .health(health.clone())
                .prefetch(settings.prefetch)
                .concurrency(settings.concurrency)
                .handle(TASK_TYPE, move |Payload(work): Payload<Work>| {
                    counting.one(&work);
                    std::future::ready(())
                });
            let builder = match &ledger {
                Some(ledger) => builder.ledger(ledger.clone()),
                None => builder,
            };
            let worker = builder
                .build()
                .map_err(|error| BenchError::Build(error.to_string()))?;
            running.spawn(worker.run(stop.clone()));
        }
        Ok(Self {
            running,
            count,
            health,
            stop,
        })
    }

    /// Waits until all of them consume, for a bounded time.
    pub(super) async fn ready(&self) {
        let ready = async {
            while !self.health.is_ready() {
                sleep(Duration::from_millis(10)).await;
            }
        };
        if timeout(SILENCE, ready).await.is_err() {
            tracing::warn!("the workers are not ready; going on");
        }
    }

    /// How many tasks were handled so far.
    pub(super) fn handled(&self) -> u64 {
        self.count.handled.load(Ordering::SeqCst)
    }

    /// Says how many tasks there are.
    pub(super) fn expect(&self, count: u64) {
        self.count.want.store(count, Ordering::SeqCst);
        let handled = self.handled();
        if handled >= count {
            self.count.mark(Instant::now());
        }
        self.count.check(handled);
    }

    /// Waits for the last task, and stops.
    pub(super) async fn finish(mut self) -> Result<Handled, BenchError> {
        let published = self.count.want.load(Ordering::SeqCst);
        let mut before = self.handled();
        while timeout(SILENCE, self.count.done.cancelled()).await.is_err() {
            let handled = self.handled();
            if handled == before {
                self.stop.cancel();
                return Err(BenchError::Missing { handled, published });
            }
            before = handled;
        }
        self.stop.cancel();
        while self.running.join_next().await.is_some() {}
        let seen = self.count.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let (first, last) = seen.unwrap_or_else(|| (Instant::now(), Instant::now()));
        let late = self
            .count
            .late
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        Ok(Handled {
            span: last - first,
            last,
            late,
        })
    }
}
