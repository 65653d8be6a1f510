//! The ladder's exchanges, queues and bindings as data, for whoever declares or draws them.
//!
//! Queue arguments are forever: a change to any TTL or target here needs a new generation, one of
//! [`LADDER_VERSIONS`](crate::names::LADDER_VERSIONS), in the names.

use super::{HIGH, KEY, LEVELS, RADIX, TO, UNIT_MS};
use crate::names::Names;

/// All objects of one ladder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objects {
    /// One topic exchange per level, highest first, then `due`.
    pub exchanges: Vec<LadderExchange>,
    /// The delay queues, highest level first.
    pub queues: Vec<LadderQueue>,
    /// Bindings between them. What is bound to `due` belongs to the business queues.
    pub bindings: Vec<LadderBinding>,
}

/// A topic exchange of the ladder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LadderExchange {
    /// Its name.
    pub name: String,
    /// Its alternate exchange: only `due` has one, because only there an outside name decides the route.
    pub alternate: Option<String>,
}

/// A delay queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LadderQueue {
    /// Its name.
    pub name: String,
    /// Level, 6 to 0.
    pub level: u8,
    /// Digit, 1 to 15.
    pub digit: u8,
    /// `x-message-ttl` in milliseconds.
    pub ttl_ms: u64,
    /// `x-dead-letter-exchange`: the level below, or `due`. The routing key stays as it is.
    pub dead_letter_exchange: String,
}

/// A binding inside the ladder; its source is always an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LadderBinding {
    /// Exchange bound from.
    pub source: String,
    /// What is bound.
    pub destination: Destination,
    /// Topic pattern.
    pub pattern: String,
}

/// What a ladder binding leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A delay queue: the digit of this level isn't zero.
    Queue(String),
    /// The next exchange: the digit of this level is zero.
    Exchange(String),
}

/// All objects of the ladder under `names`: 8 exchanges, 105 queues, 112 bindings.
pub fn objects(names: &Names) -> Objects {
    let mut objects = Objects {
        exchanges: Vec::new(),
        queues: Vec::new(),
        bindings: Vec::new(),
    };
    for level in (0..LEVELS).rev() {
        let source = names.ladder_exchange(level);
        let below = match level {
            0 => names.ladder_due(),
            _ => names.ladder_exchange(level - 1),
        };
        objects.exchanges.push(LadderExchange {
            name: source.clone(),
            alternate: None,
        });
        objects.bindings.push(LadderBinding {
            source: source.clone(),
            destination: Destination::Exchange(below.clone()),
            pattern: digit_pattern(level, 0),
        });
        for digit in 1..RADIX as u8 {
            let name = names.ladder_queue(level, digit);
            objects.bindings.push(LadderBinding {
                source: source.clone(),
                destination: Destination::Queue(name.clone()),
                pattern: digit_pattern(level, digit),
            });
            let ttl_ms = u64::from(digit) * RADIX.pow(level.into()) * UNIT_MS;
            objects.queues.push(LadderQueue {
                name,
                level,
                digit,
                ttl_ms,
                dead_letter_exchange: below.clone(),
            });
        }
    }
    objects.exchanges.push(LadderExchange {
        name: names.ladder_due(),
        alternate: Some(names.unrouted()),
    });
    objects
}

/// Binding on `due` that returns a delayed message to `queue` and to no other.
///
/// Seven single-word wildcards, not `#`: `#.to.x` would also match a key that ends in `to.x` by chance.
pub fn due_pattern_for_queue(queue: &str) -> String {
    any_digits() + TO + queue
}

/// Binding on `due` that repeats a binding of `pattern` on `task.exchange`.
pub fn due_pattern_for_key(pattern: &str) -> String {
    any_digits() + KEY + pattern
}

/// Binding on `due` that repeats a binding of `pattern` on `task.exchange.high`.
pub fn due_pattern_for_high(pattern: &str) -> String {
    any_digits() + HIGH + pattern
}

fn any_digits() -> String {
    "*.".repeat(LEVELS.into())
}

fn digit_pattern(level: u8, digit: u8) -> String {
    format!("{}{digit:x}.#", "*.".repeat((LEVELS - 1 - level).into()))
}
