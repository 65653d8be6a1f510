//! The golden envelopes of all contracts, as files. Pure.
//!
//! May import: `core`, `generated` (files by name).

use tidegate_core::contract::{Catalogue, ContractId, GoldenError, golden};

use super::generated::Files;

/// A contract that has no golden envelope.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{id}: {why}")]
pub struct NotGolden {
    /// The contract.
    pub id: ContractId,
    /// Why it has none.
    pub why: GoldenError,
}

/// The golden envelope of every contract, in `<taskType>/<version>.json`.
///
/// # Errors
/// Every contract that has none.
pub fn snapshot(catalogue: &Catalogue) -> Result<Files, Vec<NotGolden>> {
    let (mut files, mut without) = (Files::new(), Vec::new());
    for (task_type, versions) in catalogue.iter() {
        for (version, contract) in versions.iter() {
            let id = ContractId {
                task_type: task_type.clone(),
                version,
            };
            match golden(&id, contract) {
                Ok(text) => drop(files.insert(id.path(), text)),
                Err(why) => without.push(NotGolden { id, why }),
            }
        }
    }
    if without.is_empty() {
        Ok(files)
    } else {
        Err(without)
    }
}
