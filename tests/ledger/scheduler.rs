//! Claim loops that tests start, stop and kill.

use std::time::Duration;

use tidegate::{
    scheduler::{SchedulerError, claim},
    store::Store,
    telemetry::health::Health,
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A running claim loop; dropped, it is killed where it stands.
pub(crate) struct ClaimLoop {
    task: JoinHandle<Result<(), SchedulerError>>,
    cancel: CancellationToken,
}

impl ClaimLoop {
    pub(crate) fn start(store: &Store) -> Self {
        Self::start_with(store, claim::ClaimSettings::default())
    }

    pub(crate) fn start_with(store: &Store, settings: claim::ClaimSettings) -> Self {
        Self::start_on(store, settings, Health::default())
    }

    pub(crate) fn start_on(store: &Store, settings: claim::ClaimSettings, health: Health) -> Self {
        let cancel = CancellationToken::new();
        let task = tokio::spawn(claim::run(store.clone(), settings, health, cancel.clone()));
        Self { task, cancel }
    }

    /// Stops it as a shutdown does.
    pub(crate) async fn stop(mut self) {
        self.cancel.cancel();
        tokio::time::timeout(Duration::from_secs(5), &mut self.task)
            .await
            .expect("it stops")
            .unwrap()
            .unwrap();
    }
}

impl Drop for ClaimLoop {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One pass over all rows, as a loop makes it.
pub(crate) async fn pass(store: &Store) -> usize {
    claim::pass(store, &claim::ClaimSettings::default(), &Health::default())
        .await
        .unwrap()
}
