//! The broker as the rules ask for it: each queue with what is in force on it, and where an exchange leads. Pure.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Duration,
};

use tidegate_core::{ladder::Destination, names::Names, topic::Pattern};

use super::super::{
    force::{Effective, KEYS, Policies, effective},
    scope::Scope,
};
use crate::topology::{
    Objects,
    live::{Live, LiveBinding, LiveExchange, LiveQueue},
};

/// What a queue is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Holds tasks until workers take them.
    Business,
    /// Holds tasks for a time.
    Delay,
    /// Another one of the platform's.
    Platform,
    /// Somebody else's that takes part.
    Foreign,
}

/// A queue with what is in force on it.
pub(super) struct Seen<'a> {
    pub(super) live: &'a LiveQueue,
    pub(super) role: Role,
    pub(super) dead_letter_exchange: Option<String>,
    pub(super) dead_letter_key: Option<String>,
    pub(super) max_timeout: Option<Duration>,
    values: BTreeMap<&'static str, Effective>,
}

/// The broker.
pub(super) struct View<'a> {
    /// Queues that take part, in order of their names.
    pub(super) queues: Vec<Seen<'a>>,
    exchanges: HashMap<&'a str, &'a LiveExchange>,
    names: HashSet<&'a str>,
    bindings: HashMap<&'a str, Vec<&'a LiveBinding>>,
    policies: Policies<'a>,
}

/// Where dead letters go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leads {
    Somewhere,
    NoExchange,
    Unbound,
    NoMatch,
}

impl<'a> View<'a> {
    pub(super) fn new(live: &'a Live, wanted: &Objects, scope: &Scope) -> Self {
        let policies = Policies::new(live);
        let mut bindings: HashMap<&str, Vec<&LiveBinding>> = HashMap::new();
        for binding in &live.bindings {
            bindings.entry(&binding.source).or_default().push(binding);
        }
        let is_delay: HashMap<&str, bool> = wanted
            .queues
            .iter()
            .map(|q| (q.name.as_str(), q.arguments.contains_key("x-message-ttl")))
            .collect();
        let ours: HashSet<&str> = wanted.exchanges.iter().map(|e| e.name.as_str()).collect();
        let is_our_exchange = |name: &str| ours.contains(name) || scope.own(name).is_some();
        let mut bound = HashSet::new();
        for binding in live.bindings.iter().filter(|b| is_our_exchange(&b.source)) {
            if let Destination::Queue(queue) = &binding.destination {
                bound.insert(queue.as_str());
            }
        }
        let mut queues = Vec::new();
        for queue in &live.queues {
            if !queue.durable || queue.exclusive || queue.auto_delete {
                continue;
            }
            let name = queue.name.as_str();
            let mut seen = Seen::new(queue, &policies, live, scope);
            let to_us = seen.dead_letter_exchange.as_deref().is_some_and(is_our_exchange);
            seen.role = match (is_delay.get(name), scope.own(name)) {
                (Some(true), _) => Role::Delay,
                (None, Some(_)) if scope.generation_of(name).is_some() => Role::Delay,
                (_, Some(_)) => Role::Platform,
                (Some(false), None) => Role::Business,
                (None, None) if bound.contains(name) || to_us => Role::Foreign,
                (None, None) => continue,
            };
            queues.push(seen);
        }
        queues.sort_by(|a, b| a.live.name.cmp(&b.live.name));
        Self {
            queues,
            exchanges: live.exchanges.iter().map(|e| (e.name.as_str(), e)).collect(),
            names: live.queues.iter().map(|q| q.name.as_str()).collect(),
            bindings,
            policies,
        }
    }

    /// Bindings from `exchange`.
    pub(super) fn from(&self, exchange: &str) -> &[&'a LiveBinding] {
        self.bindings.get(exchange).map_or(&[], Vec::as_slice)
    }

    /// All bindings.
    pub(super) fn all_bindings(&self) -> impl Iterator<Item = &LiveBinding> {
        self.bindings.values().flatten().copied()
    }

