//! One object against the one of its name on the broker, property by property. Pure.
//!
//! Two questions of a queue. Would the broker refuse its declaration: its arguments against those wanted, as the
//! broker compares them? And does a policy make it behave otherwise: the wanted arguments under the policies in
//! force against the wanted arguments under the wanted policies?

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::{
    change::{Conflict, Difference, Origin, Remedy, as_json},
    force::{InForce, KEYS, Policies, default, effective, same},
};
use crate::topology::{
    Exchange, ObjectKind, ObjectName, Policy, Queue,
    live::{Arguments, LiveExchange, LivePolicy, LiveQueue, Version},
};

/// Arguments that the broker compares when a queue is declared again, whatever its type.
const COMPARED: &[&str] = &[
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-expires",
    "x-max-length",
    "x-max-length-bytes",
    "x-message-ttl",
    "x-overflow",
    "x-single-active-consumer",
];
/// Further ones of quorum queues.
const COMPARED_QUORUM: &[&str] = &[
    "x-dead-letter-strategy",
    "x-delivery-limit",
    "x-max-in-memory-bytes",
    "x-max-in-memory-length",
    "x-queue-leader-locator",
    "x-quorum-initial-group-size",
];
/// Further ones of quorum queues from 4.3.
const COMPARED_QUORUM_4_3: &[&str] = &[
    "x-consumer-disconnected-timeout",
    "x-consumer-timeout",
    "x-delayed-retry-max",
    "x-delayed-retry-min",
    "x-delayed-retry-type",
];
/// Further ones of classic queues.
const COMPARED_CLASSIC: &[&str] = &[
    "x-max-priority",
    "x-queue-leader-locator",
    "x-queue-master-locator",
    "x-queue-mode",
    "x-queue-version",
];

/// Whether a queue of type `kind` is compared by `argument` when it is declared again.
fn is_compared(argument: &str, kind: &str, version: Version) -> bool {
    let further: &[&[&str]] = match kind {
        "quorum" if version >= Version::new(4, 3, 0) => &[COMPARED_QUORUM, COMPARED_QUORUM_4_3],
        "quorum" => &[COMPARED_QUORUM],
        "classic" => &[COMPARED_CLASSIC],
        // Of types we never want, all counts.
        _ => return true,
    };
    COMPARED.contains(&argument) || further.iter().any(|list| list.contains(&argument))
}

/// What differs between a queue on the broker and the one wanted, and what it has beside that is never compared.
pub(super) struct QueueFindings {
    pub(super) conflict: Option<Conflict>,
    pub(super) unused: Vec<String>,
}

/// How policies are looked at.
pub(super) struct Under<'a> {
    /// As they will be when those of the platform's own are written.
    pub(super) policies: &'a Policies<'a>,
    /// The platform's own, alone.
    pub(super) own: &'a Policies<'a>,
    pub(super) version: Version,
    pub(super) vhost: &'a str,
}

/// Compares a queue.
pub(super) fn queue(wanted: &Queue, live: &LiveQueue, under: &Under<'_>) -> QueueFindings {
    let wanted_arguments = as_json(&wanted.arguments);
    let wanted_kind = wanted_arguments
        .get("x-queue-type")
        .and_then(Json::as_str)
        .unwrap_or("classic");
    let mut found = Found::default();
    found.property("type", live.kind.as_str().into(), wanted_kind.into());
    found.property("durable", live.durable.into(), true.into());
    found.property("auto-delete", live.auto_delete.into(), false.into());
    found.property("exclusive", live.exclusive.into(), false.into());
    let mut unused = Vec::new();
    let names: std::collections::BTreeSet<&String> =
        live.arguments.keys().chain(wanted_arguments.keys()).collect();
    for name in names {
        if name == "x-queue-type" {
            continue;
        }
        let (on_broker, wanted) = (live.arguments.get(name), wanted_arguments.get(name));
        if same(on_broker, wanted) {
            continue;
        }
        // Of two types each has arguments that only it knows.
        if is_compared(name, &live.kind, under.version) || is_compared(name, wanted_kind, under.version) {
            found.argument(name, on_broker, wanted, &live.kind, under.version);
        } else if on_broker.is_some() {
            unused.push(name.clone());
        }
    }
    let immutable = !found.differences.is_empty();
    if live.exclusive {
        found.remedies.push(Remedy::Exclusive {
            queue: live.name.clone(),
        });
    } else if immutable {
        found.remedies.push(Remedy::Migrate {
            queue: live.name.clone(),
        });
    }
    found.policies(&live.name, wanted_kind, &wanted_arguments, under);
    QueueFindings {
        conflict: found.conflict(ObjectKind::Queue, &live.name),
        unused,
    }
}

