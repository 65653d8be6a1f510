//! What a service says about itself in `tidegate.contract.toml`: which types it produces and consumes, in which versions.
//! Reading the file is its reader's business; here is its form, and whether what it names exists.
//!
//! May import: serde, `task`, `catalogue`.

use std::{collections::HashSet, fmt};

use serde::Deserialize;

use super::catalogue::{Catalogue, is_version};
use crate::{envelope::pointer::shown, task::TaskType};

/// A service's file. Members that aren't known are refused.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Declaration {
    /// The service's name.
    pub service: String,
    /// What it sends.
    #[serde(default)]
    pub produces: Vec<Use>,
    /// What it handles.
    #[serde(default)]
    pub consumes: Vec<Use>,
}

/// A type and the versions of its payload.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Use {
    /// The task type.
    #[serde(rename = "type")]
    pub task_type: String,
    /// The versions.
    pub versions: Vec<u32>,
}

/// Whether a service sends or handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// It sends.
    Produces,
    /// It handles.
    Consumes,
}

/// Something in a declaration that doesn't match the contracts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceFinding {
    /// JSON pointer into the declaration, its tables read as objects and arrays.
    pub pointer: String,
    /// The rule.
    pub rule: ServiceRule,
    /// What is wrong, and what to do.
    pub text: String,
}

/// What must hold for a declaration, a closed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServiceRule {
    /// The service has a name, of 1 to 128 characters.
    Service,
    /// It produces or consumes something, at most 1,000 types.
    Size,
    /// A type is a task type.
    TaskType,
    /// A type stands once among what is produced, and once among what is consumed.
    Twice,
    /// A type has 1 to 64 versions from 1 to 2147483647, each once.
    Versions,
    /// There are contracts of the type.
    UnknownType,
    /// There is a contract of the version.
    UnknownVersion,
}

impl ServiceRule {
    /// Its name in output and vectors, snake_case.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Service => "service",
            Self::Size => "size",
            Self::TaskType => "task_type",
            Self::Twice => "twice",
            Self::Versions => "versions",
            Self::UnknownType => "unknown_type",
            Self::UnknownVersion => "unknown_version",
        }
    }
}

impl Role {
    /// The member of the file.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Produces => "produces",
            Self::Consumes => "consumes",
        }
    }
}

impl fmt::Display for ServiceFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.pointer, self.text, self.rule.as_str())
    }
}

/// Most types of a service.
const MAX_TYPES: usize = 1_000;

/// Most versions of a type.
const MAX_VERSIONS: usize = 64;

/// Longest name of a service in characters.
const MAX_NAME_CHARS: usize = 128;

impl Declaration {
    /// What of this declaration doesn't match `known`, in the order of the file.
    pub fn findings(&self, known: &Catalogue) -> Vec<ServiceFinding> {
        let mut found = Vec::new();
        let mut add =
            |pointer: String, rule, text: String| found.push(ServiceFinding { pointer, rule, text });
        if self.service.trim().is_empty() || self.service.chars().count() > MAX_NAME_CHARS {
            let text = format!("a service has a name of 1 to {MAX_NAME_CHARS} characters");
            add("/service".to_owned(), ServiceRule::Service, text);
        }
        let count = self.produces.len() + self.consumes.len();
        if !(1..=MAX_TYPES).contains(&count) {
            let text = format!(
                "names {count} types under \"produces\" and \"consumes\", 1 to {MAX_TYPES} are taken"
            );
            add(String::new(), ServiceRule::Size, text);
        }
        for (role, uses) in [(Role::Produces, &self.produces), (Role::Consumes, &self.consumes)] {
            let mut seen = HashSet::new();
            for (index, used) in uses.iter().enumerate().take(MAX_TYPES) {
                let at = format!("/{}/{index}", role.as_str());
                if !seen.insert(&used.task_type) {
                    let text = format!(
                        "{} stands here already; put all versions together",
                        shown(&used.task_type)
                    );
                    add(format!("{at}/type"), ServiceRule::Twice, text);
                    continue;
                }
                for (below, rule, text) in used.findings(known) {
                    add(format!("{at}{below}"), rule, text);
                }
            }
        }
        found
    }
}

impl Use {
    fn findings(&self, known: &Catalogue) -> Vec<(String, ServiceRule, String)> {
        let name = shown(&self.task_type);
        if let Err(why) = TaskType::parse(&self.task_type) {
            return vec![("/type".to_owned(), ServiceRule::TaskType, why.to_string())];
        }
        let mut distinct = HashSet::new();
        let fine = |version: &u32| is_version(*version) && distinct.insert(*version);
        if !(1..=MAX_VERSIONS).contains(&self.versions.len()) || !self.versions.iter().all(fine) {
            let text = format!("a type has 1 to {MAX_VERSIONS} versions from 1 on, each once");
            return vec![("/versions".to_owned(), ServiceRule::Versions, text)];
        }
        let Some(versions) = known.versions(&self.task_type) else {
            let text = format!("there is no contract for {name}; write {name}/1.json or correct the type");
            return vec![("/type".to_owned(), ServiceRule::UnknownType, text)];
        };
        let listed: Vec<String> = versions.iter().map(|(version, _)| version.to_string()).collect();
        let unknown = self.versions.iter().enumerate();
        let unknown = unknown.filter(|(_, version)| versions.get(**version).is_none());
        unknown
            .map(|(index, version)| {
                let text = format!("{name} has no version {version}; there are {}", listed.join(", "));
                (format!("/versions/{index}"), ServiceRule::UnknownVersion, text)
            })
            .collect()
    }
}
