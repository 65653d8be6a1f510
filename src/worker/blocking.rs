//! Blocking work beside a handler: on tokio's blocking pool, with a fence that closes when nobody waits for it.
//!
//! May import: `request`, `telemetry`. A thread can't be stopped from outside. So when the handler's future is dropped
//! (timeout, end of the grace period) the closure runs on, its result goes nowhere, and all it is told is that its fence
//! is closed. Whether it does anything after that is its own decision, so it asks before each effect.

use std::{
    panic::resume_unwind,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};

use super::request::Context;
use crate::telemetry::metrics;

const OPEN: u8 = 0;
/// Nobody waits for the closure.
const CLOSED: u8 = 1;
const ENDED: u8 = 2;

/// Tells blocking work whether its attempt still waits for it; cheap to clone.
#[derive(Clone, Debug)]
pub struct Fence(Arc<AtomicU8>);

impl Fence {
    /// Whether the attempt still waits. Once `false`, it stays so: the task may be running again elsewhere, and what
    /// this closure returns is dropped.
    pub fn is_open(&self) -> bool {
        self.0.load(Ordering::SeqCst) == OPEN
    }
}

/// Held by the future that waits.
struct Waiting(Fence);

impl Drop for Waiting {
    fn drop(&mut self) {
        let state = &self.0.0;
        if state
            .compare_exchange(OPEN, CLOSED, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
        {
            metrics::blocking_outlives(1.0);
        }
    }
}

/// Held by the closure, or by the pool for as long as it hasn't started it.
struct Working(Fence);

impl Drop for Working {
    fn drop(&mut self) {
        if self.0.0.swap(ENDED, Ordering::SeqCst) == CLOSED {
            metrics::blocking_outlives(-1.0);
        }
    }
}

impl Context {
    /// Runs `work` on tokio's blocking pool and waits for it; a panic in it is the handler's.
    ///
    /// Await it in the handler: when the handler is dropped because its time is up, the fence closes. `work` that can't
    /// be interrupted goes on, counted by `tidegate_blocking_outlived`, so let it look at [`Fence::is_open`] between its
    /// steps. `work` that has not started by then never does.
    pub async fn blocking<T, F>(&self, work: F) -> T
    where
        F: FnOnce(&Fence) -> T + Send + 'static,
        T: Send + 'static,
    {
        let fence = Fence(Arc::new(AtomicU8::new(OPEN)));
        let (waiting, working) = (Waiting(fence.clone()), Working(fence));
        let running = tokio::task::spawn_blocking(move || {
            // Dropped last, after the work and by a panic too.
            let working = working;
            working.0.is_open().then(|| work(&working.0))
        });
        let ended = running.await;
        drop(waiting);
        match ended {
            Ok(Some(result)) => result,
            Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
            // The runtime ends, and this future with it.
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }
}
