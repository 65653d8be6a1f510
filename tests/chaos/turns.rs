//! Turns between the tests that would fill the machine alone.
//!
//! A cluster of three brokers, the soak and the torture each use all of two cores for a minute. Beside each other they measure each
//! other: an election that takes a second takes twenty, and a test fails that nothing is wrong with.

use tokio::sync::{Mutex, MutexGuard};

static MACHINE: Mutex<()> = Mutex::const_new(());

/// Waits for the machine; it is this test's until the guard is dropped.
pub(crate) async fn machine() -> MutexGuard<'static, ()> {
    MACHINE.lock().await
}
