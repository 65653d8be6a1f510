//! How often, and after how long, a failed task is tried again.
//!
//! Imports only the ladder, whose reach bounds every delay.

use std::time::Duration;

use crate::ladder;

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
    /// Longest delay, before jitter.
    pub max: Duration,
    /// Share of the delay that is random, 0 to 1: `0.2` means ±20 %.
    pub jitter: f64,
}

/// Why a policy can't be used. Each names the key as it stands in a topology file.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PolicyError {
    /// More retries than [`RetryPolicy::MOST_RETRIES`].
    #[error("max_retries = {0}: at most {most}", most = RetryPolicy::MOST_RETRIES)]
    TooManyRetries(u32),
    /// The cap is below the default, or above [`RetryPolicy::MOST_RETRIES`].
    #[error(
        "max_retries_cap = {cap}: must lie between max_retries ({max_retries}) and {}",
        RetryPolicy::MOST_RETRIES
    )]
    Cap {
        /// The cap given.
        cap: u32,
        /// The retries it must not undercut.
        max_retries: u32,
    },
    /// A first delay of nothing would be a retry storm.
    #[error("initial = {0:?}: at least 1ms")]
    InitialTooShort(Duration),
    /// The delays would shrink.
    #[error("initial = {initial:?} is longer than max = {max:?}: raise max or lower initial")]
    InitialAboveMax {
        /// First delay.
        initial: Duration,
        /// Longest delay.
        max: Duration,
    },
    /// Longer than the ladder reaches.
    #[error("max = {0:?}: the ladder reaches {reach:?} (99 days)", reach = ladder::MAX_DELAY)]
    MaxTooLong(Duration),
    /// Below 1, infinite or no number.
    #[error("multiplier = {0}: a finite number from 1 up")]
    Multiplier(f64),
    /// Outside 0 to 1.
    #[error("jitter = {0}: a number from 0 to 1; 0.2 means ±20 %")]
    Jitter(f64),
}

impl RetryPolicy {
    /// Most retries that any policy may allow.
    pub const MOST_RETRIES: u32 = 1000;

    /// Shortest delay that [`backoff`](Self::backoff) gives.
    pub const SHORTEST_DELAY: Duration = Duration::from_millis(1);

    /// The policy of a queue that states none: 3 retries (an envelope may ask for up to 25), after 1 s, 2 s and
    /// 4 s, never more than 10 minutes, each ±20 %.
    pub const fn standard() -> Self {
        Self {
            max_retries: 3,
            max_retries_cap: 25,
            initial: Duration::from_secs(1),
            multiplier: 2.0,
            max: Duration::from_secs(600),
            jitter: 0.2,
        }
    }

    /// Whether the policy makes sense, and if not, which key to change.
    pub fn validate(&self) -> Result<(), PolicyError> {
        if self.max_retries > Self::MOST_RETRIES {
            return Err(PolicyError::TooManyRetries(self.max_retries));
        }
        if !(self.max_retries..=Self::MOST_RETRIES).contains(&self.max_retries_cap) {
            return Err(PolicyError::Cap {
                cap: self.max_retries_cap,
                max_retries: self.max_retries,
            });
        }
        if self.initial < Self::SHORTEST_DELAY {
            return Err(PolicyError::InitialTooShort(self.initial));
        }
        if self.max > ladder::MAX_DELAY {
            return Err(PolicyError::MaxTooLong(self.max));
        }
        if self.initial > self.max {
            return Err(PolicyError::InitialAboveMax {
                initial: self.initial,
                max: self.max,
            });
        }
        if !(self.multiplier.is_finite() && self.multiplier >= 1.0) {
            return Err(PolicyError::Multiplier(self.multiplier));
        }
        if !(0.0..=1.0).contains(&self.jitter) {
            return Err(PolicyError::Jitter(self.jitter));
        }
        Ok(())
    }

    /// Retries allowed to a task whose envelope asks for `envelope_override`: fewer as it likes, more up to the
    /// cap.
    pub fn allowed_retries(&self, envelope_override: Option<u32>) -> u32 {
        envelope_override
            .unwrap_or(self.max_retries)
            .min(self.max_retries_cap)
    }

    /// Delay before retry `retry_no` (1 for the first) with a random sample in `0.0..1.0`.
    ///
    /// Grows by `multiplier` up to `max`, then stays there; jitter moves it by at most its share. It is never zero
    /// and never beyond the ladder, whatever the number: an overflow here would be a retry storm.
    pub fn backoff(&self, retry_no: u32, jitter_sample: f64) -> Duration {
        let max = self.max.min(ladder::MAX_DELAY);
        // Floats go to infinity where integers wrap, and `min` takes the other side of a NaN.
        let grown = self.initial.as_secs_f64() * self.multiplier.powf(f64::from(retry_no.saturating_sub(1)));
        let base = grown.min(max.as_secs_f64());
        let spread = self.jitter * (2.0 * jitter_sample - 1.0);
        let spread = if spread.is_finite() {
            spread.clamp(-1.0, 1.0)
        } else {
            0.0
        };
        Duration::try_from_secs_f64(base * (1.0 + spread))
            .unwrap_or(max)
            .clamp(Self::SHORTEST_DELAY, ladder::MAX_DELAY)
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::standard()
    }
}
