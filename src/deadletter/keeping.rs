//! The days of the archive: made ahead, dropped when they have been kept long enough, and what is open in them counted.
//!
//! May import: `store`, `telemetry`. Any number of processes may do so at once. If one dies in between, the next look does
//! what is missing: a day is made or dropped whole, with its counts, or not at all.

use std::{collections::BTreeMap, convert::Infallible, time::Duration};

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::{
    store::{Store, StoreError},
    telemetry::{dead_letters, health::Health, metrics},
};

/// Name of this loop in health and logs.
pub const ROLE: &str = "archive_days";

/// Time between two looks at how many are open.
const COUNT: Duration = Duration::from_secs(15);

/// Tries in a row to drop a day while somebody reads or writes the archive.
const TRIES: u32 = 5;

/// How long dead letters are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeepingSettings {
    /// At least so long, from when they came into the archive; `None`: for ever.
    pub keep: Option<Duration>,
    /// Pause between two looks.
    pub interval: Duration,
}

impl Default for KeepingSettings {
    fn default() -> Self {
        Self {
            keep: Some(Duration::from_secs(90 * 24 * 3600)),
            interval: Duration::from_secs(600),
        }
    }
}

/// Makes and drops days until `cancel`.
///
/// # Errors
/// The database's; the next run does what is left to do.
pub async fn run(
    store: Store,
    settings: KeepingSettings,
    health: Health,
    cancel: CancellationToken,
) -> Result<(), StoreError> {
    let days = async {
        loop {
            keep(&store, &settings).await?;
            health.up(ROLE);
            // Instances that were started together don't stay together.
            sleep(settings.interval.mul_f64(0.9 + 0.2 * rand::random::<f64>())).await;
        }
    };
    tokio::select! {
        () = cancel.cancelled() => Ok(()),
        ended = days => ended,
        ended = count(&store) => match ended? {},
    }
}

/// One look: makes today and tomorrow, drops what is older than the setting allows.
pub async fn keep(store: &Store, settings: &KeepingSettings) -> Result<(), StoreError> {
    store.dead_letters().make_days().await?;
    let Some(keep) = settings.keep else { return Ok(()) };
    let mut tries = 0;
    loop {
        match store.dead_letters().drop_day(keep).await {
            Ok(None) => return Ok(()),
            Ok(Some(gone)) => {
                tries = 0;
                metrics::pruned("dead_letters", gone.letters);
                dead_letters::open_dropped(gone.open);
                if gone.open > 0 {
                    tracing::warn!(
                        since = %gone.since, until = %gone.until, letters = gone.letters, open = gone.open,
                        "dropped a day of dead letters that had been kept long enough; nobody had dealt with the open ones"
                    );
                } else {
                    tracing::info!(
                        since = %gone.since, until = %gone.until, letters = gone.letters,
                        "dropped a day of dead letters that had been kept long enough"
                    );
                }
            }
            Err(StoreError::Busy(why)) => {
                tries += 1;
                if tries == TRIES {
                    tracing::info!(why, "the archive is busy; an old day of it is dropped next time");
                    return Ok(());
                }
                sleep(Duration::from_millis(200 + rand::random_range(0..800))).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Shows how many are open, by type, for ever.
async fn count(store: &Store) -> Result<Infallible, StoreError> {
    let mut shown: BTreeMap<String, u64> = BTreeMap::new();
    loop {
        // A type of which none is left goes on as zero.
        shown.values_mut().for_each(|open| *open = 0);
        for (task_type, open) in store.dead_letters().open_by_type().await? {
            *shown
                .entry(metrics::task_type_label(task_type.as_deref()))
                .or_default() += open;
        }
        for (label, open) in &shown {
            dead_letters::open(label, *open);
        }
        sleep(COUNT).await;
    }
}
