//! Which contracts exist: per task type the versions, in files `<taskType>/<version>.json`.
//!
//! May import: `task`, `upcast`.

use std::{collections::BTreeMap, fmt};

use super::{Contract, upcast, upcast::UpcastError};
use crate::task::TaskType;

/// Which contract: the type of a task and the version of its payload.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContractId {
    /// The type.
    pub task_type: TaskType,
    /// The payload's version, 1 to 2147483647.
    pub version: u32,
}

/// Why a path names no contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidContractId {
    /// Not `<taskType>/<version>.json`.
    #[error("a contract stands in <taskType>/<version>.json, such as order.close/1.json")]
    Path,
    /// The directory is no task type.
    #[error("the directory is no task type: {0}")]
    TaskType(#[from] crate::task::InvalidName),
    /// The file is no version.
    #[error("a version is a whole number from 1 to 2147483647, without leading zeros")]
    Version,
}

impl ContractId {
    /// The contract in the file `path`, relative to the directory of all, with `/` between its parts.
    ///
    /// # Errors
    /// The part of the path that is wrong.
    pub fn of_path(path: &str) -> Result<Self, InvalidContractId> {
        let (task_type, file) = path.split_once('/').ok_or(InvalidContractId::Path)?;
        let version = file.strip_suffix(".json").ok_or(InvalidContractId::Path)?;
        if version.contains('/') {
            return Err(InvalidContractId::Path);
        }
        Ok(Self {
            task_type: TaskType::parse(task_type)?,
            version: parse_version(version).ok_or(InvalidContractId::Version)?,
        })
    }

    /// Where it stands, relative to the directory of all.
    pub fn path(&self) -> String {
        format!("{}/{}.json", self.task_type, self.version)
    }
}

impl fmt::Display for ContractId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} version {}", self.task_type, self.version)
    }
}

fn parse_version(text: &str) -> Option<u32> {
    let digits = !text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit());
    let version = text.parse().ok().filter(|_| digits)?;
    is_version(version).then_some(version)
}

/// Whether it is in the range of `payloadVersion`.
pub(crate) fn is_version(version: u32) -> bool {
    (1..=i32::MAX.unsigned_abs()).contains(&version)
}

/// The versions of one type.
#[derive(Clone, Debug, Default)]
pub struct Versions {
    contracts: BTreeMap<u32, Contract>,
}

impl Versions {
    /// Adds a version, or replaces it.
    pub fn insert(&mut self, version: u32, contract: Contract) {
        self.contracts.insert(version, contract);
    }

    /// The contract of `version`.
    pub fn get(&self, version: u32) -> Option<&Contract> {
        self.contracts.get(&version)
    }

    /// Every version, the oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u32, &Contract)> {
        self.contracts
            .iter()
            .map(|(version, contract)| (*version, contract))
    }

    /// The newest version.
    pub fn newest(&self) -> Option<u32> {
        self.contracts.keys().next_back().copied()
    }

    /// Versions below `version`, the newest first.
    pub(crate) fn below(&self, version: u32) -> impl Iterator<Item = (u32, &Contract)> {
        let below = self.contracts.range(..version).rev();
        below.map(|(version, contract)| (*version, contract))
    }

    /// The contracts that lead from `from` to `to`, each with its version, `to` last; empty for the same version.
    pub(crate) fn way(&self, from: u32, to: u32) -> impl Iterator<Item = (u32, &Contract)> {
        let way = (from < to).then(|| self.contracts.range(from + 1..=to));
        way.into_iter()
            .flatten()
            .map(|(version, contract)| (*version, contract))
    }

    /// Whether each contract from `from` to `to` says how a payload gets there.
    pub fn can_upcast(&self, from: u32, to: u32) -> bool {
        let known = self.get(from).is_some() && self.get(to).is_some();
        known && from <= to && self.way(from, to).all(|(_, contract)| contract.has_upcasts())
    }

    /// A payload of version `from` as one of version `to`, by the steps that the versions between declare. Nothing but
    /// what they name changes by a byte.
    ///
    /// # Errors
    /// A version that isn't known or says nothing about the one before, a step that can't be taken, or a result that isn't
    /// valid. See [`UpcastError`].
    pub fn upcast(&self, payload: &str, from: u32, to: u32) -> Result<String, UpcastError> {
        upcast::along(self, payload, from, to)
    }
}

/// All contracts.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    types: BTreeMap<TaskType, Versions>,
}

impl Catalogue {
    /// Adds a contract, or replaces it.
    pub fn insert(&mut self, id: ContractId, contract: Contract) {
        let versions = self.types.entry(id.task_type).or_default();
        versions.insert(id.version, contract);
    }

    /// The versions of a type.
    pub fn versions(&self, task_type: &str) -> Option<&Versions> {
        self.types.get(&TaskType::parse(task_type).ok()?)
    }

    /// Every type with its versions, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&TaskType, &Versions)> {
        self.types.iter()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.types.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_type_and_a_version() {
        let id = ContractId::of_path("order.close/12.json").unwrap();
        assert_eq!((id.task_type.as_str(), id.version), ("order.close", 12));
        assert_eq!(id.path(), "order.close/12.json");
        for (path, why) in [
            ("order.close.json", InvalidContractId::Path),
            ("order.close/1.yaml", InvalidContractId::Path),
            ("order.close/a/1.json", InvalidContractId::Path),
            ("order.close/0.json", InvalidContractId::Version),
            ("order.close/01.json", InvalidContractId::Version),
            ("order.close/+1.json", InvalidContractId::Version),
            ("order.close/2147483648.json", InvalidContractId::Version),
            ("order.close/v1.json", InvalidContractId::Version),
        ] {
            assert_eq!(ContractId::of_path(path), Err(why), "{path}");
        }
        let not_a_type = ContractId::of_path("Order/1.json");
        assert!(matches!(not_a_type, Err(InvalidContractId::TaskType(_))));
    }
}
