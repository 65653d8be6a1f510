//! What of a live virtual host is made again in the throw-away one, and what differs there: only how long things take.
//!
//! Delay queues hold messages for a moment instead of days. Policies are copied with their times and lengths cut down, so that one
//! that takes waiting messages out of a queue does so while a probe waits there.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use tidegate_core::ladder::{self, Destination};

use super::{PROBE_KEY, PROBE_QUEUE};
use crate::topology::{
    live::{Arguments, Live, LiveBinding, LiveExchange, LivePolicy, LiveQueue},
    model::Topology,
};

/// Time in a delay queue of the copy, in milliseconds.
const DELAY_MS: u64 = 200;
/// `message-ttl` of a copied policy, in milliseconds: over before a waiting probe is fetched.
const POLICY_TTL_MS: u64 = 150;
/// `max-length` of a copied policy.
const POLICY_LENGTH: u64 = 10;
/// `max-length-bytes` of a copied policy; a probe has [`BODY_BYTES`](crate::topology::verify::BODY_BYTES).
const POLICY_LENGTH_BYTES: u64 = 640;
/// Probes that pass both lengths.
pub(super) const PAST_LENGTH: u32 = 12;
/// Most queues of others that are stood in for.
const MAX_STAND_INS: usize = 200;

/// A queue as it is made in the copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopiedQueue {
    /// Name.
    pub name: String,
    /// Arguments, its type among them.
    pub arguments: Arguments,
}

/// What is made in the throw-away virtual host.
#[derive(Clone, Debug, Default)]
pub struct Copy {
    /// Exchanges, as they are.
    pub exchanges: Vec<LiveExchange>,
    /// Policies and operator policies, cut down.
    pub policies: Vec<LivePolicy>,
    /// Queues that are there for the whole time and are consumed: the platform's, and stand-ins for those of others.
    pub ends: Vec<CopiedQueue>,
    /// Delay queues: nobody consumes them.
    pub delays: Vec<CopiedQueue>,
    /// Business queues, by name; they come in batches.
    pub business: BTreeMap<String, CopiedQueue>,
    /// Bindings between what is there for the whole time.
    pub bindings: Vec<LiveBinding>,
    /// Bindings of business queues, by queue.
    pub business_bindings: BTreeMap<String, Vec<LiveBinding>>,
    /// What can't be copied.
    pub(super) notes: Vec<String>,
    /// What was read, and what verification adds of its own.
    pub(super) live: Live,
}

impl Copy {
    pub(super) fn new(topology: &Topology, live: &Live) -> Self {
        let objects = topology.objects();
        let mut copy = Self {
            exchanges: live.exchanges.clone(),
            live: live.clone(),
            ..Self::default()
        };
        let wanted: BTreeSet<&str> = objects.exchanges.iter().map(|e| e.name.as_str()).collect();
        for wanted in &objects.queues {
            let Some(queue) = live.queue(&wanted.name) else {
                continue;
            };
            let copied = copied(queue);
            if topology.queue(&queue.name).is_some() {
                copy.business.insert(queue.name.clone(), copied);
            } else if wanted.arguments.contains_key("x-message-ttl") {
                copy.delays.push(copied);
            } else {
                copy.ends.push(copied);
            }
        }
        copy.stand_in(live, &wanted);
        copy.add_probe_queue(topology);
        copy.sort_bindings();
        copy.policies = live.policies.iter().filter_map(cut_down).collect();
        copy
    }

    /// Whether a policy limits a queue's length.
    pub(super) fn limits_length(&self) -> bool {
        let limits = |p: &LivePolicy| p.definition.keys().any(|key| key.starts_with("max-length"));
        self.policies.iter().any(limits)
    }

    /// Queues of others that take messages from the platform's exchanges: what they take does not reach its alternate exchange.
    fn stand_in(&mut self, live: &Live, wanted: &BTreeSet<&str>) {
        let mut others = BTreeSet::new();
        for binding in live
            .bindings
            .iter()
            .filter(|b| wanted.contains(b.source.as_str()))
        {
            if let Destination::Queue(queue) = &binding.destination
                && !self.is_copied(queue)
            {
                others.insert(queue.clone());
            }
        }
        if others.len() > MAX_STAND_INS {
            self.notes.push(format!(
                "{} queues that the topology does not have are bound to its exchanges; {MAX_STAND_INS} of them are part of it",
                others.len()
            ));
        }
        self.ends
            .extend(others.into_iter().take(MAX_STAND_INS).map(stand_in));
    }

