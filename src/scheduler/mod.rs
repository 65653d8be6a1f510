//! Cron rows become tasks, and tasks that are due become messages.
//!
//! May import: `store`, `publish`, `telemetry`, `core`. The two halves meet only in the `tasks` table: [`claim`]
//! never publishes, [`relay`] never reads a cron row.
//!
//! | module | what |
//! |---|---|
//! | [`occurrence`] | a cron row and the time → what to write back and which tasks to send |
//! | [`admin`] | schedules as people keep them: checked as the claim would, then stored |
//! | [`payload`] | a cron row's payload with the values of an occurrence filled in |
//! | [`claim`] | the loop that reads due cron rows and writes back what [`occurrence`] decides |
//! | `shards` | in which order an instance works through the cron rows |
//! | [`relay`] | the loop that hands due tasks over to the broker |
//! | [`retention`] | the loop that deletes what has been kept long enough |

pub mod admin;
pub mod claim;
pub mod occurrence;
pub mod payload;
pub mod relay;
pub mod retention;
mod shards;

use std::time::Duration;

use tokio::time::Instant;

use crate::store::{NextDue, StoreError};

/// How often the tables are looked at even if nothing is due and nobody notified.
pub const SAFETY_SCAN: Duration = Duration::from_secs(15);

/// Wait while what is due is held by another instance.
const HELD_ELSEWHERE: Duration = Duration::from_millis(20);

/// Longest step of a loop: a database that neither answers nor refuses ends here.
const PASS_LIMIT: Duration = Duration::from_secs(60);

/// Why a loop of the scheduler ended; its supervisor starts it again.
#[derive(Debug, thiserror::Error)]
pub enum SchedulerError {
    /// The ledger failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The ledger neither answered nor refused.
    #[error("the database has not answered for {} s; connecting anew", PASS_LIMIT.as_secs())]
    Stalled,
}

/// When to look again: as the next row is due, at the latest for the regular scan. Something due of which nothing
/// could be had (`idle`) is held by another instance.
fn deadline(next: Option<NextDue>, safety_scan: Duration, idle: bool) -> Instant {
    let earliest = if idle { HELD_ELSEWHERE } else { Duration::ZERO };
    let wait = match next {
        Some(next) if next.after.is_zero() => earliest,
        Some(next) => next.after,
        None => safety_scan,
    };
    Instant::now() + wait.min(safety_scan)
}
