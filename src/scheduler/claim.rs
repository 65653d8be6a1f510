//! The loop that locks due cron rows and commits what [`occurrence`] decides.
//!
//! May import: `store`, `telemetry`. Never publishes. Sleeps until the next row is due by the database's clock, and
//! wakes on `NOTIFY`; the regular scan is the safety net. Any number of instances may run: each locks other rows
//! (`SKIP LOCKED`), and a row is written back only at the version that was read. Dying at any point leaves rows
//! either untouched and still due, or moved on with their occurrences recorded and their tasks in the outbox.

use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{HELD_ELSEWHERE, PASS_LIMIT, SAFETY_SCAN, SchedulerError, deadline, occurrence};
use crate::{
    store::{
        Store, StoreError,
        cron_tasks::{Decision, Locked, Verdict},
        wake::Channel,
    },
    telemetry::{health::Health, metrics},
};

/// Name of this role in health and logs.
pub const ROLE: &str = "scheduler";

/// How cron rows are claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimSettings {
    /// Most rows per transaction.
    pub batch: u32,
    /// How often to look even if nothing is due and nobody notified.
    pub safety_scan: Duration,
    /// An occurrence later than this is a misfire.
    pub misfire_grace: Duration,
}

impl Default for ClaimSettings {
    fn default() -> Self {
        Self { batch: 200, safety_scan: SAFETY_SCAN, misfire_grace: Duration::from_secs(60) }
    }
}

/// Claims due cron rows until `cancel`. An error ends the loop; nothing is lost by starting it again.
pub async fn run(
    store: Store,
    settings: ClaimSettings,
    health: Health,
    cancel: CancellationToken,
) -> Result<(), SchedulerError> {
    let wakes = store.listen(Channel::Cron);
    loop {
        // Before the look at the tables: what is notified from here on is looked at again.
        wakes.clear();
        let step = async {
            let rows = pass(&store, &settings).await?;
            metrics::cron_rows_in_error(store.cron_tasks().in_error().await?);
            Ok::<_, StoreError>((rows, store.cron_tasks().next_due().await?))
        };
        let (rows, next) = tokio::select! {
            // Dropping a transaction rolls it back.
            () = cancel.cancelled() => return Ok(()),
            step = timeout(PASS_LIMIT, step) => step.map_err(|_| SchedulerError::Stalled)??,
        };
        health.up(ROLE);
        let held = rows == 0 && next.is_some_and(|next| next.after.is_zero());
        let until = deadline(next, settings.safety_scan).max(if held {
            tokio::time::Instant::now() + HELD_ELSEWHERE
        } else {
            tokio::time::Instant::now()
        });
        tokio::select! {
            () = cancel.cancelled() => return Ok(()),
            () = wakes.wait_until(until, None) => {}
        }
    }
}

/// Looks at every row that needs it once; returns how many were written back. The first half computes the time of
/// rows that are new or were edited, the second fires those that are due.
pub async fn pass(store: &Store, settings: &ClaimSettings) -> Result<usize, StoreError> {
    let mut written = 0;
    for kind in [Kind::Uninitialised, Kind::Due] {
        let mut careful = 0;
        loop {
            let limit = if careful > 0 { 1 } else { i64::from(settings.batch) };
            let batch = kind.lock(store, limit).await?;
            let rows = batch.rows().len();
            if rows == 0 {
                break;
            }
            careful = usize::saturating_sub(careful, rows);
            match commit(kind, batch, settings).await {
                Ok(rows) => written += rows,
                Err((error @ StoreError::Bad(_), read)) if read.len() == 1 => {
                    // What the tables refuse now they refuse the next time: flag the row, go on with the others.
                    let (id, version) = read[0];
                    store.cron_tasks().mark_error(id, version, &error.to_string()).await?;
                }
                // One of the batch is refused: take as many rows one by one.
                Err((StoreError::Bad(_), read)) => careful = read.len(),
                Err((error, _)) => return Err(error),
            }
        }
    }
    Ok(written)
}

#[derive(Clone, Copy)]
enum Kind {
    Uninitialised,
    Due,
}

impl Kind {
    async fn lock(self, store: &Store, limit: i64) -> Result<Locked, StoreError> {
        match self {
            Self::Uninitialised => store.cron_tasks().lock_uninitialised(limit).await,
            Self::Due => store.cron_tasks().lock_due(limit).await,
        }
    }
}

/// Decides and commits; on failure returns the rows' keys and versions too.
async fn commit(
    kind: Kind,
    batch: Locked,
    settings: &ClaimSettings,
) -> Result<usize, (StoreError, Vec<(i64, i64)>)> {
    let now = batch.now();
    let decisions: Vec<Decision> = batch
        .rows()
        .iter()
        .map(|row| {
            let decision = match kind {
                Kind::Uninitialised => occurrence::initialise(row, now),
                Kind::Due => occurrence::fire(row, now, settings.misfire_grace),
            };
            if let Verdict::Broken(why) = &decision.verdict {
                tracing::warn!(cron_task = %row.name, error = %why, "cron row can't be scheduled; flagged in last_error");
            }
            decision
        })
        .collect();
    let read = decisions.iter().map(|d| (d.id, d.version)).collect();
    match batch.commit(decisions).await {
        Ok(committed) => {
            for (at, outcome) in committed.fires {
                metrics::cron_fired(outcome.as_str(), (now - at).to_std().unwrap_or_default());
            }
            Ok(committed.rows)
        }
        Err(error) => Err((error, read)),
    }
}
