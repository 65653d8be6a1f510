//! What is on the broker, counts as the platform's, and is wanted by nothing. Pure.
//!
//! What belongs to one connection or goes by itself (exclusive, auto-delete, named by the server) is a live
//! subscriber's and never counted.

use std::collections::{HashMap, HashSet};

use tidegate_core::ladder::Destination;

use super::{
    Change, Extra, Note, Plan, Unwanted,
    force::{Policies, effective},
    key,
    scope::Scope,
};
use crate::topology::{
    Objects, counted,
    live::{Live, LiveQueue},
};

/// Adds the extras to `plan`, and notes for what is let be on purpose.
pub(super) fn find(
    wanted: &Objects,
    live: &Live,
    scope: &Scope,
    policies: &Policies<'_>,
    moving: &dyn Fn(&str) -> bool,
    plan: &mut Plan,
) {
    let search = Search {
        live,
        scope,
        policies,
        moving,
        exchanges: wanted.exchanges.iter().map(|e| e.name.as_str()).collect(),
        queues: wanted.queues.iter().map(|q| q.name.as_str()).collect(),
        transient: live
            .queues
            .iter()
            .filter(|q| q.exclusive || q.auto_delete || q.name.starts_with("amq."))
            .map(|q| q.name.as_str())
            .collect(),
    };
    search.bindings(wanted, plan);
    search.queues(plan);
    search.exchanges(plan);
    search.policies(wanted, plan);
    search.generations(plan);
}

struct Search<'a> {
    live: &'a Live,
    scope: &'a Scope,
    policies: &'a Policies<'a>,
    moving: &'a dyn Fn(&str) -> bool,
    exchanges: HashSet<&'a str>,
    queues: HashSet<&'a str>,
    transient: HashSet<&'a str>,
}

