//! Whether a failed try is repeated at once, within the same attempt.
//!
//! Imports only the outcomes. A quick retry is for what heals in an instant; it must not lengthen an attempt beyond its
//! one deadline, nor keep a worker that has been told to stop.

use std::time::Duration;

use crate::dispose::Outcome;

/// What is known when a try has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quick {
    /// Quick retries that the type allows within one attempt.
    pub allowed: u32,
    /// Of those, how many there have been.
    pub used: u32,
    /// The pause before the next.
    pub pause: Duration,
    /// How long the failed try took.
    pub took: Duration,
    /// What is left until the attempt's deadline.
    pub left: Duration,
    /// Whether the worker stops or somebody has asked to cancel the task.
    pub stopping: bool,
}

impl Quick {
    /// Whether to try again: after an error that may heal and names no time to wait, and where another try that takes
    /// as long still fits.
    pub fn again(&self, outcome: Outcome) -> bool {
        outcome == Outcome::Retry { after: None }
            && self.used < self.allowed
            && !self.stopping
            && self.pause.saturating_add(self.took) < self.left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRESH: Quick = Quick {
        allowed: 2,
        used: 0,
        pause: Duration::from_millis(50),
        took: Duration::from_millis(100),
        left: Duration::from_secs(1),
        stopping: false,
    };

    #[test]
    fn only_an_error_that_may_heal_is_tried_again_at_once() {
        assert!(FRESH.again(Outcome::Retry { after: None }));
        for outcome in [
            Outcome::Done,
            Outcome::Retry {
                after: Some(Duration::ZERO),
            },
            Outcome::Reject,
            Outcome::TimedOut,
            Outcome::Panicked,
            Outcome::Interrupted,
            Outcome::ContractViolation,
            Outcome::Canceled,
        ] {
            assert!(!FRESH.again(outcome), "{outcome:?}");
        }
    }

    #[test]
    fn never_too_often_nor_too_late_nor_while_stopping() {
        let failed = Outcome::Retry { after: None };
        for (quick, expected) in [
            (Quick { used: 1, ..FRESH }, true),
            (Quick { used: 2, ..FRESH }, false),
            (Quick { allowed: 0, ..FRESH }, false),
            (
                Quick {
                    stopping: true,
                    ..FRESH
                },
                false,
            ),
            (
                Quick {
                    left: Duration::from_millis(151),
                    ..FRESH
                },
                true,
            ),
            (
                Quick {
                    left: Duration::from_millis(150),
                    ..FRESH
                },
                false,
            ),
            (
                Quick {
                    left: Duration::ZERO,
                    ..FRESH
                },
                false,
            ),
            (
                Quick {
                    pause: Duration::MAX,
                    ..FRESH
                },
                false,
            ),
        ] {
            assert_eq!(quick.again(failed), expected, "{quick:?}");
        }
    }
}
