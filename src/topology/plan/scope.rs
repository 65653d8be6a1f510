//! What a plan is about: which objects of the broker count as the platform's, and which are let be. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tidegate_core::names::Names;

use crate::topology::{BusinessQueue, Objects, Topology, live::Live};

/// What a plan needs to know beside the wanted objects and the broker's; [`Topology::scope`] makes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scope {
    /// Names under the platform's prefix.
    pub names: Names,
    /// The virtual host, for the commands that a plan advises.
    pub vhost: String,
    /// Other generations of the ladder that are on the broker.
    pub generations: Vec<Generation>,
    /// The longest run that each queue allows its tasks, where that is known.
    pub max_timeouts: BTreeMap<String, Duration>,
    /// What is never an extra: names, in which `*` stands for any text.
    pub ignore: Vec<String>,
}

/// A generation of the ladder that is not the one in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generation {
    /// Its number.
    pub version: u8,
    /// What must exist while it does: bindings on its `due`.
    pub due: Objects,
}

impl Topology {
    /// What a plan for this topology is about, on the virtual host that was read as `live`.
    pub fn scope(&self, vhost: &str, live: &Live) -> Scope {
        let longest = |queue: &BusinessQueue| Some((queue.name.clone(), queue.max_timeout?));
        let mut scope = Scope {
            names: self.names.clone(),
            vhost: vhost.to_owned(),
            max_timeouts: self.queues.iter().filter_map(longest).collect(),
            ..Scope::default()
        };
        let due = |version| Generation {
            version,
            due: self.retired_ladder(version),
        };
        scope.generations = scope.other_generations(live).into_iter().map(due).collect();
        scope
    }
}

impl Scope {
    /// The other generations of the ladder that `live` has anything of.
    pub fn other_generations(&self, live: &Live) -> BTreeSet<u8> {
        let names = live.exchanges.iter().map(|e| &e.name);
        names
            .chain(live.queues.iter().map(|q| &q.name))
            .filter_map(|name| self.generation_of(name))
            .filter(|version| *version != self.names.ladder_version())
            .collect()
    }

    /// The generation that a name is of.
    pub(super) fn generation_of(&self, name: &str) -> Option<u8> {
        let rest = self.own(name)?.strip_prefix("delay.v")?;
        let (version, rest) = rest.split_once('.')?;
        let version = version.parse().ok()?;
        let levels = |text: &str| !text.is_empty() && text.split('.').all(|word| word.len() == 1);
        (rest == "due" || levels(rest)).then_some(version)
    }

    /// Whether `name` is of a generation that is not the one in use.
    pub(super) fn is_other_generation(&self, name: &str) -> bool {
        self.generation_of(name)
            .is_some_and(|version| version != self.names.ladder_version())
    }

    /// What follows the prefix and its dot, of names that have them.
    pub(super) fn own<'a>(&self, name: &'a str) -> Option<&'a str> {
        name.strip_prefix(self.names.prefix())?.strip_prefix('.')
    }

    /// Whether `name` is let be.
    pub(super) fn ignores(&self, name: &str) -> bool {
        self.ignore.iter().any(|pattern| fits(pattern, name))
    }
}

/// Whether `*` for any text makes `pattern` the same as `name`.
fn fits(pattern: &str, name: &str) -> bool {
    let mut pieces = pattern.split('*');
    let Some(mut rest) = pieces.next().and_then(|first| name.strip_prefix(first)) else {
        return false;
    };
    if !pattern.contains('*') {
        return rest.is_empty();
    }
    let pieces: Vec<&str> = pieces.collect();
    let (last, between) = pieces.split_last().unwrap_or((&"", &[]));
    for piece in between {
        match rest.find(piece) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_any_text() {
        for (pattern, name, fits_it) in [
            ("audit", "audit", true),
            ("audit", "audit.x", false),
            ("audit*", "audit.x", true),
            ("*.tap", "a.b.tap", true),
            ("*.tap", "a.tap.b", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("a*a", "a", false),
            ("*", "", true),
        ] {
            assert_eq!(fits(pattern, name), fits_it, "{pattern} {name}");
        }
    }

    #[test]
    fn a_generation_is_read_from_a_name() {
        let scope = Scope::default();
        for (name, version) in [
            ("task.delay.v1.due", Some(1)),
            ("task.delay.v2.6", Some(2)),
            ("task.delay.v2.6.a", Some(2)),
            ("task.delay.v2.extra", None),
            ("task.delay.30m", None),
            ("task.delay.video", None),
            ("other.delay.v1.due", None),
        ] {
            assert_eq!(scope.generation_of(name), version, "{name}");
        }
    }
}
