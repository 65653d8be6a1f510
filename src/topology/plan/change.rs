//! What a plan consists of. Each part owns its data, so that it can be shown, stored and performed later.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use crate::topology::{
    Binding, Exchange, ObjectName, Policy, Queue,
    live::{LiveBinding, Unread, Version},
};

/// What stands between the broker and the topology, in the order in which it is shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Version of the broker that it was made for.
    pub version: Version,
    /// Objects that are wanted and not in the way of a running migration.
    pub wanted: usize,
    /// The differences.
    pub changes: Vec<Change>,
    /// What is as described and still risky. No difference.
    pub lints: Vec<Lint>,
    /// What is worth knowing and needs nothing now. No difference.
    pub notes: Vec<Note>,
    /// What could not be seen, and so can't be in `changes`.
    pub unread: Vec<Unread>,
}

/// One difference.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// It is not there.
    Add(Wanted),
    /// A policy of the platform's own is there and says something else: it is written anew.
    Edit(Edit),
    /// It is there, and no declaration can make it what is wanted.
    Conflict(Conflict),
    /// A migration has begun and not ended. What it touches is left alone.
    Migrating(Migrating),
    /// It is there, it counts as the platform's, and nothing wants it.
    Extra(Extra),
}

/// An object as the topology wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// An exchange.
    Exchange(Exchange),
    /// A queue.
    Queue(Queue),
    /// A binding.
    Binding(Binding),
    /// A policy.
    Policy(Policy),
}

/// A policy to be written anew.
#[derive(Clone, Debug, PartialEq)]
pub struct Edit {
    /// What it will be.
    pub policy: Policy,
    /// What differs now.
    pub differences: Vec<Difference>,
}

/// An object that is there and can't be changed in place.
#[derive(Clone, Debug, PartialEq)]
pub struct Conflict {
    /// The object.
    pub object: ObjectName,
    /// What differs, by name; never empty.
    pub differences: Vec<Difference>,
    /// What can be done, one for each cause; never empty.
    pub remedies: Vec<Remedy>,
}

/// One property that differs.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// `type`, `durable`, …, an argument (`x-overflow`), or a key that only policies have (`consumer-timeout`).
    pub name: String,
    /// What is in force on the broker; `None` if nothing is.
    pub on_broker: Option<Json>,
    /// Where that comes from.
    pub from: Origin,
    /// What is wanted; `None` if it should not be set.
    pub wanted: Option<Json>,
}

/// Where a value on the broker comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// The object was declared so.
    Declared,
    /// The policy of this name.
    Policy(String),
    /// The operator policy of this name.
    OperatorPolicy(String),
    /// Nobody said anything: the default of the broker's version.
    Default,
}

/// What can be done about a conflict.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Remedy {
    /// `tidegate topology migrate`.
    Migrate {
        /// The queue.
        queue: String,
    },
    /// `tidegate topology apply --replace-exchanges`.
    ReplaceExchange {
        /// The exchange.
        exchange: String,
    },
    /// Narrow or remove a policy.
    Policy {
        /// Its name.
        name: String,
        /// Whether it is an operator policy.
        operator: bool,
        /// What it matches now.
        pattern: String,
        /// What it should not match.
        object: String,
        /// The virtual host.
        vhost: String,
    },
    /// Somebody's connection holds the name exclusively.
    Exclusive {
        /// The queue.
        queue: String,
    },
}

/// A migration that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migrating {
    /// The queue.
    pub queue: String,
    /// What of the migration is there.
    pub leftovers: Vec<ObjectName>,
}

/// Something that nothing wants.
#[derive(Clone, Debug, PartialEq)]
pub struct Extra {
    /// What it is.
    pub object: Unwanted,
    /// Why it counts as the platform's.
    pub why: String,
    /// Messages in it, as last counted; queues only.
    pub messages: Option<u64>,
    /// Consumers of it, where known; queues only.
    pub consumers: Option<u64>,
}

/// What an extra is.
#[derive(Clone, Debug, PartialEq)]
pub enum Unwanted {
    /// A binding.
    Binding(LiveBinding),
    /// A queue.
    Queue {
        /// Its name.
        name: String,
        /// Its type.
        kind: String,
    },
    /// An exchange.
    Exchange {
        /// Its name.
        name: String,
    },
    /// A policy.
    Policy {
        /// Its name.
        name: String,
    },
}

/// Something risky that is no difference.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lint {
    /// Name of the rule.
    pub rule: &'static str,
    /// The object; `None` if it is about the broker.
    pub object: Option<ObjectName>,
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub next: String,
}

