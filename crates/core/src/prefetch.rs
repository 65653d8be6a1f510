//! How many deliveries a worker holds: those that run, and those that arrive while the next ones are asked for.
//!
//! By Little's law what has to be on the way is throughput times the time it takes to be refilled. Fewer, and handlers
//! wait for the broker; more, and what waits here could run in another process.

use std::time::Duration;

/// Most deliveries held beyond those that can run.
pub const MOST_AHEAD: u16 = 500;

/// How often a change may come: each costs a subscription.
pub const BETWEEN_CHANGES: Duration = Duration::from_secs(30);

/// Differences up to this are worth no change.
const SMALL: u16 = 4;

/// The prefetch before anything is measured.
pub fn initial(concurrency: usize) -> u16 {
    let concurrency = small(concurrency);
    concurrency.saturating_add(concurrency.min(MOST_AHEAD))
}

/// The prefetch for `concurrency` handlers that take `mean` each, where a place that has become free is taken again
/// after `refill`. Twice what is needed on average, since neither is steady; at least one ahead, at most [`MOST_AHEAD`].
pub fn wanted(concurrency: usize, mean: Duration, refill: Duration) -> u16 {
    let concurrency = small(concurrency);
    let in_refill = f64::from(concurrency) * refill.as_secs_f64() / mean.as_secs_f64().max(1e-9);
    let ahead = (2.0 * in_refill).ceil().clamp(1.0, f64::from(MOST_AHEAD));
    // In range by the line before.
    concurrency.saturating_add(ahead as u16)
}

/// Whether what is held beyond the running ones is off by more than a factor of two.
pub fn is_worth_a_change(concurrency: usize, current: u16, wanted: u16) -> bool {
    let ahead = |prefetch: u16| prefetch.saturating_sub(small(concurrency)).max(1);
    let (current, wanted) = (ahead(current), ahead(wanted));
    current.abs_diff(wanted) > SMALL && (wanted / 2 > current || current / 2 > wanted)
}

/// Zero would mean "no limit" to the broker.
fn small(concurrency: usize) -> u16 {
    u16::try_from(concurrency).unwrap_or(u16::MAX).max(1)
}
