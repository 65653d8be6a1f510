//! Does each route deliver? Which probes say so, where each must come out, and what is broken if it does not. Pure.
//!
//! What is expected comes from the topology, what is copied into the throw-away virtual host from the broker: so a probe that
//! doesn't come out means that the broker as it is does not deliver. `broker::verify` copies and sends.
//!
//! May import: `core`, the topology's own values.

mod copy;
mod hop;
mod judge;
mod keys;
mod probes;

pub use copy::{CopiedQueue, Copy};
pub use hop::Hop;
pub use judge::{Arrival, Broken, Death, Report, Sent, judge, missing};
pub use keys::keys;

use std::collections::BTreeMap;

use super::{live::Live, model::Topology};

/// Business queues that exist at once in the throw-away virtual host: each is a Raft group that the broker has to start.
pub const BATCH: usize = 200;

/// The queue in which probes end that no business queue may see.
pub const PROBE_QUEUE: &str = "tidegate.verify";
/// The key under which that queue is bound to the platform's exchange.
pub const PROBE_KEY: &str = "tidegate.verify";
/// A key that nobody binds.
pub const UNROUTABLE_KEY: &str = "tidegate.verify.bound.by.nobody";

/// Bytes of a probe's body.
pub const BODY_BYTES: usize = 64;

/// One message that is sent, and where it must come out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Probe {
    /// Which route it is sent for, as a report names it: `a rejected message of order.close.queue`.
    pub what: String,
    /// Exchange it is published to; empty for a queue by name.
    pub exchange: String,
    /// Routing key it is published with.
    pub key: String,
    /// Whether it is sent before anything is consumed, and waits in its queue.
    pub waits: bool,
    /// How many are sent.
    pub copies: u32,
    /// The queue whose consumer rejects it.
    pub reject_in: Option<String>,
    /// The hops it takes, in order.
    pub path: Vec<Hop>,
    /// The queue in which it must come out.
    pub end: String,
    /// The routing key with which it must come out.
    pub end_key: String,
}

impl Probe {
    /// The delay queues that it passes, in order.
    fn delays(&self) -> Vec<&str> {
        self.path
            .iter()
            .filter_map(|hop| match hop {
                Hop::Expires { queue, .. } => Some(queue.as_str()),
                _ => None,
            })
            .collect()
    }
}

/// Queues that exist together, and what is sent then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Business queues and their high lanes.
    pub queues: Vec<String>,
    /// What is sent. Positions are the probes' numbers.
    pub probes: Vec<Probe>,
}

/// Everything that verification does.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// What is made before the first batch.
    pub copy: Copy,
    /// The batches, one after the other. The first also holds the platform's own routes.
    pub batches: Vec<Batch>,
    /// What is not verified, and why.
    pub notes: Vec<String>,
}

impl Plan {
    /// What to do on the broker that `live` was read from.
    pub fn new(topology: &Topology, live: &Live) -> Self {
        let mut copy = Copy::new(topology, live);
        let mut notes = std::mem::take(&mut copy.notes);
        for unread in &live.unread {
            if unread.what.contains("policies") {
                notes.push(format!("{} are not part of it: {}", unread.what, unread.why));
            }
        }
        let copies = if copy.limits_length() {
            copy::PAST_LENGTH
        } else {
            1
        };
        let mut by_queue: BTreeMap<&str, Vec<Probe>> = BTreeMap::new();
        let all = probes::business(topology, copies);
        let mut names = Vec::new();
        for (queue, probes) in &all {
            names.push(queue.as_str());
            by_queue.insert(queue, probes.clone());
        }
        let mut batches: Vec<Batch> = names
            .chunks(BATCH)
            .map(|queues| Batch {
                queues: queues.iter().map(|name| (*name).to_owned()).collect(),
                probes: queues
                    .iter()
                    .filter_map(|name| by_queue.remove(name))
                    .flatten()
                    .collect(),
            })
            .collect();
        if batches.is_empty() {
            batches.push(Batch::default());
        }
        let platform = probes::platform(topology, copies, &mut notes);
        if let Some(first) = batches.first_mut() {
            first.probes.splice(0..0, platform);
        }
        Self { copy, batches, notes }
    }

    /// What was read, and what verification adds of its own: what a batch is judged by.
    pub fn live(&self) -> &Live {
        &self.copy.live
    }

    /// How many probes there are.
    pub fn probes(&self) -> usize {
        self.batches.iter().map(|batch| batch.probes.len()).sum()
    }
}

#[cfg(test)]
mod tests;