/// Something to know.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Note {
    /// What it is about.
    pub about: String,
    /// The sentence.
    pub text: String,
}

/// How many changes of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// To add.
    pub add: usize,
    /// To change in place.
    pub change: usize,
    /// That can't be changed in place.
    pub conflict: usize,
    /// Queues in migration.
    pub migrating: usize,
    /// That nothing wants.
    pub extra: usize,
}

impl Plan {
    /// Whether the broker differs from the topology. Lints and notes are no differences.
    pub fn has_differences(&self) -> bool {
        !self.changes.is_empty()
    }

    /// How many changes of each kind.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for change in &self.changes {
            let count = match change {
                Change::Add(_) => &mut counts.add,
                Change::Edit(_) => &mut counts.change,
                Change::Conflict(_) => &mut counts.conflict,
                Change::Migrating(_) => &mut counts.migrating,
                Change::Extra(_) => &mut counts.extra,
            };
            *count += 1;
        }
        counts
    }

    /// The extras.
    pub fn extras(&self) -> impl Iterator<Item = &Extra> {
        self.changes.iter().filter_map(|change| match change {
            Change::Extra(extra) => Some(extra),
            _ => None,
        })
    }

    /// The conflicts.
    pub fn conflicts(&self) -> impl Iterator<Item = &Conflict> {
        self.changes.iter().filter_map(|change| match change {
            Change::Conflict(conflict) => Some(conflict),
            _ => None,
        })
    }

    /// Sorts what it holds: by kind of change, and in it by object.
    pub(super) fn sort(&mut self) {
        self.changes
            .sort_by_cached_key(|change| (change.rank(), change.object()));
        self.lints.sort();
        self.lints.dedup();
        self.notes.sort();
    }
}

impl Change {
    /// The object.
    pub fn object(&self) -> ObjectName {
        use crate::topology::ObjectKind;
        match self {
            Self::Add(wanted) => wanted.name(),
            Self::Edit(edit) => ObjectName::new(ObjectKind::Policy, &edit.policy.name),
            Self::Conflict(conflict) => conflict.object.clone(),
            Self::Migrating(migrating) => ObjectName::new(ObjectKind::Queue, &migrating.queue),
            Self::Extra(extra) => extra.object.name(),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Add(_) => 0,
            Self::Edit(_) => 1,
            Self::Conflict(_) => 2,
            Self::Migrating(_) => 3,
            Self::Extra(_) => 4,
        }
    }

    /// Whether `other` says the same of the same object. Counts of messages and consumers may move meanwhile.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Extra(a), Self::Extra(b)) => a.object == b.object,
            (a, b) => a == b,
        }
    }
}

impl Wanted {
    /// Kind and name.
    pub fn name(&self) -> ObjectName {
        use crate::topology::{Object, ObjectKind};
        match self {
            Self::Exchange(exchange) => Object::Exchange(exchange).name(),
            Self::Queue(queue) => Object::Queue(queue).name(),
            Self::Binding(binding) => Object::Binding(binding).name(),
            Self::Policy(policy) => ObjectName::new(ObjectKind::Policy, &policy.name),
        }
    }
}

impl Unwanted {
    /// Kind and name.
    pub fn name(&self) -> ObjectName {
        use crate::topology::ObjectKind;
        match self {
            Self::Binding(b) => ObjectName::new(
                ObjectKind::Binding,
                &format!("{} → {} ({})", b.source, b.destination_name(), b.pattern),
            ),
            Self::Queue { name, .. } => ObjectName::new(ObjectKind::Queue, name),
            Self::Exchange { name } => ObjectName::new(ObjectKind::Exchange, name),
            Self::Policy { name } => ObjectName::new(ObjectKind::Policy, name),
        }
    }
}

impl LiveBinding {
    /// Name of the queue or exchange that is bound.
    pub fn destination_name(&self) -> &str {
        use tidegate_core::ladder::Destination;
        match &self.destination {
            Destination::Queue(name) | Destination::Exchange(name) => name,
        }
    }
}

impl ObjectName {
    /// A name of this kind.
    pub fn new(kind: crate::topology::ObjectKind, name: &str) -> Self {
        Self {
            kind,
            name: name.to_owned(),
        }
    }
}

/// Arguments of a wanted object as JSON.
pub(super) fn as_json(arguments: &BTreeMap<&'static str, crate::topology::Value>) -> BTreeMap<String, Json> {
    let json =
        |(name, value): (&&'static str, &crate::topology::Value)| ((*name).to_owned(), value.to_json());
    arguments.iter().map(json).collect()
}
