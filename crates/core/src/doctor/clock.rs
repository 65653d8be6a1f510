//! Whether two clocks differ by more than measuring can explain.
//!
//! The other clock was read at some moment between a question and its answer, and may tell whole seconds only. So a
//! difference is an interval, and only what is beyond it on one side is told.
//!
//! Imports the findings. Instants are milliseconds since 1970.

use super::{Cause, Finding, Part, Severity};

/// From here on a difference is told: instants become delays by the clock of whoever computes them.
pub const NOTICED_MS: i64 = 1_000;
/// From here on it is an error: tasks with a `scheduleTime` start visibly early or late.
pub const WRONG_MS: i64 = 30_000;

/// A reading of another clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Our clock before asking.
    pub before_ms: i64,
    /// The other clock.
    pub there_ms: i64,
    /// Our clock after the answer.
    pub after_ms: i64,
    /// What the other clock leaves out: 1000 if it tells whole seconds.
    pub resolution_ms: i64,
}

impl Reading {
    /// How far the other clock is ahead of ours, at least and at most; negative if it is behind.
    pub fn ahead_ms(self) -> (i64, i64) {
        (
            self.there_ms.saturating_sub(self.after_ms),
            self.there_ms
                .saturating_add(self.resolution_ms)
                .saturating_sub(self.before_ms),
        )
    }

    /// The smallest difference that explains the reading; 0 if equal clocks do.
    pub fn difference_ms(self) -> i64 {
        let (least, most) = self.ahead_ms();
        if least > 0 {
            least
        } else if most < 0 {
            most
        } else {
            0
        }
    }
}

/// What to say of the clock of `whose` (`the database`).
pub fn difference(part: Part, whose: &str, reading: Reading, place: &str) -> Finding {
    let ahead = reading.difference_ms();
    let found = |what: String| Finding::ok(part, "clock", what, place);
    if ahead.saturating_abs() < NOTICED_MS {
        return found(format!("the clocks of this machine and of {whose} agree"));
    }
    let way = if ahead > 0 { "behind" } else { "ahead of" };
    let seconds = ahead.unsigned_abs() as f64 / 1000.0;
    let severity = if ahead.saturating_abs() < WRONG_MS {
        Severity::Warning
    } else {
        Severity::Error(Cause::Wrong)
    };
    found(format!(
        "the clock of this machine is {way} that of {whose} by at least {seconds:.1} s: what it turns from an instant \
         into a delay starts that much {}",
        if ahead > 0 { "late" } else { "early" }
    ))
    .bad(
        severity,
        "let all machines follow one time server (`timedatectl status` shows whether one does)",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(there_ms: i64, resolution_ms: i64) -> Reading {
        Reading {
            before_ms: 100_000,
            there_ms,
            after_ms: 100_200,
            resolution_ms,
        }
    }

    #[test]
    fn only_what_measuring_cannot_explain_is_a_difference() {
        for (there, resolution, expected) in [
            (100_000, 0, 0),
            (100_200, 0, 0),
            (99_000, 1_000, 0),
            (98_900, 1_000, -100),
            (100_300, 0, 100),
            (90_000, 0, -10_000),
            (i64::MIN, 0, i64::MIN),
        ] {
            assert_eq!(reading(there, resolution).difference_ms(), expected, "{there}");
        }
    }

    #[test]
    fn small_is_fine_noticeable_is_a_warning_and_large_an_error() {
        for (there, severity, says) in [
            (100_900, "ok", "agree"),
            (
                101_200,
                "warning",
                "is behind that of the database by at least 1.0 s",
            ),
            (99_000, "warning", "is ahead of that of the database"),
            (129_000, "warning", "28.8 s"),
            (131_000, "error", "30.8 s"),
            (50_000, "error", "50.0 s"),
        ] {
            let found = difference(Part::Database, "the database", reading(there, 0), "db");
            assert_eq!(found.severity.as_str(), severity, "{found:?}");
            assert!(found.what.contains(says), "{found:?}");
        }
    }
}
