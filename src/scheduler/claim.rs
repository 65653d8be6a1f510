//! The loop that reads due cron rows, and writes back what `occurrence` decides about them.
//!
//! May import: `store`, `telemetry`. Never publishes. Sleeps until the next row is due by the database's clock, and
//! wakes on `NOTIFY`; the regular scan is the safety net.
//!
//! Any number of instances may run. The claim is optimistic: nothing is locked while a decision is made, and of
//! several decisions about one version of a row the first to be written holds. Instances take different rows by
//! working through the shards in different orders; one that loses more than it wins shuffles its
//! order, and looks a moment later than the others the next time, when they will be through.
//!
//! Dying or freezing at any point leaves rows either untouched and still due, or moved on with their occurrences
//! recorded and their tasks in the outbox. What a frozen instance decided is refused when it wakes.

use std::time::Duration;

use rand::Rng;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use self::{
    resting::Resting,
    work::{Outcome, Work},
};
use super::{PASS_LIMIT, SAFETY_SCAN, SchedulerError, deadline, shards::Shards};
use crate::{
    store::{NextDue, Store, StoreError, wake::Channel},
    telemetry::{health::Health, metrics},
};

mod resting;
mod work;

/// Name of this role in health and logs.
pub const ROLE: &str = "scheduler";

/// How much later an instance looks that lost more than it won, in milliseconds: when the others are through. Drawn
/// anew each time, so that two of them meet once at most.
const LATER: std::ops::Range<u64> = 20..60;

/// Pause of an instance that has won nothing of what it read, in milliseconds.
const YIELD: std::ops::Range<u64> = 1..10;

/// First and longest wait for rows that are due and can't be had.
const HELD: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// First and longest pause while the database can't be used.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// How cron rows are claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimSettings {
    /// Most rows per statement.
    pub batch: u32,
    /// How often to look even if nothing is due and nobody notified.
    pub safety_scan: Duration,
    /// An occurrence later than this is a misfire.
    pub misfire_grace: Duration,
}

impl Default for ClaimSettings {
    fn default() -> Self {
        Self {
            batch: 500,
            safety_scan: SAFETY_SCAN,
            misfire_grace: Duration::from_secs(60),
        }
    }
}

/// Claims due cron rows until `cancel`. Outlives a database that restarts, moves or ends its connections: readiness is
/// red meanwhile. Any other error ends the loop; nothing is lost by starting it again.
pub async fn run(
    store: Store,
    settings: ClaimSettings,
    health: Health,
    cancel: CancellationToken,
) -> Result<(), SchedulerError> {
    let wakes = store.listen(Channel::Cron);
    let mut claimer = Claimer::new(settings);
    let mut pause = PAUSE.0;
    loop {
        // Before the look at the tables: what is notified from here on is looked at again.
        wakes.clear();
        let step = tokio::select! {
            // A statement that is under way is carried out or not, as if this process had died.
            () = cancel.cancelled() => return Ok(()),
            step = claimer.step(&store, &health) => step,
        };
        let wait = async {
            match step {
                Ok(next) => {
                    pause = PAUSE.0;
                    let until = deadline(next, claimer.settings.safety_scan, false);
                    let until = claimer.resting.next().map_or(until, |rested| until.min(rested));
                    wakes.wait_until(until + claimer.later(), None).await;
                }
                Err(SchedulerError::Store(error)) if error.is_transient() => {
                    health.down(ROLE, &error.to_string());
                    tracing::warn!(%error, ?pause, "cron rows wait for the database");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE.1);
                }
                Err(error) => return Err(error),
            }
            Ok(())
        };
        tokio::select! {
            () = cancel.cancelled() => return Ok(()),
            waited = wait => waited?,
        }
    }
}

/// What became of the rows that were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Written back.
    pub written: usize,
    /// Written by somebody else first.
    pub lost: usize,
    /// Flagged, because the tables refuse something of them.
    pub flagged: usize,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.written += other.written;
        self.lost += other.lost;
        self.flagged += other.flagged;
    }

    fn mostly_lost(self) -> bool {
        self.lost > self.written + self.flagged
    }
}

/// Looks at every row that needs it, once; returns how many were written back.
pub async fn pass(store: &Store, settings: &ClaimSettings, health: &Health) -> Result<usize, SchedulerError> {
    let tally = Claimer::new(settings.clone()).pass(store, health).await?;
    Ok(tally.written)
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Uninitialised,
    Due,
}

/// An instance, with the order in which it works.
#[derive(Debug)]
pub struct Claimer {
    settings: ClaimSettings,
    shards: Shards,
    /// Rows to read at once: fewer than the settings say while they can't be written in time.
    limit: u32,
    /// Others are faster: let them go first.
    behind: bool,
    /// How long to wait for a row that is due and can't be had.
    held: Duration,
    /// When the rows in error are to be counted again.
    count_at: Instant,
    /// Rows that are left alone for a while.
    resting: Resting,
}

