//! How often, and after how long, a failed task is tried again.

use std::time::Duration;

/// Retry policy of a queue. Attempts = `max_retries` + 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryPolicy {
    /// Retries after the first attempt.
    pub max_retries: u32,
    /// Highest `maxRetries` an envelope may ask for.
    pub max_retries_cap: u32,
    /// Delay before the second attempt.
    pub initial: Duration,
    /// Factor from one delay to the next.
    pub multiplier: f64,
    /// Longest delay.
    pub max: Duration,
    /// Share of the delay that is random, 0 to 1: `0.2` means ±20 %.
    pub jitter: f64,
}
