//! A hop of a route: from one object to the next, and what stands in its way.

use std::fmt;

use serde_json::Value;
use tidegate_core::ladder::Destination;

use crate::topology::{
    live::{Live, LivePolicy, LiveQueue},
    plan::force::Policies,
};

const APPLY: &str = "run `tidegate topology apply`";

/// One step of a probe on its way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hop {
    /// Into a queue by its name.
    Named {
        /// The queue.
        queue: String,
    },
    /// Along a binding to a queue.
    Bound {
        /// Exchange.
        exchange: String,
        /// Queue.
        queue: String,
        /// Pattern.
        pattern: String,
    },
    /// Along a binding to an exchange.
    Linked {
        /// Exchange bound from.
        exchange: String,
        /// Exchange bound.
        to: String,
        /// Pattern.
        pattern: String,
    },
    /// Along an exchange's alternate exchange.
    Alternate {
        /// Exchange.
        exchange: String,
        /// Its alternate.
        to: String,
    },
    /// Rejected by a consumer, into the queue's dead-letter exchange.
    Rejected {
        /// Queue.
        queue: String,
        /// Its dead-letter exchange.
        to: String,
    },
    /// Expired, into the queue's dead-letter exchange.
    Expires {
        /// Queue.
        queue: String,
        /// Its dead-letter exchange.
        to: String,
    },
    /// Waits in a queue for a consumer.
    Waits {
        /// Queue.
        queue: String,
    },
}

/// What stands in the way of a hop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) why: String,
    pub(super) next: String,
}

impl Fault {
    fn new(why: impl Into<String>, next: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            next: next.into(),
        }
    }
}

impl Hop {
    /// What of `live` stands in its way, as far as that can be seen without sending anything.
    pub(super) fn fault(&self, live: &Live) -> Option<Fault> {
        match self {
            Self::Named { queue } => no_queue(live, queue),
            Self::Waits { queue } => no_queue(live, queue).or_else(|| unsafe_to_wait(live, queue)),
            Self::Bound {
                exchange,
                queue,
                pattern,
            } => no_exchange(live, exchange)
                .or_else(|| no_queue(live, queue))
                .or_else(|| no_binding(live, exchange, &Destination::Queue(queue.clone()), pattern)),
            Self::Linked {
                exchange,
                to,
                pattern,
            } => no_exchange(live, exchange)
                .or_else(|| no_exchange(live, to))
                .or_else(|| no_binding(live, exchange, &Destination::Exchange(to.clone()), pattern)),
            Self::Alternate { exchange, to } => no_exchange(live, exchange)
                .or_else(|| no_alternate(live, exchange, to))
                .or_else(|| no_exchange(live, to)),
            Self::Rejected { queue, to } | Self::Expires { queue, to } => no_queue(live, queue)
                .or_else(|| no_dead_letters(live, queue, to))
                .or_else(|| no_exchange(live, to)),
        }
    }
}

impl fmt::Display for Hop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named { queue } | Self::Waits { queue } => f.write_str(queue),
            Self::Bound { exchange, queue, .. } => write!(f, "{exchange} → {queue}"),
            Self::Linked { exchange, to, .. } | Self::Alternate { exchange, to } => {
                write!(f, "{exchange} → {to}")
            }
            Self::Rejected { queue, to } | Self::Expires { queue, to } => write!(f, "{queue} → {to}"),
        }
    }
}

fn no_queue(live: &Live, name: &str) -> Option<Fault> {
    live.queue(name)
        .is_none()
        .then(|| Fault::new(format!("queue {name} does not exist"), APPLY))
}

fn no_exchange(live: &Live, name: &str) -> Option<Fault> {
    match live.exchange(name) {
        None => Some(Fault::new(format!("exchange {name} does not exist"), APPLY)),
        Some(exchange) if exchange.internal => Some(Fault::new(
            format!("exchange {name} is internal: it takes no publishes of clients"),
            "declare it anew: what an exchange was declared with can't change",
        )),
        Some(_) => None,
    }
}

fn no_binding(live: &Live, source: &str, destination: &Destination, pattern: &str) -> Option<Fault> {
    let is = |b: &&crate::topology::live::LiveBinding| {
        b.source == source && b.destination == *destination && b.pattern == pattern
    };
    if live.bindings.iter().any(|b| is(&b)) {
        return None;
    }
    let why = if pattern.is_empty() {
        "no binding".to_owned()
    } else {
        format!("no binding ({pattern})")
    };
    Some(Fault::new(why, APPLY))
}

fn no_alternate(live: &Live, exchange: &str, to: &str) -> Option<Fault> {
    let found = live.exchange(exchange)?.arguments.get("alternate-exchange");
    let next = "`tidegate topology plan` shows it; what an exchange was declared with can't change: delete it and run \
                `tidegate topology apply` while nobody publishes";
    match found.and_then(Value::as_str) {
        Some(other) if other == to => None,
        Some(other) => Some(Fault::new(format!("its alternate exchange is {other}"), next)),
        None => Some(Fault::new("it has no alternate exchange", next)),
    }
}

fn no_dead_letters(live: &Live, queue: &str, to: &str) -> Option<Fault> {
    let found = live.queue(queue)?.arguments.get("x-dead-letter-exchange");
    let next = format!("run `tidegate topology migrate {queue}`");
    match found.and_then(Value::as_str) {
        Some(other) if other == to => None,
        Some(other) => Some(Fault::new(format!("its dead-letter exchange is {other}"), next)),
        None => Some(Fault::new("it has no dead-letter exchange", next)),
    }
}

/// Keys of policies that take messages out of a queue in which they wait.
const TAKE: [&str; 4] = ["message-ttl", "expires", "max-length", "max-length-bytes"];

fn unsafe_to_wait(live: &Live, name: &str) -> Option<Fault> {
    let queue = live.queue(name)?;
    let policies = Policies::new(live);
    let takes = in_force(live, &policies, queue).map(|policy| {
        let sets: Vec<String> = policy
            .definition
            .iter()
            .filter(|(key, _)| TAKE.contains(&key.as_str()) || *key == "overflow")
            .map(|(key, value)| format!("{key}={}", plain(value)))
            .collect();
        (policy, sets.join(", "))
    });
    let (policy, sets) = takes.into_iter().find(|(_, sets)| !sets.is_empty())?;
    let kind = policy_kind(policy);
    Some(Fault::new(
        format!("what waits in it is lost to {kind} {:?} ({sets})", policy.name),
        format!(
            "remove {kind} {:?}, or narrow its pattern {:?}",
            policy.name, policy.pattern
        ),
    ))
}

/// What a policy is called.
pub(super) fn policy_kind(policy: &LivePolicy) -> &'static str {
    if policy.operator {
        "operator policy"
    } else {
        "policy"
    }
}

/// The policy in force on a queue, of which the broker says the name, and the operator policy, of which it doesn't.
pub(super) fn in_force<'a>(
    live: &'a Live,
    policies: &Policies<'a>,
    queue: &'a LiveQueue,
) -> impl Iterator<Item = &'a LivePolicy> + use<'a> {
    let named = queue.policy.as_deref();
    let own = live.policies.iter();
    own.filter(move |policy| !policy.operator && named == Some(policy.name.as_str()))
        .chain(policies.of_queue(&queue.name, &queue.kind).operator)
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
