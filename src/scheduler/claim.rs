//! The loop that locks due cron rows and commits what [`occurrence`] decides.
//!
//! May import: `store`, `telemetry`. Never publishes. Sleeps until the next row is due by the database's clock, and
//! wakes on `NOTIFY`; the regular scan is the safety net. Any number of instances may run: each locks other rows
//! (`SKIP LOCKED`), and a row is written back only at the version that was read. Dying at any point leaves rows
//! either untouched and still due, or moved on with their occurrences recorded and their tasks in the outbox.

use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{PASS_LIMIT, SAFETY_SCAN, SchedulerError, deadline, occurrence};
use crate::{
    store::{
        NextDue, Store, StoreError,
        cron_tasks::{CronTask, Decision, Locked, Verdict},
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
        Self {
            batch: 200,
            safety_scan: SAFETY_SCAN,
            misfire_grace: Duration::from_secs(60),
        }
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
        let (rows, next) = tokio::select! {
            // Dropping a transaction rolls it back.
            () = cancel.cancelled() => return Ok(()),
            step = step(&store, &settings, &health) => step?,
        };
        let until = deadline(next, settings.safety_scan, rows == 0);
        tokio::select! {
            () = cancel.cancelled() => return Ok(()),
            () = wakes.wait_until(until, None) => {}
        }
    }
}

async fn step(
    store: &Store,
    settings: &ClaimSettings,
    health: &Health,
) -> Result<(usize, Option<NextDue>), SchedulerError> {
    let rows = pass(store, settings, health).await?;
    let (errors, next) = timeout(PASS_LIMIT, async {
        Ok::<_, StoreError>((
            store.cron_tasks().in_error().await?,
            store.cron_tasks().next_due().await?,
        ))
    })
    .await
    .map_err(|_| SchedulerError::Stalled)??;
    metrics::cron_rows_in_error(errors);
    Ok((rows, next))
}

/// Looks at every row that needs it; returns how many were written back. The first half computes the time of rows
/// that are new or were edited, the second fires those that are due.
pub async fn pass(store: &Store, settings: &ClaimSettings, health: &Health) -> Result<usize, SchedulerError> {
    let mut written = 0;
    // How many rows to take one by one, because a batch with one of them was refused.
    let mut careful = 0_usize;
    loop {
        let mut found = false;
        // In turn, so that a row that makes up for a long outage keeps no new row waiting.
        for kind in [Kind::Uninitialised, Kind::Due] {
            let limit = if careful > 0 { 1 } else { i64::from(settings.batch) };
            let batch = timeout(PASS_LIMIT, batch(kind, store, limit, settings))
                .await
                .map_err(|_| SchedulerError::Stalled)??;
            health.up(ROLE);
            found |= !matches!(batch, Outcome::Empty);
            match batch {
                Outcome::Empty => {}
                Outcome::Written(rows) => {
                    written += rows;
                    careful = careful.saturating_sub(1);
                }
                Outcome::Refused(rows) => careful = rows,
                Outcome::Flagged => careful = careful.saturating_sub(1),
            }
        }
        if !found {
            break;
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

enum Outcome {
    /// No row was left.
    Empty,
    /// As many rows were written back.
    Written(usize),
    /// The tables refused something of one of as many rows.
    Refused(usize),
    /// The tables refused the one row; it is flagged.
    Flagged,
}

/// Locks, decides and commits one batch.
async fn batch(
    kind: Kind,
    store: &Store,
    limit: i64,
    settings: &ClaimSettings,
) -> Result<Outcome, StoreError> {
    let locked = kind.lock(store, limit).await?;
    let now = locked.now();
    let decisions: Vec<Decision> = locked
        .rows()
        .iter()
        .map(|row| decide(kind, row, now, settings.misfire_grace))
        .collect();
    let rows = decisions.len();
    let Some((id, version)) = decisions.first().map(|first| (first.id, first.version)) else {
        return Ok(Outcome::Empty);
    };
    match locked.commit(decisions).await {
        Ok(committed) => {
            for span in committed.fires {
                metrics::cron_fired(
                    span.outcome.as_str(),
                    (now - span.first).to_std().unwrap_or_default(),
                );
            }
            Ok(Outcome::Written(committed.rows))
        }
        Err(StoreError::Bad(_)) if rows > 1 => Ok(Outcome::Refused(rows)),
        Err(error @ StoreError::Bad(_)) => {
            // What the tables refuse now they refuse the next time: flag the row, go on with the others.
            store
                .cron_tasks()
                .mark_error(id, version, &error.to_string())
                .await?;
            Ok(Outcome::Flagged)
        }
        Err(error) => Err(error),
    }
}

fn decide(kind: Kind, row: &CronTask, now: DateTime<Utc>, grace: Duration) -> Decision {
    let decision = match kind {
        Kind::Uninitialised => occurrence::initialise(row, now),
        Kind::Due => occurrence::fire(row, now, grace),
    };
    if let Verdict::Broken(why) = &decision.verdict {
        tracing::warn!(cron_task = %row.name, error = %why, "cron row can't be scheduled; flagged in last_error");
    }
    decision
}
