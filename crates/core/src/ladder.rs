//! The delay ladder, radix 16.

use std::time::Duration;

use crate::names::Names;

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
    #[error("delay too long")]
    TooLong,
    /// The routing key would pass 255 bytes.
    #[error("key too long")]
    KeyTooLong,
}

/// Where to publish so that a message reaches `target` no earlier than `delay` from now.
pub fn route(_names: &Names, _delay: Duration, _target: &Target) -> Result<Route, LadderError> {
    unimplemented!()
}
