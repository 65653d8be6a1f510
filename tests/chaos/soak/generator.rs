//! Publishes tasks: as many as get through, to find the maximum, and then at a steady rate whatever the broker does.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use futures::{StreamExt, stream};
use tidegate::publish::TaskPublisher;
use tidegate_testkit::eventually;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::{plan::Plan, staff::Staff};
use crate::installation::{Installation, PATIENCE};

/// Tasks under way when the maximum is measured: enough that nobody waits for work, and no more than is soon done.
const UNDER_WAY: u64 = 1_500;
/// Most spans in which the maximum is looked for.
const MOST_SPANS: usize = 6;
/// Unconfirmed publishes at once: as many as two connections carry.
const IN_FLIGHT: usize = 2_000;
/// Longest time until a task is confirmed, broker restarts and what they leave behind included.
const UNTIL_CONFIRMED: Duration = Duration::from_secs(180);

pub(super) struct Generator {
    publisher: TaskPublisher,
    pub(super) plan: Plan,
    staff: Arc<Staff>,
    /// Number of the next task.
    next: AtomicU32,
    /// Tasks of which each leaves one mark.
    marking: AtomicU64,
    /// Sends whose outcome was not known, and which were repeated.
    pub(super) unknown: AtomicU64,
    pub(super) sent_twice: AtomicU64,
    /// Most tasks that were to be published, or were, and had not finished.
    pub(super) backlog: AtomicU64,
}

impl Generator {
    pub(super) fn new(installation: &Installation, plan: Plan, staff: &Arc<Staff>) -> Self {
        let mut settings = installation.broker();
        settings.confirm_timeout = Duration::from_secs(10);
        settings.name = "soak generator".to_owned();
        Self {
            publisher: installation.publisher(&settings),
            plan,
            staff: Arc::clone(staff),
            next: AtomicU32::new(0),
            marking: AtomicU64::new(0),
            unknown: AtomicU64::new(0),
            sent_twice: AtomicU64::new(0),
            backlog: AtomicU64::new(0),
        }
    }

    /// Tasks that were published; all of them are confirmed, unless a generator is at work.
    pub(super) fn published(&self) -> u32 {
        self.next.load(Relaxed)
    }

    /// Tasks published and finished per second, as many as are possible: the best of several spans of `length`, the first of
    /// which are slower, as everything is new then.
    pub(super) async fn flat_out(&self, length: Duration) -> f64 {
        let enough = CancellationToken::new();
        let measure = async {
            eventually(PATIENCE, "all workers to work", async || self.staff.is_at_work()).await;
            let (mut best, mut spans) = (0.0, 0);
            loop {
                let (from, first) = (Instant::now(), self.staff.marks());
                sleep(length).await;
                let per_second = (self.staff.marks() - first) as f64 / from.elapsed().as_secs_f64();
                spans += 1;
                let still_grows = per_second > 1.1 * best;
                best = per_second.max(best);
                if spans >= 2 && !still_grows || spans == MOST_SPANS {
                    break;
                }
            }
            enough.cancel();
            // Duplicates leave no marks.
            best * f64::from(self.published()) / self.marking.load(Relaxed) as f64
        };
        let numbers = stream::unfold((), async |()| {
            while self.outstanding() >= UNDER_WAY {
                if enough.is_cancelled() {
                    return None;
                }
                sleep(Duration::from_millis(3)).await;
            }
            (!enough.is_cancelled()).then(|| (self.number(), ()))
        });
        tokio::join!(measure, self.send_all(numbers)).0
    }

    /// `rate` tasks per second until `stop`. What could not be sent in time is sent as soon as it can.
    pub(super) async fn steadily(&self, rate: f64, stop: &CancellationToken) {
        let began = Instant::now();
        let numbers = stream::unfold(0_u64, async |sent| {
            let due = began + Duration::from_secs_f64(sent as f64 / rate);
            tokio::select! {
                biased;
                () = stop.cancelled() => return None,
                () = sleep_until(due) => {}
            }
            if sent % 500 == 0 {
                self.backlog.fetch_max(self.outstanding(), Relaxed);
            }
            Some((self.number(), sent + 1))
        });
        self.send_all(numbers).await;
    }

    fn number(&self) -> u32 {
        let n = self.next.fetch_add(1, Relaxed);
        let marks = u64::from(!self.plan.task(n).is_duplicate());
        self.marking.fetch_add(marks, Relaxed);
        n
    }

    fn outstanding(&self) -> u64 {
        // A task that a killed worker had may leave two marks.
        self.marking.load(Relaxed).saturating_sub(self.staff.marks())
    }

    async fn send_all(&self, numbers: impl futures::Stream<Item = u32>) {
        numbers
            .map(|n| self.send(n))
            .buffer_unordered(IN_FLIGHT)
            .collect::<()>()
            .await;
    }

    async fn send(&self, n: u32) {
        let planned = self.plan.task(n);
        let task = planned.message();
        let times = 1 + u64::from(planned.is_sent_twice);
        for _ in 0..times {
            let confirmed = async {
                let mut pause = Duration::from_millis(50);
                // Each failure is repeated: amid restarts it says that nothing is known.
                while let Err(why) = self.publisher.send(task.clone(), Duration::ZERO).await {
                    self.unknown.fetch_add(1, Relaxed);
                    tracing::debug!(n, %why, "sending again");
                    sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(1));
                }
            };
            let in_time = timeout(UNTIL_CONFIRMED, confirmed).await;
            assert!(
                in_time.is_ok(),
                "task {n} was not confirmed in {UNTIL_CONFIRMED:?}"
            );
        }
        self.sent_twice.fetch_add(times - 1, Relaxed);
    }
}
