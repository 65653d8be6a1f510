//! Whom a new version of a contract breaks, before anybody is broken.
//!
//! **Backward**: readers of the new version read payloads of the old. What fails it breaks producers that still send the
//! old version, and the tasks that are delayed or dead already. **Forward**: readers of the old version read payloads of
//! the new. What fails it breaks consumers that are not yet deployed anew. A plain mode compares with the version before,
//! a transitive one with every version before: a task may sleep for ninety days, and a dead letter for longer.
//!
//! What the new contract up-casts is compared as it comes out of the up-cast.
//!
//! The answer is safe, not complete: without findings every payload passes; a finding says that one may not.
//!
//! May import: `schema`, `catalogue`, `extension`.

mod extent;
mod inclusion;
mod upcasted;

use std::fmt;

use super::{catalogue::Versions, error::Shown, schema::Schema};

/// What must be compatible with what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Nothing is compared.
    None,
    /// New readers, payloads of the version before.
    Backward,
    /// New readers, payloads of every version before.
    BackwardTransitive,
    /// Readers of the version before, new payloads.
    Forward,
    /// Readers of every version before, new payloads.
    ForwardTransitive,
    /// Both with the version before.
    Full,
    /// Both with every version before.
    FullTransitive,
}

impl Mode {
    /// Every mode, by its name on the command line.
    pub const ALL: [(&'static str, Self); 7] = [
        ("none", Self::None),
        ("backward", Self::Backward),
        ("backward-transitive", Self::BackwardTransitive),
        ("forward", Self::Forward),
        ("forward-transitive", Self::ForwardTransitive),
        ("full", Self::Full),
        ("full-transitive", Self::FullTransitive),
    ];

    /// The mode called `name`: in any case, with `-` or `_`.
    pub fn parse(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase().replace('_', "-");
        Self::ALL.iter().find(|(known, _)| *known == name).map(|m| m.1)
    }

    /// Its name on the command line.
    pub fn as_str(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(_, mode)| *mode == self)
            .map_or("none", |m| m.0)
    }

    const fn looks_backward(self) -> bool {
        !matches!(self, Self::None | Self::Forward | Self::ForwardTransitive)
    }

    const fn looks_forward(self) -> bool {
        !matches!(self, Self::None | Self::Backward | Self::BackwardTransitive)
    }

    const fn is_transitive(self) -> bool {
        matches!(
            self,
            Self::BackwardTransitive | Self::ForwardTransitive | Self::FullTransitive
        )
    }
}

/// Who reads whose payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// New readers, old payloads.
    Backward,
    /// Old readers, new payloads.
    Forward,
}

/// Who or what breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Breaks {
    /// Services that still send the old version.
    OldProducers,
    /// Workers that still read the old version.
    OldConsumers,
    /// Tasks of the old version that wait for their time, or are dead letters to be replayed.
    TasksInFlight,
}

impl Breaks {
    /// Its name in output and vectors, snake_case.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OldProducers => "old_producers",
            Self::OldConsumers => "old_consumers",
            Self::TasksInFlight => "tasks_in_flight",
        }
    }

    /// For people.
    pub const fn text(self) -> &'static str {
        match self {
            Self::OldProducers => "old producers",
            Self::OldConsumers => "old consumers",
            Self::TasksInFlight => "tasks already delayed or dead",
        }
    }
}

impl Direction {
    /// Its name in output and vectors, snake_case.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Backward => "backward",
            Self::Forward => "forward",
        }
    }

    /// Who breaks by what fails it.
    pub const fn breaks(self) -> &'static [Breaks] {
        match self {
            Self::Backward => &[Breaks::OldProducers, Breaks::TasksInFlight],
            Self::Forward => &[Breaks::OldConsumers],
        }
    }
}

/// A change that breaks somebody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// JSON pointer into the new contract; of what it no longer has, where it would stand.
    pub pointer: String,
    /// What changed.
    pub rule: ChangeRule,
    /// Who reads whose payloads, and so who breaks.
    pub direction: Direction,
    /// The older version.
    pub against: u32,
    /// What is refused, by whom.
    pub text: String,
}