impl Claimer {
    /// An instance that has seen nothing yet.
    pub fn new(settings: ClaimSettings) -> Self {
        Self {
            limit: settings.batch.max(1),
            shards: Shards::new(&mut rand::rng()),
            behind: false,
            held: HELD.0,
            count_at: Instant::now(),
            resting: Resting::default(),
            settings,
        }
    }

    fn later(&self) -> Duration {
        let millis = if self.behind {
            rand::rng().random_range(LATER)
        } else {
            0
        };
        Duration::from_millis(millis)
    }

    /// A pass, and when to make the next one.
    async fn step(&mut self, store: &Store, health: &Health) -> Result<Option<NextDue>, SchedulerError> {
        let tally = self.pass(store, health).await?;
        let rest = async {
            if self.count_at <= Instant::now() {
                metrics::cron_rows_in_error(store.cron_tasks().in_error().await?);
                self.count_at = Instant::now() + self.settings.safety_scan;
            }
            let next = store.cron_tasks().next_due(&self.resting.ids()).await?;
            match next {
                Some(mut due) if due.after.is_zero() && tally.written == 0 => {
                    // Somebody has it in their hands: an instance for a moment, or a client for longer.
                    if let Some(future) = store.cron_tasks().next_in_future().await? {
                        due = future;
                    }
                    due.after = due.after.min(self.held);
                    self.held = (self.held * 2).min(HELD.1);
                    Ok(Some(due))
                }
                next => {
                    self.held = HELD.0;
                    Ok::<_, StoreError>(next)
                }
            }
        };
        Ok(timeout(PASS_LIMIT, rest)
            .await
            .map_err(|_| SchedulerError::Stalled)??)
    }

    /// Looks at every row that needs it, once. The first half of a round computes the time of rows that are new or
    /// were edited, the second fires those that are due.
    pub async fn pass(&mut self, store: &Store, health: &Health) -> Result<Tally, SchedulerError> {
        let mut all = Tally::default();
        let mut ahead = None;
        loop {
            let mut more = false;
            // In turn, so that a row that makes up for a long outage keeps no new row waiting.
            for kind in [Kind::Uninitialised, Kind::Due] {
                let round = timeout(PASS_LIMIT, self.round(kind, store, &mut ahead))
                    .await
                    .map_err(|_| SchedulerError::Stalled)??;
                health.up(ROLE);
                all.add(round.tally);
                more |= round.more;
            }
            if !more {
                break;
            }
        }
        if all != Tally::default() {
            self.behind = all.mostly_lost();
        }
        Ok(all)
    }

    /// Reads, decides and writes one batch. While it is written the next due rows are read and decided about, from
    /// other shards, and left in `ahead`: the database and this process work at the same time.
    async fn round(
        &mut self,
        kind: Kind,
        store: &Store,
        ahead: &mut Option<Work>,
    ) -> Result<Round, StoreError> {
        let work = match kind {
            Kind::Due if ahead.is_some() => ahead.take(),
            _ => self.read(kind, store, &[]).await?,
        };
        let Some(work) = work else {
            return Ok(Round::default());
        };
        let (full, shards) = (work.full, work.shards.clone());
        let next = async {
            match kind {
                Kind::Due if full => self.read(kind, store, &shards).await,
                _ => Ok(None),
            }
        };
        let (written, next) = tokio::join!(work.write(store), next);
        let written = written?;
        *ahead = next?;
        self.learn(&written, full).await;
        let Outcome { tally, in_time, .. } = written;
        Ok(Round {
            tally,
            more: full || !in_time || ahead.is_some(),
        })
    }

    /// Up to a batch of rows, from shards other than `but`.
    async fn read(&self, kind: Kind, store: &Store, but: &[i64]) -> Result<Option<Work>, StoreError> {
        let order: Vec<i64> = self
            .shards
            .order()
            .iter()
            .copied()
            .filter(|shard| !but.contains(shard))
            .collect();
        let limit = i64::from(self.limit);
        let resting = self.resting.ids();
        let batch = match kind {
            Kind::Uninitialised => store.cron_tasks().uninitialised(&order, &resting, limit).await?,
            Kind::Due => store.cron_tasks().due(&order, &resting, limit).await?,
        };
        Ok(batch.map(|batch| Work::new(kind, batch, self.limit, self.settings.misfire_grace)))
    }

    /// Where and how much to read next.
    async fn learn(&mut self, written: &Outcome, full: bool) {
        self.limit = if written.in_time {
            self.limit.saturating_mul(2).min(self.settings.batch.max(1))
        } else {
            (self.limit / 2).max(1)
        };
        for id in &written.stuck {
            self.resting.add(*id);
        }
        let tally = written.tally;
        if tally.flagged > 0 || written.broken {
            self.count_at = Instant::now();
        }
        if tally.mostly_lost() {
            self.shards.shuffle(&mut rand::rng());
            if tally.written == 0 {
                let pause = rand::rng().random_range(YIELD);
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
        } else if full {
            self.shards.filled();
        }
    }
}

#[derive(Default)]
struct Round {
    tally: Tally,
    /// There may be more to do at once.
    more: bool,
}
