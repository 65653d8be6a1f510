//! The difference between what must exist on the broker and what does, as something a person reads before anything
//! changes, and a program performs.
//!
//! [`plan`] decides and is pure: it takes the wanted [`Objects`], what was read as [`Live`], and a [`Scope`].
//! Showing is in `text` and `json`, storing in `stored`; performing is `broker`'s. May import: `core`, the topology.

mod change;
mod compare;
mod extra;
pub(super) mod force;
mod json;
mod lint;
mod scope;
mod stored;
mod text;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use tidegate_core::ladder::Destination;

pub use change::{
    Change, Conflict, Counts, Difference, Edit, Extra, Lint, Migrating, Note, Origin, Plan, Remedy, Unwanted,
    Wanted,
};
pub use lint::lints;
pub use scope::{Generation, Scope};
pub use stored::{Stored, StoredError};
pub use text::{Line, Mark, shown};

use self::{
    compare::{Under, as_live},
    force::{CONSUMER_TIMEOUT_BY_POLICY, Policies},
};
use super::{
    ObjectKind, ObjectName, Objects,
    live::{Live, LiveBinding, LiveExchange, LivePolicy, LiveQueue, Unread, Version},
    migration::migrating_queue,
};

/// What has to change on the broker, `live`, for it to be as `wanted`.
pub fn plan(wanted: &Objects, live: &Live, scope: &Scope) -> Plan {
    let policies_known = wanted.policies.is_empty() || live.version >= CONSUMER_TIMEOUT_BY_POLICY;
    let after = after(wanted, live, scope, policies_known);
    let own = Live {
        policies: if policies_known {
            wanted.policies.iter().map(as_live).collect()
        } else {
            Vec::new()
        },
        ..Live::default()
    };
    let (policies, own) = (Policies::new(&after), Policies::new(&own));
    let under = Under {
        policies: &policies,
        own: &own,
        version: live.version,
        vhost: &scope.vhost,
    };
    let migrations = migrations(wanted, live);
    let moving = |name: &str| {
        migrations.contains_key(name) || migrating_queue(name).is_some_and(|q| migrations.contains_key(q))
    };

    let mut plan = Plan {
        version: live.version,
        wanted: wanted.len() + if policies_known { wanted.policies.len() } else { 0 },
        unread: live.unread.clone(),
        ..Plan::default()
    };
    plan.unread.extend(policies.unread.iter().cloned());
    exchanges(wanted, live, &under, &mut plan);
    queues(wanted, live, &under, &moving, &mut plan);
    bindings(wanted, live, scope, &moving, &mut plan);
    if policies_known {
        own_policies(wanted, live, &mut plan);
    }
    for (queue, leftovers) in &migrations {
        plan.changes.push(Change::Migrating(Migrating {
            queue: queue.clone(),
            leftovers: leftovers.clone(),
        }));
    }
    extra::find(wanted, live, scope, &policies, &moving, &mut plan);
    plan.lints = lints(&after, wanted, scope);
    plan.sort();
    plan
}

/// What a plan can say that knows only which exchanges and queues are missing.
pub fn plan_of_missing(wanted: &Objects, missing: &[ObjectName]) -> Plan {
    let missing: HashSet<(ObjectKind, &str)> = missing.iter().map(|m| (m.kind, m.name.as_str())).collect();
    let gone = |kind: ObjectKind, name: &str| missing.contains(&(kind, name));
    let mut plan = Plan {
        wanted: wanted.len(),
        ..Plan::default()
    };
    let exchanges = wanted
        .exchanges
        .iter()
        .filter(|e| gone(ObjectKind::Exchange, &e.name));
    let queues = wanted.queues.iter().filter(|q| gone(ObjectKind::Queue, &q.name));
    // With one of its ends a binding is gone too; of others AMQP can't tell.
    let bindings = wanted.bindings.iter().filter(|b| {
        let end = match &b.destination {
            Destination::Queue(name) => gone(ObjectKind::Queue, name),
            Destination::Exchange(name) => gone(ObjectKind::Exchange, name),
        };
        end || gone(ObjectKind::Exchange, &b.source)
    });
    let adds = exchanges
        .cloned()
        .map(Wanted::Exchange)
        .chain(queues.cloned().map(Wanted::Queue))
        .chain(bindings.cloned().map(Wanted::Binding));
    plan.changes = adds.map(Change::Add).collect();
    plan.unread.push(Unread {
        what: "all but the existence of exchanges and queues".to_owned(),
        why: "AMQP tells no more: arguments, bindings, policies and what is there beside are seen with \
              management.url (MANAGEMENT_URL)"
            .to_owned(),
    });
    plan.sort();
    plan
}

