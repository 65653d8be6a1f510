//! The delay ladder, radix 16: any delay up to [`MAX_DELAY`] from a fixed set of queues.
//!
//! A delay is rounded **up** to [`UNIT`]s and written as seven hexadecimal digits. Each level of the ladder is a
//! topic exchange with one queue per digit 1 to f; a queue holds a message for `digit × 16^level` units and
//! dead-letters it to the level below. A zero digit costs nothing: a binding hands the message straight on. The
//! routing key never changes on the way, so the last exchange, `due`, still knows the target:
//!
//! ```text
//! d6.d5.d4.d3.d2.d1.d0.<target>        2 s = 63 units = 0x3f
//! 0.0.0.0.0.3.f.to.order.close.queue   published to task.delay.v1.1
//! ```
//!
//! Because a message's whole delay is in its key and each queue has one TTL for all, no message waits behind a
//! longer one. This file is pure: it says where to publish and which objects the ladder needs; it imports only
//! the names.

mod delay_text;
mod objects;

use std::time::Duration;

use crate::names::{MAX_SHORT_STRING, Names};

pub use delay_text::{DelayError, parse_delay_ms};
pub use objects::{
    Destination, LadderBinding, LadderExchange, LadderQueue, Objects, due_pattern_for_high,
    due_pattern_for_key, due_pattern_for_queue, objects,
};

/// The ladder's resolution: a message is late by less than this, and never early.
pub const UNIT: Duration = Duration::from_millis(UNIT_MS);

/// Digits run from 0 to `RADIX - 1`.
pub const RADIX: u64 = 16;

/// Number of levels, and so of digits; level 0 counts single units.
pub const LEVELS: u8 = 7;

/// The longest delay: 8,589,934,560 ms, a little over 99 days and 10 hours.
pub const MAX_DELAY: Duration = Duration::from_millis(MAX_UNITS * UNIT_MS);

const UNIT_MS: u64 = 32;
const MAX_UNITS: u64 = RADIX.pow(LEVELS as u32) - 1;
/// Seven digits, each with its dot.
const DIGITS_BYTES: usize = 2 * LEVELS as usize;

const TO: &str = "to.";
const KEY: &str = "key.";
const HIGH: &str = "high.";

/// Longest queue name that a ladder key can carry, in bytes.
pub const fn max_queue_bytes() -> usize {
    MAX_SHORT_STRING - DIGITS_BYTES - TO.len()
}

/// Longest routing key, or binding pattern, that a ladder key can carry for `task.exchange`, in bytes.
pub const fn max_key_bytes() -> usize {
    MAX_SHORT_STRING - DIGITS_BYTES - KEY.len()
}

/// Longest routing key, or binding pattern, that a ladder key can carry for `task.exchange.high`, in bytes.
pub const fn max_high_key_bytes() -> usize {
    MAX_SHORT_STRING - DIGITS_BYTES - HIGH.len()
}

/// Where a message goes after its delay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Back to exactly one queue: `to.<queue>`.
    Queue(String),
    /// On as if published to `task.exchange` then: `key.<routing key>`.
    Key(String),
    /// On as if published to `task.exchange.high` then: `high.<routing key>`.
    HighKey(String),
}

impl Target {
    fn parts(&self) -> (&'static str, &str) {
        match self {
            Self::Queue(queue) => (TO, queue),
            Self::Key(key) => (KEY, key),
            Self::HighKey(key) => (HIGH, key),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        if let Some(queue) = text.strip_prefix(TO) {
            Some(Self::Queue(queue.to_owned()))
        } else if let Some(key) = text.strip_prefix(KEY) {
            Some(Self::Key(key.to_owned()))
        } else {
            text.strip_prefix(HIGH).map(|key| Self::HighKey(key.to_owned()))
        }
    }
}

/// Where to publish a message so that it arrives after its delay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Exchange to publish to.
    pub exchange: String,
    /// Routing key to publish with.
    pub routing_key: String,
}

/// Why a delay can't be written as a ladder key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LadderError {
    /// Longer than the ladder reaches.
    #[error(
        "delay of {asked:?} is longer than the ladder's {max:?} (99 days): keep it in the ledger (HTTP, SQL or cron) instead"
    )]
    TooLong {
        /// The delay asked for.
        asked: Duration,
        /// The longest there is, [`MAX_DELAY`].
        max: Duration,
    },
    /// The routing key would pass what AMQP can carry.
    #[error(
        "ladder key for {name:?} would have {bytes} bytes, AMQP allows {max}: shorten the name to {max_name} bytes"
    )]
    KeyTooLong {
        /// The queue or routing key that is too long.
        name: String,
        /// Length of the whole ladder key.
        bytes: usize,
        /// Most bytes of a routing key, 255.
        max: usize,
        /// Bytes that `name` fits with, for a routing key in both lanes.
        max_name: usize,
    },
}

/// Where to publish so that a message reaches `target` no earlier than `delay` from now, and less than one
/// [`UNIT`] later (plus the broker's own time).
pub fn route(names: &Names, delay: Duration, target: &Target) -> Result<Route, LadderError> {
    let units = delay.as_nanos().div_ceil(UNIT.as_nanos());
    let too_long = LadderError::TooLong {
        asked: delay,
        max: MAX_DELAY,
    };
    let units = u64::try_from(units).map_err(|_| too_long.clone())?;
    if units > MAX_UNITS {
        return Err(too_long);
    }
    let (prefix, name) = target.parts();
    let bytes = DIGITS_BYTES + prefix.len() + name.len();
    if bytes > MAX_SHORT_STRING {
        return Err(LadderError::KeyTooLong {
            name: name.to_owned(),
            bytes,
            max: MAX_SHORT_STRING,
            max_name: match target {
                Target::Queue(_) => max_queue_bytes(),
                // One number for both lanes: what fits the high lane fits the normal one too.
                Target::Key(_) | Target::HighKey(_) => max_high_key_bytes(),
            },
        });
    }
    let mut routing_key = String::with_capacity(bytes);
    let mut highest = None;
    for level in (0..LEVELS).rev() {
        let digit = digit(units, level);
        if digit != 0 && highest.is_none() {
            highest = Some(level);
        }
        routing_key.extend(char::from_digit(digit, 16));
        routing_key.push('.');
    }
    routing_key.push_str(prefix);
    routing_key.push_str(name);
    let exchange = highest.map_or_else(|| names.ladder_due(), |level| names.ladder_exchange(level));
    Ok(Route {
        exchange,
        routing_key,
    })
}

/// The delay and target that a ladder key was made of; `None` if it isn't one.
///
/// The delay is the rounded one. Digits are lower-case, as [`route`] writes them: others match no binding.
pub fn parse_key(key: &str) -> Option<(Duration, Target)> {
    let mut rest = key;
    let mut units = 0;
    for _ in 0..LEVELS {
        let (word, tail) = rest.split_once('.')?;
        let &[byte @ (b'0'..=b'9' | b'a'..=b'f')] = word.as_bytes() else {
            return None;
        };
        units = units * RADIX + u64::from(char::from(byte).to_digit(16)?);
        rest = tail;
    }
    Some((Duration::from_millis(units * UNIT_MS), Target::parse(rest)?))
}

fn digit(units: u64, level: u8) -> u32 {
    ((units / RADIX.pow(level.into())) % RADIX) as u32
}
