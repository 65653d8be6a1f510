//! What exists on the broker, as values: the other side of a plan.
//!
//! `broker::management` fills it; everything that decides on it is pure. May import: `core`.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde_json::Value;
use tidegate_core::ladder::Destination;

/// Arguments by name, as the broker shows them.
pub type Arguments = BTreeMap<String, Value>;

/// One virtual host as it was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Live {
    /// The broker's version.
    pub version: Version,
    /// Name of the broker's cluster; one node is a cluster too.
    pub cluster: String,
    /// Exchanges, those of the broker itself (`amq.*` and the default one) left out.
    pub exchanges: Vec<LiveExchange>,
    /// Queues.
    pub queues: Vec<LiveQueue>,
    /// Bindings, those of the default exchange left out.
    pub bindings: Vec<LiveBinding>,
    /// Policies and operator policies.
    pub policies: Vec<LivePolicy>,
    /// Queue type of declarations that name none, where the virtual host sets one.
    pub default_queue_type: Option<String>,
    /// Names of the feature flags that are enabled.
    pub feature_flags: Vec<String>,
    /// Names of the feature flags that this version knows and that are not enabled.
    pub disabled_feature_flags: Vec<String>,
    /// What could not be read, and why; a plan says so instead of claiming that nothing differs.
    pub unread: Vec<Unread>,
}

/// An exchange on the broker.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveExchange {
    /// Name.
    pub name: String,
    /// Type, e.g. `topic`.
    pub kind: String,
    /// Survives a restart.
    pub durable: bool,
    /// Goes with its last binding.
    pub auto_delete: bool,
    /// Takes no publishes of clients.
    pub internal: bool,
    /// Arguments it was declared with.
    pub arguments: Arguments,
}

/// A queue on the broker.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveQueue {
    /// Name.
    pub name: String,
    /// Type: `quorum`, `classic`, `stream`.
    pub kind: String,
    /// Survives a restart.
    pub durable: bool,
    /// Goes with its last consumer.
    pub auto_delete: bool,
    /// Belongs to one connection and goes with it.
    pub exclusive: bool,
    /// Arguments it was declared with.
    pub arguments: Arguments,
    /// Name of the policy in force, where the broker said so.
    pub policy: Option<String>,
    /// Ready and unacknowledged; may be some seconds old.
    pub messages: Option<u64>,
    /// Consumers, where the broker said so; may be some seconds old.
    pub consumers: Option<u64>,
    /// State, e.g. `running`, `down`, `minority`.
    pub state: Option<String>,
}

/// A binding on the broker; its source is always a named exchange.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveBinding {
    /// Exchange bound from.
    pub source: String,
    /// What is bound.
    pub destination: Destination,
    /// Routing key or pattern.
    pub pattern: String,
    /// Arguments.
    pub arguments: Arguments,
}

/// A policy or operator policy on the broker.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LivePolicy {
    /// Name.
    pub name: String,
    /// Regular expression that names must match.
    pub pattern: String,
    /// `queues`, `quorum_queues`, `classic_queues`, `streams`, `exchanges` or `all`.
    pub apply_to: String,
    /// Of several that match, the highest is in force.
    pub priority: i64,
    /// What it sets.
    pub definition: Arguments,
    /// Set by the operator: merged over the other one, and limits what it may do.
    pub operator: bool,
}

/// A part of the broker that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// Which part, e.g. `operator policies`.
    pub what: String,
    /// Why, and what would change it.
    pub why: String,
}

/// A version of the broker, e.g. 3.10.8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
    /// Third number.
    pub patch: u32,
}

impl Version {
    /// A version by its numbers.
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self { major, minor, patch }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// A text that is no version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a version such as 3.10.8")]
pub struct NoVersion(String);

impl FromStr for Version {
    type Err = NoVersion;

    /// Reads `3.10.8`, and of `4.3.0-rc.1+x` the numbers.
    fn from_str(text: &str) -> Result<Self, NoVersion> {
        let numbers = text.split(['-', '+', '~']).next().unwrap_or_default();
        let mut parts = numbers.split('.').map(str::parse);
        let mut next = || {
            parts
                .next()
                .unwrap_or(Ok(0))
                .map_err(|_| NoVersion(text.to_owned()))
        };
        Ok(Self::new(next()?, next()?, next()?))
    }
}

impl Live {
    /// The queue of this name.
    pub fn queue(&self, name: &str) -> Option<&LiveQueue> {
        self.queues.iter().find(|queue| queue.name == name)
    }

    /// The exchange of this name.
    pub fn exchange(&self, name: &str) -> Option<&LiveExchange> {
        self.exchanges.iter().find(|exchange| exchange.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_number() {
        let read = |text: &str| text.parse::<Version>().unwrap();
        assert_eq!(read("3.10.8"), Version::new(3, 10, 8));
        assert_eq!(read("4.3.0-rc.1"), Version::new(4, 3, 0));
        assert_eq!(read("4.0.5+deb13u1"), Version::new(4, 0, 5));
        assert!(read("3.9.29") < read("3.10.8"));
        assert!("".parse::<Version>().is_err() && "x.1".parse::<Version>().is_err());
        assert_eq!(read("4.3").to_string(), "4.3.0");
    }
}
