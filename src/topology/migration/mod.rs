//! How a queue gets other arguments under the same name without losing or doubling a task: which step comes next.
//! Pure: the whole progress is read from what exists on the broker, so whoever runs it again goes on, wherever the
//! last run ended. `broker::migrate` performs the steps.
//!
//! A temporary queue, the *shelter*, stands beside the queue `q` for the time that it can't take messages:
//!
//! ```text
//! source ─▶ q.migrating.in ─┬─ bound to q (the lever) ─────▶ q
//!                           └─ not bound: alternate exchange
//!                              q.migrating.next ───────────▶ q.migrating ─▶ (rejected) q.migrating.back ─▶ q
//! ```
//!
//! The lever is one binding, so no publish falls between and none goes both ways; a message that reaches one queue by
//! several bindings is delivered once, so sources can be moved to `in` and back one by one while it is set.
//!
//! May import: the topology's other values.

mod action;
pub mod ladder;
mod next;
mod scene;
mod settle;

pub use action::{Action, Made, Temporary};
pub use next::{Intent, Known, Next, Refusal, next};
pub use scene::{Link, Scene};
pub use settle::Settle;

use std::collections::HashSet;

use tidegate_core::names::MAX_SHORT_STRING;

use super::{
    Topology,
    live::{Live, LivePolicy},
    objects::{Objects, Queue},
    plan::force,
};

/// End of the names of what a migration makes, without the queue's name.
const SUFFIX: &str = ".migrating";

/// Longest name of a queue that can be migrated, in bytes: the temporary names are longer and AMQP allows 255.
pub const MAX_QUEUE_BYTES: usize = MAX_SHORT_STRING - SUFFIX.len() - ".next".len();

/// The queues with a migration under way: their bindings and arguments are not as wanted on purpose, and whoever adds
/// a binding to one of them doubles tasks.
pub fn under_way(live: &Live) -> Vec<&str> {
    let exchanges = live.exchanges.iter().map(|exchange| exchange.name.as_str());
    let queues = live.queues.iter().map(|queue| queue.name.as_str());
    let mut names: Vec<&str> = exchanges.chain(queues).filter_map(migrating_queue).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// How many exchanges and queues of `wanted` are missing, beside `queue` and others that are being migrated.
pub fn missing_beside(queue: &str, wanted: &Objects, live: &Live) -> usize {
    let moving: HashSet<&str> = under_way(live).into_iter().chain([queue]).collect();
    let exchanges: HashSet<&str> = live.exchanges.iter().map(|e| e.name.as_str()).collect();
    let queues: HashSet<&str> = live.queues.iter().map(|q| q.name.as_str()).collect();
    let exchanges = wanted
        .exchanges
        .iter()
        .filter(|e| !exchanges.contains(e.name.as_str()));
    let queues = wanted
        .queues
        .iter()
        .filter(|q| !queues.contains(q.name.as_str()) && !moving.contains(q.name.as_str()));
    exchanges.count() + queues.count()
}

impl Topology {
    /// The exchange that each queue has only while it is migrated, for whoever can ask by AMQP alone.
    pub fn migration_gates(&self) -> Objects {
        let queues = self.objects().queues;
        let gate = |queue: &Queue| match Temporary::In.object(&queue.name) {
            Made::Exchange(exchange) if exchange.name.len() <= MAX_SHORT_STRING => Some(exchange),
            _ => None,
        };
        let gated = queues
            .iter()
            .filter(|q| !q.arguments.contains_key("x-message-ttl"));
        Objects {
            exchanges: gated.filter_map(gate).collect(),
            ..Objects::default()
        }
    }
}

/// A policy in force for the shelter of `queue`, and what it sets, by which messages there could be dropped or refused.
pub fn unsafe_policy<'a>(queue: &str, live: &'a Live) -> Option<(&'a LivePolicy, &'a str)> {
    let keys = [
        "max-length",
        "max-length-bytes",
        "message-ttl",
        "expires",
        "overflow",
    ];
    let shelter = Temporary::Shelter.of(queue);
    force::of_queue(live, &shelter, "quorum")
        .into_iter()
        .find_map(|policy| {
            let harms = |(key, value): &(&String, &serde_json::Value)| {
                keys.contains(&key.as_str()) && value.as_str() != Some("reject-publish")
            };
            let (key, _) = policy.definition.iter().find(harms)?;
            Some((policy, key.as_str()))
        })
}

/// Whether a queue of this name holds what waits during a migration.
pub fn is_shelter(queue: &str) -> bool {
    queue.ends_with(SUFFIX)
}

/// The queue that a temporary object belongs to.
pub fn migrating_queue(name: &str) -> Option<&str> {
    [".in", ".next", ".back", ".lock", ""]
        .iter()
        .find_map(|end| name.strip_suffix(end)?.strip_suffix(SUFFIX))
        .filter(|queue| !queue.is_empty())
}
