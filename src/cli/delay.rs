//! A delay as people write it: `30s`, `0.5s`, `500ms`, `1h30m`, `2 days`.
//!
//! May import: nothing of ours. Nothing is wrapped, rounded down or guessed: a number without a unit is refused.

use std::time::Duration;

/// Why a text is no delay.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum DelayError {
    /// Below zero.
    #[error("a delay can't be negative; leave it out, or write 0s, for now")]
    Negative,
    /// A number alone.
    #[error("a delay needs a unit; write {0}s for seconds or {0}ms for milliseconds")]
    NoUnit(String),
    /// Anything else.
    #[error("not a delay; write it like 30s, 0.5s, 500ms, 1h30m or 2d")]
    Malformed,
    /// More than can be counted.
    #[error("the delay is longer than any limit")]
    TooLong,
}

/// Parses `text`. `0s` is now; below a nanosecond is rounded up.
pub(super) fn parse(text: &str) -> Result<Duration, DelayError> {
    let text = text.trim();
    if text.starts_with('-') {
        return Err(DelayError::Negative);
    }
    if text.parse::<f64>().is_ok_and(f64::is_finite) {
        return Err(DelayError::NoUnit(text.to_owned()));
    }
    let mut rest = text;
    let mut nanos: u128 = 0;
    if rest.is_empty() {
        return Err(DelayError::Malformed);
    }
    while !rest.is_empty() {
        let (whole, after) = split(rest, |c| c.is_ascii_digit());
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => split(after, |c| c.is_ascii_digit()),
            None => ("0", after),
        };
        let (unit, after) = split(after.trim_start(), |c| c.is_ascii_alphabetic());
        if whole.is_empty() || fraction.is_empty() {
            return Err(DelayError::Malformed);
        }
        let part = of_unit(whole, fraction, unit_nanos(unit)?)?;
        nanos = nanos.checked_add(part).ok_or(DelayError::TooLong)?;
        rest = after.trim_start();
    }
    u64::try_from(nanos)
        .map(Duration::from_nanos)
        .map_err(|_| DelayError::TooLong)
}

fn split(text: &str, belongs: fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !belongs(c)).unwrap_or(text.len()))
}

fn unit_nanos(unit: &str) -> Result<u128, DelayError> {
    const SECOND: u128 = 1_000_000_000;
    Ok(match unit {
        "ms" | "millis" | "millisecond" | "milliseconds" => SECOND / 1_000,
        "s" | "sec" | "secs" | "second" | "seconds" => SECOND,
        "m" | "min" | "mins" | "minute" | "minutes" => 60 * SECOND,
        "h" | "hour" | "hours" => 3_600 * SECOND,
        "d" | "day" | "days" => 86_400 * SECOND,
        "w" | "week" | "weeks" => 7 * 86_400 * SECOND,
        _ => return Err(DelayError::Malformed),
    })
}

fn of_unit(whole: &str, fraction: &str, unit: u128) -> Result<u128, DelayError> {
    let count: u128 = whole.parse().map_err(|_| DelayError::TooLong)?;
    // More digits than these change nothing that a clock could show.
    let fraction = &fraction[..fraction.len().min(18)];
    let scale = 10u128.pow(fraction.len() as u32);
    let part: u128 = fraction.parse().map_err(|_| DelayError::Malformed)?;
    let whole = count.checked_mul(unit).ok_or(DelayError::TooLong)?;
    // Late by under a nanosecond rather than early.
    whole
        .checked_add((part * unit).div_ceil(scale))
        .ok_or(DelayError::TooLong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_meant_is_what_comes_out() {
        for (text, millis) in [
            ("0s", 0),
            ("500ms", 500),
            ("0.5s", 500),
            ("1.5s", 1_500),
            ("30s", 30_000),
            ("60 s", 60_000),
            ("1h30m", 5_400_000),
            ("1h 30m", 5_400_000),
            ("0.5d", 43_200_000),
            ("2147483648ms", 2_147_483_648),
            ("4294967296ms", 4_294_967_296),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(parse("0.0000000001s"), Ok(Duration::from_nanos(1)), "rounded up");
    }

    #[test]
    fn what_is_unclear_is_refused() {
        for text in ["-1s", "-1", "-0.5s"] {
            assert_eq!(parse(text), Err(DelayError::Negative), "{text}");
        }
        for text in ["60", "1.5", "1e30", "0"] {
            assert_eq!(parse(text), Err(DelayError::NoUnit(text.to_owned())), "{text}");
        }
        for text in [
            "", "s", "1.s", ".5s", "1x", "NaN", "inf", "1s;", "1e3s", "一s", "+-1s",
        ] {
            assert_eq!(parse(text), Err(DelayError::Malformed), "{text}");
        }
        for text in ["99999999999999999999999999999999999999999s", "1000000000000d"] {
            assert_eq!(parse(text), Err(DelayError::TooLong), "{text}");
        }
    }
}