/// Compares an exchange.
pub(super) fn exchange(wanted: &Exchange, live: &LiveExchange, under: &Under<'_>) -> Option<Conflict> {
    let mut found = Found::default();
    found.property("type", live.kind.as_str().into(), wanted.kind.as_str().into());
    found.property("durable", live.durable.into(), true.into());
    found.property("auto-delete", live.auto_delete.into(), false.into());
    found.property("internal", live.internal.into(), false.into());
    let alternate = "alternate-exchange";
    let wanted_alternate: Option<Json> = wanted.alternate.as_deref().map(Json::from);
    let on_broker = live.arguments.get(alternate);
    if !same(on_broker, wanted_alternate.as_ref()) {
        found.differences.push(Difference {
            name: alternate.to_owned(),
            on_broker: on_broker.cloned(),
            from: Origin::Declared,
            wanted: wanted_alternate.clone(),
        });
    }
    if !found.differences.is_empty() {
        found.remedies.push(Remedy::ReplaceExchange {
            exchange: live.name.clone(),
        });
    }
    // An argument wins over a policy, so only where none is wanted can one do anything.
    let in_force = under.policies.of_exchange(&live.name);
    if let (None, Some(policy)) = (&wanted_alternate, in_force.get(alternate)) {
        found.blame(&policy.from, &in_force, &live.name, under.vhost);
        found.differences.push(Difference {
            name: alternate.to_owned(),
            on_broker: policy.value,
            from: policy.from,
            wanted: None,
        });
    }
    found.conflict(ObjectKind::Exchange, &live.name)
}

/// Compares a policy of the platform's own.
pub(super) fn policy(wanted: &Policy, live: &LivePolicy) -> Vec<Difference> {
    let mut found = Found::default();
    found.property(
        "pattern",
        live.pattern.as_str().into(),
        wanted.pattern.as_str().into(),
    );
    found.property("apply-to", live.apply_to.as_str().into(), wanted.apply_to.into());
    found.property("priority", live.priority.into(), wanted.priority.into());
    let definition = as_json(&wanted.definition);
    let keys: std::collections::BTreeSet<&String> = live.definition.keys().chain(definition.keys()).collect();
    for key in keys {
        let (on_broker, wanted) = (live.definition.get(key), definition.get(key));
        if !same(on_broker, wanted) {
            found.differences.push(Difference {
                name: key.clone(),
                on_broker: on_broker.cloned(),
                from: Origin::Declared,
                wanted: wanted.cloned(),
            });
        }
    }
    found.differences
}

#[derive(Default)]
struct Found {
    differences: Vec<Difference>,
    remedies: Vec<Remedy>,
}

impl Found {
    fn property(&mut self, name: &str, on_broker: Json, wanted: Json) {
        if on_broker != wanted {
            self.differences.push(Difference {
                name: name.to_owned(),
                on_broker: Some(on_broker),
                from: Origin::Declared,
                wanted: Some(wanted),
            });
        }
    }

    fn argument(
        &mut self,
        name: &str,
        on_broker: Option<&Json>,
        wanted: Option<&Json>,
        kind: &str,
        version: Version,
    ) {
        let (on_broker, from) = match on_broker {
            Some(value) => (Some(value.clone()), Origin::Declared),
            None => (
                default(name.trim_start_matches("x-"), kind, version),
                Origin::Default,
            ),
        };
        self.differences.push(Difference {
            name: name.to_owned(),
            on_broker,
            from,
            wanted: wanted.cloned(),
        });
    }

    /// What policies make of the wanted arguments.
    fn policies(&mut self, queue: &str, kind: &str, wanted: &Arguments, under: &Under<'_>) {
        let in_force = under.policies.of_queue(queue, kind);
        let own = under.own.of_queue(queue, kind);
        for (key, winner) in KEYS {
            let is = effective(key, winner, kind, wanted, in_force, under.version);
            let should = effective(key, winner, kind, wanted, own, under.version);
            if same(is.value.as_ref(), should.value.as_ref()) {
                continue;
            }
            // A policy without the key can be what keeps ours, which has it, out of force.
            let from = match (&is.from, in_force.user) {
                (Origin::Default | Origin::Declared, Some(policy)) => Origin::of(policy),
                _ => is.from.clone(),
            };
            self.blame(&from, &in_force, queue, under.vhost);
            let name = format!("x-{key}");
            let shown = if wanted.contains_key(&name) || key != "consumer-timeout" {
                name
            } else {
                key.to_owned()
            };
            self.differences.push(Difference {
                name: shown,
                on_broker: is.value,
                from,
                wanted: match should.from {
                    Origin::Default => None,
                    _ => should.value,
                },
            });
        }
    }

    fn blame(&mut self, from: &Origin, in_force: &InForce<'_>, object: &str, vhost: &str) {
        let policy = match from {
            Origin::Policy(_) => in_force.user,
            Origin::OperatorPolicy(_) => in_force.operator,
            Origin::Declared | Origin::Default => None,
        };
        if let Some(policy) = policy {
            let remedy = Remedy::Policy {
                name: policy.name.clone(),
                operator: policy.operator,
                pattern: policy.pattern.clone(),
                object: object.to_owned(),
                vhost: vhost.to_owned(),
            };
            if !self.remedies.contains(&remedy) {
                self.remedies.push(remedy);
            }
        }
    }

    fn conflict(self, kind: ObjectKind, name: &str) -> Option<Conflict> {
        (!self.differences.is_empty()).then(|| Conflict {
            object: ObjectName::new(kind, name),
            differences: self.differences,
            remedies: self.remedies,
        })
    }
}

/// A wanted policy as one on the broker.
pub(super) fn as_live(policy: &Policy) -> LivePolicy {
    let definition: BTreeMap<String, Json> = as_json(&policy.definition);
    LivePolicy {
        name: policy.name.clone(),
        pattern: policy.pattern.clone(),
        apply_to: policy.apply_to.to_owned(),
        priority: policy.priority,
        definition,
        operator: false,
    }
}
