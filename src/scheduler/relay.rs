//! The loop that hands due tasks over to the broker.
//!
//! May import: `store`, `publish`, `telemetry`. Never reads a cron row. What becomes of one batch is told by `batch`; up to
//! three of them overlap while rows are plenty, so that neither the database nor the broker waits for the other. While the
//! broker confirms nothing, the loop rests: rows stay where they are, and no more is sent than a batch or three per rest.
//! What was sent and can't be written back is remembered in the [`Store`], which outlives this loop: first of all it is
//! written, and nothing new is sent while the database takes nothing at all.
//! Dying at any line leaves batches as the death of their transactions does: due, and perhaps sent.

mod batch;

use std::time::Duration;

use tidegate_core::envelope::Limits;
use tokio::{
    task::{JoinError, JoinSet},
    time::{Instant, error::Elapsed, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

pub use self::batch::{Batch, pass};
use self::batch::{Taken, deliver, lock};
use super::{PASS_LIMIT, SAFETY_SCAN, SchedulerError, deadline};
use crate::{
    publish::TaskPublisher,
    store::{NextDue, Store, StoreError, tasks::Refused, wake::Channel},
    telemetry::health::Health,
};

/// Name of this role in health and logs.
pub const ROLE: &str = "relay";

/// Most batches in work at once: while one waits for its confirms, the next is read and the one before written back.
const AT_ONCE: usize = 3;

/// First and longest pause while the broker confirms nothing.
const PAUSE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// Longest wait for the last batch when told to stop.
const LAST_BATCH: Duration = Duration::from_secs(5);

/// How tasks are handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelaySettings {
    /// Most tasks per transaction, all published at once.
    pub batch: u32,
    /// How often to look even if nothing is due and nobody notified.
    pub safety_scan: Duration,
    /// Longest wait for a confirm; rows stay locked that long. More than 30 s counts as 30 s.
    pub confirm_limit: Duration,
    /// What the envelope of a row that came by SQL is held to. How far ahead it is planned is not looked at.
    pub limits: Limits,
}

impl Default for RelaySettings {
    fn default() -> Self {
        Self {
            batch: 500,
            safety_scan: SAFETY_SCAN,
            confirm_limit: Duration::from_secs(10),
            limits: Limits::standard(),
        }
    }
}

/// Hands due tasks over until `cancel`, then finishes the batches at hand within 5 s. An error ends the loop; nothing is
/// lost by starting it again.
pub async fn run(
    store: Store,
    publisher: TaskPublisher,
    settings: RelaySettings,
    health: Health,
    cancel: CancellationToken,
) -> Result<(), SchedulerError> {
    let wakes = store.listen(Channel::Tasks);
    let mut delivering = Deliveries::new();
    let mut rest = Rest::default();
    loop {
        // Before the look at the table: what is notified from here on is looked at again.
        wakes.clear();
        let mut next = None;
        let mut idle = false;
        let back = match timeout(PASS_LIMIT, store.tasks().write_back()).await {
            Ok(Ok(back)) => back,
            Ok(Err(error)) => return give_up(delivering, error.into()).await,
            Err(_) => return give_up(delivering, SchedulerError::Stalled).await,
        };
        tell(&back.refused);
        if delivering.len() < AT_ONCE && rest.is_over() && !back.is_full() {
            // What is taken now may have been sent without an answer, and can't be cancelled with certainty any more.
            let most = if publisher.trouble().is_none() {
                settings.batch
            } else {
                1
            };
            let taken = tokio::select! {
                taken = timeout(PASS_LIMIT, take(&store, &settings, most)) => taken,
                () = overdue(&cancel) => return Ok(()),
            };
            let (taken, due) = match taken {
                Ok(Ok(taken)) => taken,
                Ok(Err(error)) => return give_up(delivering, error.into()).await,
                Err(_) => return give_up(delivering, SchedulerError::Stalled).await,
            };
            let full = taken.len() >= settings.batch as usize;
            (next, idle) = (due, taken.is_empty());
            if !idle {
                let (publisher, settings) = (publisher.clone(), settings.clone());
                delivering
                    .spawn(async move { timeout(PASS_LIMIT, deliver(taken, &publisher, &settings)).await });
            } else if delivering.is_empty() {
                store.tasks().forget_announcements().await?;
            }
            if full && delivering.len() < AT_ONCE && !cancel.is_cancelled() {
                continue;
            }
        }
        // Rows of our own batches are still due, so there is no sense in looking for more of them at once.
        let until = deadline(next, settings.safety_scan, idle || !delivering.is_empty());
        let until = back.next.map_or(until, |next| until.min(next));
        let trouble_changed = publisher.trouble_changed();
        let ended = tokio::select! {
            biased;
            Some(ended) = delivering.join_next() => match batch_of(ended) {
                Ok(batch) => Some(batch),
                Err(error) => return give_up(delivering, error).await,
            },
            () = cancel.cancelled() => return finish(delivering, &cancel).await,
            () = rest.over(), if !rest.is_over() => None,
            () = wakes.wait_until(until, next.map(|next| next.at)), if delivering.len() < AT_ONCE && rest.is_over() => None,
            () = trouble_changed => None,
        };
        let trouble = publisher.trouble();
        match ended {
            Some(batch) if batch.is_stuck() => {
                let why = trouble.unwrap_or_else(|| "overdue".to_owned());
                health.down(
                    ROLE,
                    &format!("the broker confirms nothing; tasks wait in the ledger: {why}"),
                );
                let pause = rest.begin();
                tracing::warn!(
                    tasks = batch.unconfirmed,
                    ?pause,
                    why,
                    "the broker confirms nothing; tasks wait in the ledger"
                );
                continue;
            }
            Some(_) => rest = Rest::default(),
            // Nothing was sent: that says nothing about the broker, unless it has said something itself.
            None => {}
        }
        match trouble {
            _ if back.is_full() => health.down(
                ROLE,
                &format!(
                    "nothing is sent: {} tasks that the broker has can't be written into their rows",
                    back.left
                ),
            ),
            Some(trouble) => health.down(ROLE, &trouble),
            None if rest.is_over() => health.up(ROLE),
            None => {}
        }
    }
}

/// Says which rows are to blame for what can't be written.
fn tell(refused: &[Refused]) {
    for one in refused {
        let what = if one.published {
            "the broker has this task, but its row can't be written; it is not sent again, and the row is tried again"
        } else {
            "a row can't be written; it is tried again"
        };
        tracing::error!(task_id = %one.task_id, error = %one.why, "{what}");
    }
}

/// Ends with `error`, once the batches in work have written what became of them, or remembered it.
async fn give_up(mut delivering: Deliveries, error: SchedulerError) -> Result<(), SchedulerError> {
    while let Some(ended) = delivering.join_next().await {
        // The first error is told.
        let _ = batch_of(ended);
    }
    Err(error)
}

/// Batches in work.
type Deliveries = JoinSet<Result<Result<Batch, StoreError>, Elapsed>>;

fn batch_of(
    ended: Result<Result<Result<Batch, StoreError>, Elapsed>, JoinError>,
) -> Result<Batch, SchedulerError> {
    match ended {
        Ok(in_time) => Ok(in_time.map_err(|_| SchedulerError::Stalled)??),
        // Nobody aborts them: it panicked, and the supervisor hears of it.
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    }
}

/// The pause of a relay to which the broker confirms nothing.
struct Rest {
    until: Option<Instant>,
    next: Duration,
}

impl Default for Rest {
    fn default() -> Self {
        Self {
            until: None,
            next: PAUSE.0,
        }
    }
}

impl Rest {
    /// Begins a pause, twice as long as the one before; returns its length.
    fn begin(&mut self) -> Duration {
        let pause = self.next;
        self.until = Some(Instant::now() + pause);
        self.next = (pause * 2).min(PAUSE.1);
        pause
    }

    fn is_over(&self) -> bool {
        self.until.is_none_or(|until| until <= Instant::now())
    }

    async fn over(&self) {
        if let Some(until) = self.until {
            sleep_until(until).await;
        }
    }
}

/// Waits for the batches at hand, for some time after `cancel`.
async fn finish(mut delivering: Deliveries, cancel: &CancellationToken) -> Result<(), SchedulerError> {
    let all = async {
        while let Some(ended) = delivering.join_next().await {
            batch_of(ended)?;
        }
        Ok(())
    };
    tokio::select! {
        ended = all => ended,
        () = overdue(cancel) => Ok(()),
    }
}

/// Ends some time after `cancel`: what is not confirmed by then is published again by the next process.
async fn overdue(cancel: &CancellationToken) {
    cancel.cancelled().await;
    tokio::time::sleep(LAST_BATCH).await;
}

/// Locks and announces the next batch, and says when more is due.
async fn take(
    store: &Store,
    settings: &RelaySettings,
    most: u32,
) -> Result<(Taken, Option<NextDue>), StoreError> {
    let taken = lock(store, settings, most).await?;
    // A full batch: more is due now.
    let next = if taken.len() >= settings.batch as usize {
        None
    } else {
        store.tasks().next_due().await?
    };
    Ok((taken, next))
}