impl Plan {
    /// What it adds, as objects to declare. Left out, and returned by name, are bindings of an exchange or queue
    /// that exists with other arguments: a task may vanish there which is now kept as unrouted.
    pub fn adds(&self) -> (Objects, Vec<ObjectName>) {
        let blocked: HashSet<&str> = self
            .conflicts()
            .filter(|conflict| {
                conflict
                    .remedies
                    .iter()
                    .any(|r| !matches!(r, Remedy::Policy { .. }))
            })
            .map(|conflict| conflict.object.name.as_str())
            .collect();
        let (mut objects, mut left_out) = (Objects::default(), Vec::new());
        for change in &self.changes {
            match change {
                Change::Add(Wanted::Exchange(exchange)) => objects.exchanges.push(exchange.clone()),
                Change::Add(Wanted::Queue(queue)) => objects.queues.push(queue.clone()),
                Change::Add(Wanted::Policy(policy)) => objects.policies.push(policy.clone()),
                Change::Edit(edit) => objects.policies.push(edit.policy.clone()),
                Change::Add(Wanted::Binding(b))
                    if blocked.contains(b.source.as_str()) || blocked.contains(b.destination_name()) =>
                {
                    left_out.push(change.object());
                }
                Change::Add(Wanted::Binding(binding)) => objects.bindings.push(binding.clone()),
                Change::Conflict(_) | Change::Migrating(_) | Change::Extra(_) => {}
            }
        }
        (objects, left_out)
    }
}

/// The broker as it will be when what is missing is added and the platform's own policies are written.
fn after(wanted: &Objects, live: &Live, scope: &Scope, policies_known: bool) -> Live {
    let mut after = live.clone();
    let exchanges: HashSet<&str> = live.exchanges.iter().map(|e| e.name.as_str()).collect();
    let queues: HashSet<&str> = live.queues.iter().map(|q| q.name.as_str()).collect();
    after.exchanges.extend(
        wanted
            .exchanges
            .iter()
            .filter(|e| !exchanges.contains(e.name.as_str()))
            .map(|e| LiveExchange {
                name: e.name.clone(),
                kind: e.kind.as_str().to_owned(),
                durable: true,
                arguments: e
                    .alternate
                    .iter()
                    .map(|a| ("alternate-exchange".to_owned(), a.as_str().into()))
                    .collect(),
                ..LiveExchange::default()
            }),
    );
    after.queues.extend(
        wanted
            .queues
            .iter()
            .filter(|q| !queues.contains(q.name.as_str()))
            .map(|q| LiveQueue {
                name: q.name.clone(),
                kind: "quorum".to_owned(),
                durable: true,
                arguments: change::as_json(&q.arguments),
                ..LiveQueue::default()
            }),
    );
    let due = scope.generations.iter().flat_map(|g| &g.due.bindings);
    after
        .bindings
        .extend(wanted.bindings.iter().chain(due).map(|b| LiveBinding {
            source: b.source.clone(),
            destination: b.destination.clone(),
            pattern: b.pattern.clone(),
            arguments: BTreeMap::new(),
        }));
    // One of the platform's own that is wanted no more is an extra, and what it does is no further difference.
    after
        .policies
        .retain(|p| p.operator || scope.own(&p.name).is_none() || scope.ignores(&p.name));
    if policies_known {
        after.policies.extend(wanted.policies.iter().map(as_live));
    }
    after
}

/// Queues of the platform that a migration has begun on, with what there is of it.
fn migrations(wanted: &Objects, live: &Live) -> BTreeMap<String, Vec<ObjectName>> {
    let known: HashSet<&str> = wanted.queues.iter().map(|q| q.name.as_str()).collect();
    let queues = live.queues.iter().map(|q| (ObjectKind::Queue, &q.name));
    let exchanges = live.exchanges.iter().map(|e| (ObjectKind::Exchange, &e.name));
    let mut found: BTreeMap<String, Vec<ObjectName>> = BTreeMap::new();
    for (kind, name) in queues.chain(exchanges) {
        if let Some(queue) = migrating_queue(name).filter(|queue| known.contains(queue)) {
            let leftovers = found.entry(queue.to_owned()).or_default();
            leftovers.push(ObjectName::new(kind, name));
        }
    }
    found.values_mut().for_each(|leftovers| leftovers.sort());
    found
}

