//! What both pages say, before either writes it down.
//!
//! May import: `core`.

use tidegate_core::{
    contract::{
        Catalogue, Contract, Field, FieldChange, Versions,
        compatibility::{self, Change, Direction, Mode},
        difference,
    },
    json_text::{Document, Limits},
};

/// Most findings of the comparison that are listed for one version and direction.
const MAX_CHANGES: usize = 20;

/// Everything about one type.
pub(super) struct TypePage {
    pub(super) name: String,
    /// The newest first, never none.
    pub(super) versions: Vec<VersionPage>,
}

/// Everything about one version.
pub(super) struct VersionPage {
    pub(super) version: u32,
    pub(super) title: String,
    pub(super) description: Option<String>,
    pub(super) owner: String,
    pub(super) key: Option<String>,
    pub(super) fields: Vec<Field>,
    /// The first example, in lines.
    pub(super) example: Option<String>,
    /// The version before, and what is different since.
    pub(super) since: Option<(u32, Vec<Sentence>)>,
}

/// A sentence of our words and of values.
pub(super) type Sentence = Vec<Piece>;

pub(super) enum Piece {
    Words(String),
    Value(String),
}

/// Every type, by name.
pub(super) fn pages(catalogue: &Catalogue) -> Vec<TypePage> {
    let types = catalogue.iter().map(|(name, versions)| TypePage {
        name: name.to_string(),
        versions: versions
            .iter()
            .rev()
            .map(|(version, contract)| page(versions, version, contract))
            .collect(),
    });
    types.collect()
}

fn page(versions: &Versions, version: u32, contract: &Contract) -> VersionPage {
    let before = versions.iter().rev().find(|(older, _)| *older < version);
    VersionPage {
        version,
        title: contract.title().unwrap_or_default().trim().to_owned(),
        description: contract.description().map(|text| text.trim().to_owned()),
        owner: contract.owner().unwrap_or("nobody").to_owned(),
        key: contract.idempotency_key().map(ToString::to_string),
        fields: contract.fields(),
        example: contract.examples().next().map(|text| {
            // A part of a contract that was read.
            Document::parse(text.as_bytes(), &Limits::standard())
                .map_or(text.to_owned(), |text| text.pretty())
        }),
        since: before.map(|(older, old)| (older, since(versions, (older, old), (version, contract)))),
    }
}

fn since(
    versions: &Versions,
    (older, old): (u32, &Contract),
    (version, new): (u32, &Contract),
) -> Vec<Sentence> {
    let mut told = Vec::new();
    let owner = |contract: &Contract| contract.owner().unwrap_or("nobody").to_owned();
    let key = |contract: &Contract| {
        contract
            .idempotency_key()
            .map_or("none".to_owned(), ToString::to_string)
    };
    for (name, was, is) in [
        ("Owner ", owner(old), owner(new)),
        ("Idempotency key ", key(old), key(new)),
    ] {
        if was != is {
            told.push(vec![words(name), value(was), words(" → "), value(is)]);
        }
    }
    told.extend(difference(old, new).into_iter().map(|difference| {
        let path = place(&difference.path);
        match difference.kind {
            FieldChange::Added { is_required: true } => vec![words("Added "), path, words(", required")],
            FieldChange::Added { is_required: false } => vec![words("Added "), path],
            FieldChange::Removed => vec![words("Removed "), path],
            FieldChange::Changed(changes) => {
                let mut sentence = vec![words("Changed "), path];
                for (at, (name, was, is)) in changes.into_iter().enumerate() {
                    let sign = if at == 0 { ": " } else { "; " };
                    sentence.extend([
                        words(&format!("{sign}{name} ")),
                        value(was),
                        words(" → "),
                        value(is),
                    ]);
                }
                sentence
            }
        }
    }));
    told.push(upcasts(older, new));
    let changes = compatibility::check(versions, version, Mode::Full);
    for direction in [Direction::Backward, Direction::Forward] {
        let changes: Vec<&Change> = changes
            .iter()
            .filter(|change| change.direction == direction)
            .collect();
        if changes.is_empty() {
            continue;
        }
        let whom: Vec<&str> = direction.breaks().iter().map(|breaks| breaks.text()).collect();
        let mut sentence = vec![words(&format!(
            "Breaks {} of version {older}: ",
            whom.join(" and ")
        ))];
        for (at, change) in changes.iter().take(MAX_CHANGES).enumerate() {
            let sign = if at == 0 { "" } else { "; " };
            sentence.extend([
                words(sign),
                place(&change.pointer),
                words(&format!(" ({})", change.text)),
            ]);
        }
        if changes.len() > MAX_CHANGES {
            sentence.push(words(&format!("; and {} more", changes.len() - MAX_CHANGES)));
        }
        told.push(sentence);
    }
    told
}

fn upcasts(older: u32, new: &Contract) -> Sentence {
    match new.upcast_steps() {
        None => vec![words(&format!("Payloads of version {older} are not up-cast"))],
        Some(steps) if steps.is_empty() => vec![words(&format!(
            "Payloads of version {older} are taken as they are"
        ))],
        Some(steps) => {
            let mut sentence = vec![words(&format!("Payloads of version {older} are up-cast: "))];
            for (at, step) in steps.into_iter().enumerate() {
                if at > 0 {
                    sentence.push(words("; "));
                }
                sentence.push(value(step));
            }
            sentence
        }
    }
}

/// A field's path, the whole payload's by its name.
fn place(path: &str) -> Piece {
    if path.is_empty() {
        words("the payload")
    } else {
        value(path.to_owned())
    }
}

fn words(text: &str) -> Piece {
    Piece::Words(text.to_owned())
}

fn value(text: String) -> Piece {
    Piece::Value(text)
}

/// What is said of a field beside its place and type.
pub(super) fn rules(field: &Field) -> Vec<Sentence> {
    let mut rules: Vec<Sentence> = Vec::new();
    for (name, limit) in &field.limits {
        rules.push(vec![words(name), words(" "), value(limit.clone())]);
    }
    if let Some(default) = &field.default {
        rules.push(vec![words("default "), value(default.clone())]);
    }
    if field.is_deprecated {
        rules.push(vec![words("deprecated")]);
    }
    rules
}

/// Whether the object above must have it; nothing for what is no member.
pub(super) fn presence(field: &Field) -> &'static str {
    match field.path.rsplit('/').next() {
        Some("*" | "") | None => "",
        Some(step) if step.contains(" (form ") => "",
        _ if field.is_required => "required",
        _ => "optional",
    }
}
