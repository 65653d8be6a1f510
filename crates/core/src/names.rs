//! What each object on the broker is called, from one prefix.
//!
//! Queue arguments are forever, so a name whose arguments may change carries a generation (`v1` of the ladder).

use std::{fmt, ops::RangeInclusive};

/// Generations that a ladder can have. One digit, so that a name is as long in each.
pub const LADDER_VERSIONS: RangeInclusive<u8> = 1..=9;

/// Longest name or routing key that AMQP 0-9-1 can carry, in bytes.
pub const MAX_SHORT_STRING: usize = 255;

/// The names of all platform objects under one prefix (default `task`) and with one generation of the ladder
/// (default 1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    prefix: String,
    ladder_version: u8,
}

/// Why a text can't be the prefix of the platform's names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("prefix {0:?}: use 1 to 32 of a-z, 0-9, '-' and '_', starting with a letter")]
pub struct InvalidPrefix(String);

impl Default for Names {
    fn default() -> Self {
        Self {
            prefix: "task".to_owned(),
            ladder_version: *LADDER_VERSIONS.start(),
        }
    }
}

impl Names {
    /// Names under `prefix`: 1 to 32 of `a-z 0-9 - _`, starting with a letter. The ladder has generation 1.
    pub fn new(prefix: &str) -> Result<Self, InvalidPrefix> {
        let valid = (1..=32).contains(&prefix.len())
            && prefix.starts_with(|c: char| c.is_ascii_lowercase())
            && prefix
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_');
        if valid {
            Ok(Self {
                prefix: prefix.to_owned(),
                ..Self::default()
            })
        } else {
            Err(InvalidPrefix(prefix.to_owned()))
        }
    }

    /// The same names with the ladder's generation `version`, one of [`LADDER_VERSIONS`]: the one to publish to, or an
    /// older one whose delays are still pending.
    #[must_use]
    pub fn for_ladder(&self, version: u8) -> Self {
        Self {
            prefix: self.prefix.clone(),
            ladder_version: version,
        }
    }

    /// The ladder's generation.
    pub fn ladder_version(&self) -> u8 {
        self.ladder_version
    }

    /// The prefix itself.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Where producers publish: a topic exchange whose alternate exchange is [`unrouted`](Self::unrouted).
    pub fn exchange(&self) -> String {
        self.with("exchange")
    }

    /// Where tasks of high priority are published; each queue without a high lane is bound here too.
    pub fn exchange_high(&self) -> String {
        self.with("exchange.high")
    }

    /// What business queues dead-letter into; the router reads its queue.
    pub fn failed(&self) -> String {
        self.with("failed")
    }

    /// Where producers publish that want a delay by header or by `scheduleTime`; the router reads its queue.
    pub fn ingress(&self) -> String {
        self.with("ingress")
    }

    /// What no binding took.
    pub fn unrouted(&self) -> String {
        self.with("unrouted")
    }

    /// Final failures.
    pub fn dead(&self) -> String {
        self.with("dead")
    }

    /// The queue behind one of the platform's own exchanges: `task.failed` → `task.failed.queue`.
    pub fn queue_of(exchange: &str) -> String {
        format!("{exchange}.queue")
    }

    /// Entry exchange of a ladder level.
    pub fn ladder_exchange(&self, level: u8) -> String {
        self.ladder(level)
    }

    /// Delay queue of a ladder level and digit (1 to 15, written in hexadecimal).
    pub fn ladder_queue(&self, level: u8, digit: u8) -> String {
        self.ladder(format_args!("{level}.{digit:x}"))
    }

    /// The end of the ladder.
    pub fn ladder_due(&self) -> String {
        self.ladder("due")
    }

    /// Exchange and queue of a fixed delay, e.g. `task.delay.30m`.
    pub fn fixed_delay(&self, name: &str) -> String {
        self.with(format_args!("delay.{name}"))
    }

    /// The policy that holds a business queue's consumer timeout.
    pub fn consumer_timeout(&self, queue: &str) -> String {
        self.with(format_args!("consumer-timeout.{queue}"))
    }

    /// The high lane of a business queue.
    pub fn high_lane(queue: &str) -> String {
        format!("{queue}.high")
    }

    fn ladder(&self, rest: impl fmt::Display) -> String {
        self.with(format_args!("delay.v{}.{rest}", self.ladder_version))
    }

    fn with(&self, rest: impl fmt::Display) -> String {
        format!("{}.{rest}", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_design() {
        let names = Names::default();
        assert_eq!(names.exchange(), "task.exchange");
        assert_eq!(names.exchange_high(), "task.exchange.high");
        assert_eq!(names.ladder_exchange(6), "task.delay.v1.6");
        assert_eq!(names.ladder_queue(3, 10), "task.delay.v1.3.a");
        assert_eq!(names.ladder_due(), "task.delay.v1.due");
        assert_eq!(names.fixed_delay("30m"), "task.delay.30m");
        assert_eq!(Names::queue_of(&names.dead()), "task.dead.queue");
        assert_eq!(Names::high_lane("order.close.queue"), "order.close.queue.high");
    }

    #[test]
    fn a_generation_is_in_the_ladders_names_and_in_no_other() {
        let (first, second) = (Names::default(), Names::default().for_ladder(2));
        assert_eq!((first.ladder_version(), second.ladder_version()), (1, 2));
        assert_eq!(second.ladder_exchange(6), "task.delay.v2.6");
        assert_eq!(second.ladder_queue(3, 10), "task.delay.v2.3.a");
        assert_eq!(second.ladder_due(), "task.delay.v2.due");
        assert_eq!(second.fixed_delay("30m"), first.fixed_delay("30m"));
        assert_eq!(second.dead(), first.dead());
        assert_eq!(second.for_ladder(1), first);
    }

    #[test]
    fn prefixes_that_would_break_patterns_are_refused() {
        for bad in ["", "Task", "a.b", "a*", "#", "1a", &"a".repeat(33)] {
            assert!(Names::new(bad).is_err(), "{bad:?}");
        }
        assert_eq!(Names::new("orders-eu").unwrap().exchange(), "orders-eu.exchange");
    }
}
