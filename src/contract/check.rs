//! Everything that is wrong with a set of contracts: each for itself, against the published ones, and against what services
//! declare. Pure: it takes what was read.
//!
//! May import: `core`, `files`.

use tidegate_core::contract::{
    Catalogue, ContractId,
    compatibility::{self, Breaks, Direction, Mode},
};

use super::files::{Service, Set};

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The file.
    pub file: String,
    /// The line in it, from 1.
    pub line: usize,
    /// JSON pointer into the file.
    pub pointer: String,
    /// The rule, snake_case.
    pub rule: &'static str,
    /// What is wrong.
    pub what: String,
    /// What to do about it; empty if `what` says so.
    pub next: &'static str,
    /// For a change: against which version, and who reads whose payloads.
    pub change: Option<(u32, Direction)>,
}

/// What was checked, and what was found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The files that were checked, by name.
    pub files: Vec<String>,
    /// What is wrong, by file.
    pub items: Vec<Item>,
}

impl Item {
    /// Something wrong with a whole file.
    pub(super) fn of_file(file: &str, line: usize, rule: &'static str, what: String) -> Self {
        Self {
            file: file.to_owned(),
            line,
            pointer: String::new(),
            rule,
            what,
            next: "",
            change: None,
        }
    }

    /// Who breaks by it; nobody but the writer if it is no change.
    pub fn breaks(&self) -> &'static [Breaks] {
        self.change.map_or(&[], |(_, direction)| direction.breaks())
    }
}

/// Checks `ours`. With `published`, what is published must be there unchanged, and what is not is compared with the versions
/// before it; without, the newest version of each type is.
pub fn check(ours: &Set, published: Option<&Set>, mode: Mode, services: &[Service]) -> Report {
    let mut report = Report::default();
    report
        .files
        .extend(ours.files.values().map(|stored| stored.path.clone()));
    report
        .files
        .extend(ours.broken.iter().map(|item| item.file.clone()));
    report.items.extend(ours.broken.iter().cloned());
    if let Some(published) = published {
        report.items.extend(published.broken.iter().cloned());
        unchanged(ours, published, &mut report);
    }
    let is_published = |id: &ContractId| published.is_some_and(|set| set.files.contains_key(id));
    let all = together(ours, published);
    for (id, stored) in &ours.files {
        let Some(versions) = all.versions(id.task_type.as_str()) else {
            continue;
        };
        // What is published can't be corrected but by another version.
        if is_published(id) {
            continue;
        }
        let findings = versions.get(id.version).map(|contract| contract.findings());
        for finding in findings.into_iter().flatten() {
            report.items.push(Item {
                file: stored.path.clone(),
                line: stored.line_of(&finding.pointer),
                pointer: finding.pointer,
                rule: finding.rule.as_str(),
                what: finding.what,
                next: finding.advice,
                change: None,
            });
        }
        if published.is_none() && versions.newest() != Some(id.version) {
            continue;
        }
        for change in compatibility::check(versions, id.version, mode) {
            report.items.push(Item {
                file: stored.path.clone(),
                line: stored.line_of(&change.pointer),
                pointer: change.pointer,
                rule: change.rule.as_str(),
                what: change.text,
                next: match change.direction {
                    Direction::Backward => {
                        "keep what the older version sends valid, or declare \"upcasts\" that make it so"
                    }
                    Direction::Forward => {
                        "deploy every consumer with the new version first, or keep what it sends valid for the old"
                    }
                },
                change: Some((change.against, change.direction)),
            });
        }
    }
    for service in services {
        declared(service, &all, &mut report);
    }
    report.files.sort();
    report.files.dedup();
    report
        .items
        .sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
    report
}

/// What is published and was changed or taken away.
fn unchanged(ours: &Set, published: &Set, report: &mut Report) {
    for id in published.files.keys() {
        let get = |set: &Set| {
            let versions = set.catalogue.versions(id.task_type.as_str());
            versions.and_then(|versions| versions.get(id.version)).cloned()
        };
        let (rule, what, file) = match (get(ours), get(published)) {
            (Some(now), Some(then)) if now.same(&then) => continue,
            (Some(_), _) => {
                let file = ours.files.get(id).map(|now| now.path.clone()).unwrap_or_default();
                (
                    "published_changed",
                    "this version is published, and was changed",
                    file,
                )
            }
            (None, _) => {
                let file = format!("{}/{}", ours.dir.display(), id.path());
                // One that can't be read is told of already.
                if ours.broken.iter().any(|item| item.file == file) {
                    continue;
                }
                (
                    "published_removed",
                    "this version is published, and isn't there",
                    file,
                )
            }
        };
        let mut item = Item::of_file(&file, 1, rule, what.to_owned());
        item.next = "put it back as it was, and write what is new as another version: tasks of this version may be delayed or dead";
        if !report.files.contains(&file) {
            report.files.push(file);
        }
        report.items.push(item);
    }
}

/// The published contracts and ours, where both have one the published.
fn together(ours: &Set, published: Option<&Set>) -> Catalogue {
    let mut all = ours.catalogue.clone();
    for (task_type, versions) in published.into_iter().flat_map(|set| set.catalogue.iter()) {
        for (version, contract) in versions.iter() {
            let id = ContractId {
                task_type: task_type.clone(),
                version,
            };
            all.insert(id, contract.clone());
        }
    }
    all
}

fn declared(service: &Service, known: &Catalogue, report: &mut Report) {
    report.files.push(service.file.clone());
    let declaration = match &service.declaration {
        Ok(declaration) => declaration,
        Err(item) => return report.items.push(item.clone()),
    };
    for finding in declaration.findings(known) {
        let mut item = Item::of_file(&service.file, 1, finding.rule.as_str(), finding.text);
        item.pointer = finding.pointer;
        report.items.push(item);
    }
}