/// What can change so that a payload of one version breaks another, a closed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ChangeRule {
    /// The reader takes fewer types.
    Type,
    /// The reader knows fewer values.
    Enum,
    /// The reader takes fewer lengths of text.
    Length,
    /// The reader has another pattern.
    Pattern,
    /// The reader has another format.
    Format,
    /// The reader takes a smaller range of numbers.
    Range,
    /// The reader takes fewer lengths of arrays.
    Items,
    /// The reader takes no value twice.
    Unique,
    /// The reader requires a member that may be missing.
    Required,
    /// The reader doesn't know a member.
    UnknownField,
    /// The reader takes fewer members.
    Properties,
    /// No branch of the reader's `anyOf` takes all that is sent.
    AnyOf,
    /// A step of an up-cast that can fail, or that can't be followed.
    Upcast,
}

impl ChangeRule {
    /// Its name in output and vectors, snake_case.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Type => "type",
            Self::Enum => "enum",
            Self::Length => "length",
            Self::Pattern => "pattern",
            Self::Format => "format",
            Self::Range => "range",
            Self::Items => "items",
            Self::Unique => "unique",
            Self::Required => "required",
            Self::UnknownField => "unknown_field",
            Self::Properties => "properties",
            Self::AnyOf => "any_of",
            Self::Upcast => "upcast",
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let broken: Vec<&str> = self.direction.breaks().iter().map(|b| b.text()).collect();
        write!(
            f,
            "{}: {} ({} against version {}); breaks {}",
            Shown(&self.pointer),
            self.text,
            self.rule.as_str(),
            self.against,
            broken.join(", ")
        )
    }
}

/// Most changes that one comparison of two versions tells of.
pub const MAX_CHANGES: usize = 100;

/// What `version` changes against the older of `versions` that breaks `mode`: the newest of these first, backward before
/// forward. Empty if `version` isn't known or is the first.
pub fn check(versions: &Versions, version: u32, mode: Mode) -> Vec<Change> {
    let Some(new) = versions.get(version) else {
        return Vec::new();
    };
    let mut changes = Vec::new();
    let most = if mode.is_transitive() { usize::MAX } else { 1 };
    for (against, old) in versions.below(version).take(most) {
        if mode.looks_backward() {
            changes.extend(backward(versions, against, version, &old.schema, &new.schema));
        }
        if mode.looks_forward() {
            let found = inclusion::check(&new.schema, &old.schema, inclusion::New::Sent);
            let named = |(pointer, rule, text)| Change {
                pointer,
                rule,
                direction: Direction::Forward,
                against,
                text,
            };
            changes.extend(found.into_iter().map(named));
        }
    }
    changes
}

/// Payloads of `against`, up-cast where every version on the way declares it, before the readers of `version`.
fn backward(versions: &Versions, against: u32, version: u32, old: &Schema, new: &Schema) -> Vec<Change> {
    let mut sent = old.clone();
    let mut found = Vec::new();
    if versions.can_upcast(against, version) {
        for (at, contract) in versions.way(against, version) {
            let steps = contract.extension.upcasts.iter().flatten().enumerate();
            for (index, step) in steps {
                if let Err(text) = upcasted::step(&mut sent, step) {
                    let pointer = match at == version {
                        true => format!("/x-tidegate/upcasts/{index}"),
                        // It stands in another file.
                        false => "/x-tidegate/upcasts".to_owned(),
                    };
                    let text = format!("version {at}, step {index}: {text}");
                    found.push((pointer, ChangeRule::Upcast, text));
                }
            }
        }
    }
    found.extend(inclusion::check(&sent, new, inclusion::New::Reader));
    found.truncate(MAX_CHANGES);
    let named = |(pointer, rule, text)| Change {
        pointer,
        rule,
        direction: Direction::Backward,
        against,
        text,
    };
    found.into_iter().map(named).collect()
}
