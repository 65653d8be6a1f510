//! The delay that a producer writes in the `x-delay` header: whole milliseconds, as text or number.
//!
//! The retired delayed-message plugin read what it could and wrapped the rest, so that a delay beyond 32 bits
//! fired at once. Here a value either means exactly what it says or is refused: whole numbers from 0 to
//! [`MAX_DELAY`](super::MAX_DELAY) and nothing else. A negative value is refused too, because it is more often a
//! wrapped number than a wish for "now"; `0` says now. (An instant in the past, `scheduleTime`, does mean now.)

use std::time::Duration;

use super::MAX_DELAY;

/// Why a text is no delay in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DelayError {
    /// Not a whole number in plain decimal digits.
    #[error("delay {text:?} is not a whole number of milliseconds: send plain digits, e.g. 1500")]
    NotAnInteger {
        /// What was sent, cut to 64 characters.
        text: String,
    },
    /// Below zero.
    #[error("delay {text:?} is negative: send 0 for now, or leave the delay out")]
    Negative {
        /// What was sent, cut to 64 characters.
        text: String,
    },
    /// Above the ladder's limit.
    #[error(
        "delay of {text} ms is above the limit of {} ms (99 days): keep it in the ledger (HTTP, SQL or cron) instead",
        MAX_DELAY.as_millis()
    )]
    TooLong {
        /// What was sent, cut to 64 characters.
        text: String,
    },
}

/// `text` as a delay in milliseconds: ASCII digits only, at most [`MAX_DELAY`]; never wrapped or rounded.
pub fn parse_delay_ms(text: &str) -> Result<Duration, DelayError> {
    let shown = || text.chars().take(64).collect::<String>();
    let digits = |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit());
    if text.strip_prefix('-').is_some_and(digits) {
        return Err(DelayError::Negative { text: shown() });
    }
    if !digits(text) {
        return Err(DelayError::NotAnInteger { text: shown() });
    }
    // All digits, so the only way to fail is to be too large for 64 bits.
    let too_long = || DelayError::TooLong { text: shown() };
    let delay = Duration::from_millis(text.parse::<u64>().map_err(|_| too_long())?);
    if delay > MAX_DELAY {
        Err(too_long())
    } else {
        Ok(delay)
    }
}
