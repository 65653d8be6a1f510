//! The loop that deletes what has been kept long enough.
//!
//! May import: `store`, `telemetry`. Each kind of row is walked from its oldest on, by age and in small batches with a
//! pause after each as long as the batch took, so that pruning never takes more than half of one connection. A walk
//! goes on where the last one ended: what was looked at and is kept longer is not read again every time. Dying in
//! between costs one walk from the beginning.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::{PASS_LIMIT, SchedulerError};
use crate::{
    store::{
        Store,
        retention::{Kept, Position, Pruned},
    },
    telemetry::{health::Health, metrics},
};

/// Name of this loop in health and logs.
pub const ROLE: &str = "retention";

/// Rows of one batch.
const BATCH: u32 = 1_000;

/// Shortest pause between two batches that deleted something.
const PAUSE: Duration = Duration::from_millis(10);

/// After this long a walk starts from the beginning again, for rows that were locked or moved back in time.
const FULL_WALK: Duration = Duration::from_secs(24 * 3600);

/// How long rows are kept; what is not named is kept for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetentionSettings {
    /// By kind of row, from its end; see [`Kept`].
    pub keep: BTreeMap<Kept, Duration>,
    /// Pause between two runs.
    pub interval: Duration,
}

impl Default for RetentionSettings {
    fn default() -> Self {
        let days = |days: u64| Duration::from_secs(days * 24 * 3600);
        Self {
            keep: BTreeMap::from([
                (Kept::Success, days(7)),
                (Kept::Failed, days(30)),
                (Kept::Canceled, days(7)),
                (Kept::Unreported, days(30)),
                (Kept::CronFires, days(30)),
                (Kept::Executions, days(7)),
            ]),
            interval: Duration::from_secs(600),
        }
    }
}

/// How far the walks have come.
#[derive(Debug)]
pub struct Walks {
    positions: BTreeMap<Kept, Position>,
    since: Instant,
}

impl Default for Walks {
    fn default() -> Self {
        Self {
            positions: BTreeMap::new(),
            since: Instant::now(),
        }
    }
}

/// Prunes until `cancel`. An error ends the loop; nothing is lost by starting it again.
pub async fn run(
    store: Store,
    settings: RetentionSettings,
    health: Health,
    cancel: CancellationToken,
) -> Result<(), SchedulerError> {
    let mut walks = Walks::default();
    loop {
        tokio::select! {
            // Dropping a transaction rolls it back.
            () = cancel.cancelled() => return Ok(()),
            deleted = prune(&store, &settings, &mut walks) => {
                deleted?;
                health.up(ROLE);
            }
        }
        // Instances that were started together don't stay together.
        let pause = settings.interval.mul_f64(0.9 + 0.2 * rand::random::<f64>());
        tokio::select! {
            () = cancel.cancelled() => return Ok(()),
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// One run over all kinds; returns how many rows of each were deleted.
pub async fn prune(
    store: &Store,
    settings: &RetentionSettings,
    walks: &mut Walks,
) -> Result<BTreeMap<Kept, u64>, SchedulerError> {
    if walks.since.elapsed() > FULL_WALK {
        *walks = Walks::default();
    }
    let began = Instant::now();
    let mut deleted = BTreeMap::new();
    for (kept, keep) in &settings.keep {
        let rows = walk(store, *kept, *keep, walks.positions.entry(*kept).or_default()).await?;
        if rows > 0 {
            deleted.insert(*kept, rows);
        }
    }
    if !deleted.is_empty() {
        let rows: BTreeMap<&str, u64> = deleted
            .iter()
            .map(|(kept, rows)| (kept.as_str(), *rows))
            .collect();
        tracing::info!(?rows, took = ?began.elapsed(), "deleted what had been kept long enough");
    }
    Ok(deleted)
}

async fn walk(
    store: &Store,
    kept: Kept,
    keep: Duration,
    position: &mut Position,
) -> Result<u64, SchedulerError> {
    let (mut at, mut total, mut passed_by) = (position.clone(), 0, false);
    loop {
        let began = Instant::now();
        let batch = timeout(PASS_LIMIT, store.retention().prune(kept, keep, &at, BATCH))
            .await
            .map_err(|_| SchedulerError::Stalled)??;
        let Pruned::Batch {
            deleted,
            locked,
            more,
            position: next,
        } = batch
        else {
            // Another instance is at it; this one looks again at its next run.
            return Ok(total);
        };
        total += deleted;
        metrics::pruned(kept.as_str(), deleted);
        at = next;
        passed_by |= locked > 0;
        if !passed_by {
            *position = at.clone();
        }
        if !more {
            return Ok(total);
        }
        if deleted > 0 {
            tokio::time::sleep(began.elapsed().max(PAUSE)).await;
        }
    }
}
