//! What one version of a contract has that the version before has not, for people. Whom it breaks is `compatibility`.
//!
//! May import: `fields`, `extension`.

use std::collections::{BTreeMap, BTreeSet};

use super::{Contract, extension::Upcast, fields::Field};

/// A difference at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldDifference {
    /// The place, as in [`Field::path`].
    pub path: String,
    /// What is different there.
    pub kind: FieldChange,
}

/// What is different at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldChange {
    /// The place is new.
    Added {
        /// Whether the object above must have it.
        is_required: bool,
    },
    /// The place is gone.
    Removed,
    /// The place says something else: each with its name, what it was and what it is.
    Changed(Vec<(&'static str, String, String)>),
}

/// What `new` has that `old` has not: what was added and changed in the order of `new`, then what was removed. What is inside
/// of a place that is new or gone is not told of.
pub fn difference(old: &Contract, new: &Contract) -> Vec<FieldDifference> {
    let (old, new) = (old.fields(), new.fields());
    let before: BTreeMap<&str, &Field> = old.iter().map(|field| (&*field.path, field)).collect();
    let now: BTreeSet<&str> = new.iter().map(|field| &*field.path).collect();
    let mut found = Vec::new();
    for field in &new {
        let kind = match before.get(&*field.path) {
            None if is_inside(&field.path, &found) => continue,
            None => FieldChange::Added {
                is_required: field.is_required,
            },
            Some(before) => {
                let changes = changes(before, field);
                if changes.is_empty() {
                    continue;
                }
                FieldChange::Changed(changes)
            }
        };
        let path = field.path.clone();
        found.push(FieldDifference { path, kind });
    }
    for field in &old {
        if !now.contains(&*field.path) && !is_inside(&field.path, &found) {
            let path = field.path.clone();
            let kind = FieldChange::Removed;
            found.push(FieldDifference { path, kind });
        }
    }
    found
}

/// Whether `path` is inside of the last place that is new or gone; places come before what is inside of them.
fn is_inside(path: &str, found: &[FieldDifference]) -> bool {
    let mut whole = found
        .iter()
        .rev()
        .filter(|known| !matches!(known.kind, FieldChange::Changed(_)));
    let rest = whole.next().and_then(|known| path.strip_prefix(&*known.path));
    rest.is_some_and(|rest| rest.starts_with('/') || rest.starts_with(" (form "))
}

fn changes(before: &Field, now: &Field) -> Vec<(&'static str, String, String)> {
    let required = |field: &Field| if field.is_required { "required" } else { "optional" }.to_owned();
    let deprecated = |field: &Field| {
        if field.is_deprecated {
            "deprecated"
        } else {
            "in use"
        }
        .to_owned()
    };
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".to_owned());
    let mut all = vec![
        ("type", before.types.clone(), now.types.clone()),
        ("presence", required(before), required(now)),
        ("default", or_none(&before.default), or_none(&now.default)),
        ("state", deprecated(before), deprecated(now)),
    ];
    let limits = |field: &Field, name| {
        let values = field.limits.iter().filter(|(known, _)| *known == name);
        let values: Vec<&str> = values.map(|(_, value)| &**value).collect();
        if values.is_empty() {
            "none".to_owned()
        } else {
            values.join(", ")
        }
    };
    let mut names: Vec<&'static str> = Vec::new();
    for (name, _) in before.limits.iter().chain(&now.limits) {
        if !names.contains(name) {
            names.push(name);
        }
    }
    all.extend(
        names
            .into_iter()
            .map(|name| (name, limits(before, name), limits(now, name))),
    );
    all.retain(|(_, before, now)| before != now);
    all
}

impl Contract {
    /// The steps from a payload of the version before, as sentences; `None` where nothing is said about it.
    pub fn upcast_steps(&self) -> Option<Vec<String>> {
        let steps = self.extension.upcasts.as_ref()?.iter();
        let text = steps.map(|step| match step {
            Upcast::Default(at, value) => format!("{at} is {value} where it is missing"),
            Upcast::Rename(from, to) => format!("{from} becomes {to}"),
            Upcast::Remove(at) => format!("{at} is taken out"),
        });
        Some(text.collect())
    }
}