    /// Type of `exchange`; those of the broker itself say it by their names.
    pub(super) fn kind<'b>(&'b self, exchange: &'b str) -> Option<&'b str> {
        let known = self.exchanges.get(exchange).map(|e| e.kind.as_str());
        known.or_else(|| exchange.strip_prefix("amq."))
    }

    /// Where `exchange` sends what it has no binding for.
    pub(super) fn alternate(&self, exchange: &str) -> Option<String> {
        let key = "alternate-exchange";
        let declared = self.exchanges.get(exchange)?.arguments.get(key).cloned();
        let value = declared.or_else(|| self.policies.of_exchange(exchange).get(key)?.value)?;
        value.as_str().map(str::to_owned)
    }

    /// Whether a dead letter with `key`, if that is fixed, gets anywhere.
    pub(super) fn leads_somewhere(&self, exchange: &str, key: Option<&str>) -> Leads {
        if exchange.is_empty() {
            // The default exchange: the key is the name of a queue.
            let known = key.is_none_or(|queue| self.names.contains(queue));
            return if known { Leads::Somewhere } else { Leads::NoMatch };
        }
        let Some(kind) = self.kind(exchange) else {
            return Leads::NoExchange;
        };
        let alternate = self.alternate(exchange);
        if alternate.is_some_and(|e| !self.from(&e).is_empty()) {
            return Leads::Somewhere;
        }
        let bindings = self.from(exchange);
        if bindings.is_empty() {
            return Leads::Unbound;
        }
        let taken = key.is_none_or(|key| bindings.iter().any(|b| takes(kind, &b.pattern, key)));
        if taken { Leads::Somewhere } else { Leads::NoMatch }
    }
}

/// Whether a binding of an exchange of type `kind` takes some key of those that `key`, a pattern, stands for.
pub(super) fn takes(kind: &str, binding: &str, key: &str) -> bool {
    if !matches!(kind, "topic" | "direct") {
        return true;
    }
    // What this program can't read as a pattern may match anything.
    let (Ok(pattern), Ok(keys)) = (Pattern::parse(binding), Pattern::parse(key)) else {
        return true;
    };
    if kind == "topic" {
        pattern.overlaps(&keys)
    } else {
        keys.matches(binding)
    }
}

impl<'a> Seen<'a> {
    fn new(queue: &'a LiveQueue, policies: &Policies<'_>, live: &Live, scope: &Scope) -> Self {
        let in_force = policies.of_queue(&queue.name, &queue.kind);
        let value = |(key, winner)| {
            let value = effective(key, winner, &queue.kind, &queue.arguments, in_force, live.version);
            (key, value)
        };
        let values: BTreeMap<&str, Effective> = KEYS.into_iter().map(value).collect();
        let text = |key: &str| values[key].text().map(str::to_owned);
        let of_lane = || {
            scope
                .max_timeouts
                .get(queue.name.strip_suffix(&Names::high_lane(""))?)
        };
        Self {
            live: queue,
            role: Role::Foreign,
            dead_letter_exchange: text("dead-letter-exchange"),
            dead_letter_key: text("dead-letter-routing-key"),
            max_timeout: scope.max_timeouts.get(&queue.name).or_else(of_lane).copied(),
            values,
        }
    }

    /// What is in force for a key of [`KEYS`].
    pub(super) fn get(&self, key: &str) -> &Effective {
        &self.values[key]
    }

    /// The same as a number.
    pub(super) fn number(&self, key: &str) -> Option<f64> {
        self.get(key).value.as_ref()?.as_f64()
    }

    /// Whether the broker by itself, with no consumer that rejects, may dead-letter from here.
    pub(super) fn dead_letters_by_itself(&self) -> bool {
        let limit = self.live.kind == "quorum" && self.number("delivery-limit").is_some_and(|n| n >= 0.0);
        let full = self
            .number("max-length")
            .or(self.number("max-length-bytes"))
            .is_some()
            && self.get("overflow").text() != Some("reject-publish");
        limit || full || self.number("message-ttl").is_some()
    }
}

impl Effective {
    /// The value, if it is a text.
    pub(super) fn text(&self) -> Option<&str> {
        self.value.as_ref()?.as_str()
    }
}