fn exchanges(wanted: &Objects, live: &Live, under: &Under<'_>, plan: &mut Plan) {
    let there: HashMap<&str, &LiveExchange> = live.exchanges.iter().map(|e| (e.name.as_str(), e)).collect();
    for exchange in &wanted.exchanges {
        match there.get(exchange.name.as_str()) {
            None => plan.changes.push(Change::Add(Wanted::Exchange(exchange.clone()))),
            Some(live) => plan
                .changes
                .extend(compare::exchange(exchange, live, under).map(Change::Conflict)),
        }
    }
}

fn queues(wanted: &Objects, live: &Live, under: &Under<'_>, moving: &dyn Fn(&str) -> bool, plan: &mut Plan) {
    let there: HashMap<&str, &LiveQueue> = live.queues.iter().map(|q| (q.name.as_str(), q)).collect();
    for queue in wanted.queues.iter().filter(|q| !moving(&q.name)) {
        let Some(live) = there.get(queue.name.as_str()) else {
            plan.changes.push(Change::Add(Wanted::Queue(queue.clone())));
            continue;
        };
        let found = compare::queue(queue, live, under);
        plan.changes.extend(found.conflict.map(Change::Conflict));
        plan.notes.extend(found.unused.into_iter().map(|argument| Note {
            about: format!("queue {}", queue.name),
            text: format!("it was declared with {argument}, which this broker stores and never compares"),
        }));
    }
}

fn bindings(wanted: &Objects, live: &Live, scope: &Scope, moving: &dyn Fn(&str) -> bool, plan: &mut Plan) {
    let there: HashSet<(&str, &str, bool, &str)> = live
        .bindings
        .iter()
        .filter(|b| b.arguments.is_empty())
        .map(|b| key(&b.source, &b.destination, &b.pattern))
        .collect();
    let exchanges: HashSet<&str> = live.exchanges.iter().map(|e| e.name.as_str()).collect();
    // A generation that is gone, or whose end is, needs nothing any more.
    let due = scope.generations.iter().flat_map(|g| &g.due.bindings);
    let due = due.filter(|b| exchanges.contains(b.source.as_str()));
    let mut seen = BTreeSet::new();
    for binding in wanted.bindings.iter().chain(due) {
        let key = key(&binding.source, &binding.destination, &binding.pattern);
        if !there.contains(&key) && !moving(binding.destination_name()) && seen.insert(key) {
            plan.changes.push(Change::Add(Wanted::Binding(binding.clone())));
        }
    }
}

/// What makes two bindings without arguments one.
fn key<'a>(
    source: &'a str,
    destination: &'a Destination,
    pattern: &'a str,
) -> (&'a str, &'a str, bool, &'a str) {
    let (name, is_queue) = match destination {
        Destination::Queue(name) => (name, true),
        Destination::Exchange(name) => (name, false),
    };
    (source, name, is_queue, pattern)
}

fn own_policies(wanted: &Objects, live: &Live, plan: &mut Plan) {
    // Nothing is known of policies that may not be read, and nothing is planned on it.
    if live.unread.iter().any(|unread| unread.what == "policies") {
        return;
    }
    let users = live.policies.iter().filter(|p| !p.operator);
    let there: HashMap<&str, &LivePolicy> = users.map(|p| (p.name.as_str(), p)).collect();
    for policy in &wanted.policies {
        let Some(there) = there.get(policy.name.as_str()) else {
            plan.changes.push(Change::Add(Wanted::Policy(policy.clone())));
            continue;
        };
        let differences = compare::policy(policy, there);
        if !differences.is_empty() {
            plan.changes.push(Change::Edit(Edit {
                policy: policy.clone(),
                differences,
            }));
        }
    }
}

/// Whether a broker of this version can put the platform's own policies in force.
pub fn knows_own_policies(version: Version) -> bool {
    version >= CONSUMER_TIMEOUT_BY_POLICY
}
