//! Keeps a background loop alive: a role that fails or panics is restarted with back-off, and readiness is red
//! until it runs again.
//!
//! May import: `telemetry`. A loop that returns `Ok` before it was told to stop counts as failed.

use std::{fmt::Display, future::Future, panic::AssertUnwindSafe, time::Duration};

use backon::{BackoffBuilder, ExponentialBuilder};
use futures::FutureExt;
use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::telemetry::{health::Health, metrics};

/// A run that lasted this long was healthy: the next failure starts from the shortest back-off again. Short, so that a
/// database that ends all connections every few seconds delays the work by a tenth of one each time, and not by five.
const HEALTHY_RUN: Duration = Duration::from_secs(1);

/// Waits between the restarts of a loop or the attempts to connect: 100 ms doubling to 5 s, with jitter, for ever.
pub fn backoff() -> impl Iterator<Item = Duration> + Send {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(100))
        .with_max_delay(Duration::from_secs(5))
        .with_jitter()
        .without_max_times()
        .build()
}

/// Runs `role` until `cancel`, restarting it whenever it ends. Never returns an error: what went wrong is logged,
/// counted and shown by readiness.
pub async fn supervise<F, Fut, E>(role: &'static str, health: Health, cancel: CancellationToken, mut run: F)
where
    F: FnMut() -> Fut + Send,
    Fut: Future<Output = Result<(), E>> + Send,
    E: Display,
{
    let mut waits = backoff();
    loop {
        let started = Instant::now();
        let why = match AssertUnwindSafe(run()).catch_unwind().await {
            _ if cancel.is_cancelled() => return,
            Ok(Ok(())) => "ended without being told to".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "panicked".to_owned(),
        };
        tracing::error!(role, error = %why, "background loop ended; restarting");
        health.down(role, &why);
        metrics::role_restarted(role);
        if started.elapsed() > HEALTHY_RUN {
            waits = backoff();
        }
        let wait = waits.next().unwrap_or(Duration::from_secs(5));
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Cancels `stop` at the first SIGTERM or SIGINT, for as long as what it returns lives.
pub fn cancel_on_signal(stop: CancellationToken) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        signal().await;
        stop.cancel();
    }))
}

/// Waits for SIGTERM or SIGINT.
pub async fn signal() {
    use tokio::signal::unix::{SignalKind, signal};
    match (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) {
        (Ok(mut terminate), Ok(mut interrupt)) => {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        }
        (Err(error), _) | (_, Err(error)) => {
            tracing::error!(%error, "signals can't be watched; only a kill stops this process");
            std::future::pending().await
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_fails_panics_or_ends_is_started_again() {
        let (health, cancel, runs) = (Health::default(), CancellationToken::new(), AtomicU32::new(0));
        health.expect("test");
        supervise("test", health.clone(), cancel.clone(), || {
            let (run, cancel, health) = (
                runs.fetch_add(1, Ordering::SeqCst),
                cancel.clone(),
                health.clone(),
            );
            async move {
                match run {
                    0 => Err("no table"),
                    1 => panic!("bug"),
                    2 => Ok(()),
                    _ => {
                        assert!(!health.is_ready(), "red until the loop says it is up");
                        health.up("test");
                        cancel.cancel();
                        Ok(())
                    }
                }
            }
        })
        .await;
        assert_eq!(runs.load(Ordering::SeqCst), 4);
        assert!(health.is_ready());
    }
}