impl Search<'_> {
    fn is_our_exchange(&self, name: &str) -> bool {
        self.exchanges.contains(name) || self.scope.own(name).is_some()
    }

    fn is_our_queue(&self, name: &str) -> bool {
        self.queues.contains(name) || self.scope.own(name).is_some()
    }

    fn is_let_be(&self, name: &str) -> bool {
        (self.moving)(name) || self.scope.is_other_generation(name) || self.scope.ignores(name)
    }

    fn bindings(&self, wanted: &Objects, plan: &mut Plan) {
        let due = self.scope.generations.iter().flat_map(|g| &g.due.bindings);
        let wanted: HashSet<_> = wanted
            .bindings
            .iter()
            .chain(due)
            .map(|b| key(&b.source, &b.destination, &b.pattern))
            .collect();
        for binding in &self.live.bindings {
            let (destination, is_queue) = match &binding.destination {
                Destination::Queue(name) => (name, true),
                Destination::Exchange(name) => (name, false),
            };
            let is_wanted = binding.arguments.is_empty()
                && wanted.contains(&key(&binding.source, &binding.destination, &binding.pattern));
            let live_subscriber = if is_queue {
                self.transient.contains(destination.as_str())
            } else {
                self.live.exchange(destination).is_some_and(|e| e.auto_delete)
            };
            let why = if self.is_our_exchange(&binding.source) {
                format!("{} is the platform's", binding.source)
            } else if is_queue && self.is_our_queue(destination) {
                format!("{destination} is the platform's")
            } else {
                continue;
            };
            // Of a generation that is let be only the ends of its routes are ours to look at.
            let inside = self.scope.is_other_generation(destination)
                || self.scope.is_other_generation(&binding.source) && !self.known_due(&binding.source);
            let let_be = (self.moving)(&binding.source)
                || (self.moving)(destination)
                || self.scope.ignores(destination)
                || self.scope.ignores(&binding.source)
                || inside;
            if !is_wanted && !live_subscriber && !let_be {
                plan.changes.push(Change::Extra(Extra {
                    object: Unwanted::Binding(binding.clone()),
                    why,
                    messages: None,
                    consumers: None,
                }));
            }
        }
    }

    /// Whether `exchange` is the end of another generation whose bindings are known.
    fn known_due(&self, exchange: &str) -> bool {
        let mut known = self.scope.generations.iter().flat_map(|g| &g.due.bindings);
        known.any(|b| b.source == exchange)
    }

    fn queues(&self, plan: &mut Plan) {
        let mut sources: HashMap<&str, &str> = HashMap::new();
        for binding in &self.live.bindings {
            if let Destination::Queue(queue) = &binding.destination
                && self.is_our_exchange(&binding.source)
                && !self.scope.ignores(&binding.source)
            {
                let source = sources.entry(queue).or_insert(&binding.source);
                *source = (*source).min(&binding.source);
            }
        }
        for queue in &self.live.queues {
            let name = queue.name.as_str();
            if self.queues.contains(name) || self.transient.contains(name) || self.is_let_be(name) {
                continue;
            }
            let why = if self.scope.own(name).is_some() {
                "its name has the platform's prefix".to_owned()
            } else if !queue.durable {
                continue;
            } else if let Some(source) = sources.get(name) {
                format!("it is bound to {source}")
            } else if let Some(exchange) = self.dead_letters_to_us(queue) {
                format!("it dead-letters to {exchange}")
            } else {
                continue;
            };
            plan.changes.push(Change::Extra(Extra {
                object: Unwanted::Queue {
                    name: queue.name.clone(),
                    kind: queue.kind.clone(),
                },
                why,
                messages: queue.messages,
                consumers: queue.consumers,
            }));
        }
    }

    fn dead_letters_to_us(&self, queue: &LiveQueue) -> Option<String> {
        let in_force = self.policies.of_queue(&queue.name, &queue.kind);
        let target = effective(
            "dead-letter-exchange",
            super::force::Winner::Argument,
            &queue.kind,
            &queue.arguments,
            in_force,
            self.live.version,
        );
        let target = target.value?.as_str()?.to_owned();
        self.is_our_exchange(&target).then_some(target)
    }

    fn exchanges(&self, plan: &mut Plan) {
        for exchange in &self.live.exchanges {
            let name = exchange.name.as_str();
            let ours = self.scope.own(name).is_some() && !exchange.auto_delete;
            if ours && !self.exchanges.contains(name) && !self.is_let_be(name) {
                plan.changes.push(Change::Extra(Extra {
                    object: Unwanted::Exchange {
                        name: exchange.name.clone(),
                    },
                    why: "its name has the platform's prefix".to_owned(),
                    messages: None,
                    consumers: None,
                }));
            }
        }
    }

    fn policies(&self, wanted: &Objects, plan: &mut Plan) {
        let wanted: HashSet<&str> = wanted.policies.iter().map(|p| p.name.as_str()).collect();
        for policy in self.live.policies.iter().filter(|p| !p.operator) {
            let ours = self.scope.own(&policy.name).is_some();
            let is_wanted = wanted.contains(policy.name.as_str());
            if ours && !is_wanted && !self.scope.ignores(&policy.name) {
                plan.changes.push(Change::Extra(Extra {
                    object: Unwanted::Policy {
                        name: policy.name.clone(),
                    },
                    why: "its name has the platform's prefix".to_owned(),
                    messages: None,
                    consumers: None,
                }));
            }
        }
    }

    fn generations(&self, plan: &mut Plan) {
        for version in self.scope.other_generations(self.live) {
            let queues = self.live.queues.iter();
            let of_it = queues.filter(|q| self.scope.generation_of(&q.name) == Some(version));
            let messages: u64 = of_it.filter_map(|q| q.messages).sum();
            plan.notes.push(Note {
                about: format!("ladder generation v{version}"),
                text: format!(
                    "it is not the one in use, v{}: {} pending; `tidegate topology migrate ladder` removes it when \
                     nothing waits in it any more",
                    self.scope.names.ladder_version(),
                    counted(messages, "message")
                ),
            });
        }
    }
}
