//! The server's loop that goes on with runs whose process is dead.
//!
//! May import: `store`, `telemetry`. Any number of instances may run it: a run is taken by one of them, under a new fence. If
//! the process dies, the lease of what it has taken ends, and another instance goes on.

use std::time::Duration;

use futures::{StreamExt, stream::FuturesUnordered};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{
    Replays,
    execute::{Ending, LEASE},
    limited,
    told::ReplayError,
};
use crate::{store::StoreError, telemetry::health::Health};

/// Name of this loop in health and logs.
pub const ROLE: &str = "replays";

/// How often to look for a run that nobody works on.
const LOOK: Duration = Duration::from_secs(5);

/// Most runs that one process goes on with at once: a slow one must not keep the others waiting.
const AT_ONCE: usize = 4;

/// Goes on with abandoned runs until `cancel`; then they are left to the next process, with what they have confirmed written
/// down.
///
/// # Errors
/// The database; runs that were taken are taken again, by any process.
pub async fn run(replays: Replays, health: Health, cancel: CancellationToken) -> Result<(), StoreError> {
    // No run is stopped because this process is: it is let go where it stands.
    let ending = Ending {
        let_go: cancel.clone(),
        ..Ending::default()
    };
    let mut working = FuturesUnordered::new();
    loop {
        let mut found = None;
        if working.len() < AT_ONCE && !cancel.is_cancelled() {
            found = limited(replays.store.dead_letters().adopt_run(&replays.owner, LEASE)).await?;
        }
        health.up(ROLE);
        if let Some(hold) = found {
            let (replays, ending) = (&replays, &ending);
            working.push(Box::pin(
                async move { replays.execute(&hold, ending, &|_| {}).await },
            ));
            continue;
        }
        if cancel.is_cancelled() && working.is_empty() {
            return Ok(());
        }
        tokio::select! {
            Some(ended) = working.next(), if !working.is_empty() => match ended {
                Ok(_) | Err(ReplayError::TakenOver | ReplayError::LetGo) => {}
                Err(ReplayError::Store(error)) => return Err(error),
            },
            () = cancel.cancelled(), if !cancel.is_cancelled() => {}
            () = sleep(LOOK) => {}
        }
    }
}