    /// The queue in which probes end that may reach no business queue.
    fn add_probe_queue(&mut self, topology: &Topology) {
        self.ends.push(stand_in(PROBE_QUEUE.to_owned()));
        self.live.queues.push(LiveQueue {
            name: PROBE_QUEUE.to_owned(),
            ..LiveQueue::default()
        });
        for (source, pattern) in [
            (topology.names.exchange(), PROBE_KEY.to_owned()),
            (
                topology.names.ladder_due(),
                ladder::due_pattern_for_queue(PROBE_QUEUE),
            ),
        ] {
            if self.live.exchange(&source).is_some() {
                self.live.bindings.push(LiveBinding {
                    source,
                    destination: Destination::Queue(PROBE_QUEUE.to_owned()),
                    pattern,
                    arguments: Arguments::new(),
                });
            }
        }
    }

    fn sort_bindings(&mut self) {
        for binding in &self.live.bindings {
            match &binding.destination {
                Destination::Queue(queue) if self.business.contains_key(queue) => {
                    let of = self.business_bindings.entry(queue.clone()).or_default();
                    of.push(binding.clone());
                }
                Destination::Queue(queue) if !self.is_copied(queue) => {}
                _ => self.bindings.push(binding.clone()),
            }
        }
    }

    fn is_copied(&self, queue: &str) -> bool {
        self.business.contains_key(queue) || self.ends.iter().chain(&self.delays).any(|q| q.name == queue)
    }
}

fn stand_in(name: String) -> CopiedQueue {
    CopiedQueue {
        name,
        arguments: Arguments::from([("x-queue-type".to_owned(), json!("classic"))]),
    }
}

fn copied(queue: &LiveQueue) -> CopiedQueue {
    let mut arguments = queue.arguments.clone();
    arguments.insert("x-queue-type".to_owned(), json!(queue.kind));
    // It would go with the probe in it.
    arguments.remove("x-expires");
    cap(&mut arguments, "x-message-ttl", DELAY_MS);
    CopiedQueue {
        name: queue.name.clone(),
        arguments,
    }
}

/// The policy with what it takes cut down; none if nothing is left of it.
fn cut_down(policy: &LivePolicy) -> Option<LivePolicy> {
    let mut policy = policy.clone();
    cap(&mut policy.definition, "message-ttl", POLICY_TTL_MS);
    cap(&mut policy.definition, "max-length", POLICY_LENGTH);
    cap(&mut policy.definition, "max-length-bytes", POLICY_LENGTH_BYTES);
    // Seen without a probe; the queue would be gone before anything can be said of it. And nothing is sent to other brokers.
    policy
        .definition
        .retain(|key, _| key != "expires" && !key.starts_with("federation"));
    (!policy.definition.is_empty()).then_some(policy)
}

fn cap(arguments: &mut Arguments, key: &str, most: u64) {
    if let Some(value) = arguments.get_mut(key)
        && value.as_u64().is_some_and(|number| number > most)
    {
        *value = Value::from(most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_cut_down_to_what_a_probe_can_see() {
        let policy = |definition: Value| LivePolicy {
            definition: definition.as_object().unwrap().clone().into_iter().collect(),
            ..LivePolicy::default()
        };
        let cut = |definition| cut_down(&policy(definition)).map(|p| json!(p.definition));
        assert_eq!(
            cut(json!({"message-ttl": 86_400_000})),
            Some(json!({"message-ttl": 150}))
        );
        assert_eq!(cut(json!({"message-ttl": 0})), Some(json!({"message-ttl": 0})));
        assert_eq!(
            cut(json!({"max-length": 100_000, "overflow": "drop-head"})),
            Some(json!({"max-length": 10, "overflow": "drop-head"}))
        );
        assert_eq!(cut(json!({"expires": 1000})), None);
        assert_eq!(
            cut(json!({"federation-upstream-set": "all", "delivery-limit": 5})),
            Some(json!({"delivery-limit": 5}))
        );
    }

    #[test]
    fn queues_keep_their_arguments_but_not_their_times() {
        let queue = LiveQueue {
            name: "task.delay.30m".to_owned(),
            kind: "quorum".to_owned(),
            arguments: Arguments::from([
                ("x-message-ttl".to_owned(), json!(1_800_000)),
                ("x-expires".to_owned(), json!(5)),
                ("x-dead-letter-exchange".to_owned(), json!("task.exchange")),
            ]),
            ..LiveQueue::default()
        };
        let expected = json!({"x-message-ttl": 200, "x-dead-letter-exchange": "task.exchange", "x-queue-type": "quorum"});
        assert_eq!(json!(copied(&queue).arguments), expected);
    }
}
