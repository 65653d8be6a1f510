//! `tidegate contract list`: every contract with its owner.
//!
//! May import: `contract`.

use serde_json::json;

use super::{Files, load};
use crate::cli::{
    failure::Failure,
    output::{Output, table},
};

/// Arguments of `contract list`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct List {
    #[command(flatten)]
    files: Files,
}

impl List {
    /// Runs the command. Files that are no contracts are told of on stderr, and are left out.
    pub(super) fn run(self, output: Output) -> Result<(), Failure> {
        let set = load(&self.files.dir)?;
        for item in &set.broken {
            output.message(&format!("warning: {}: {} (left out)", item.file, item.what));
        }
        let mut rows = Vec::new();
        for (task_type, versions) in set.catalogue.iter() {
            for (version, contract) in versions.iter() {
                let key = contract.idempotency_key().map(ToString::to_string);
                if output.json {
                    output.json_line(&json!({
                        "type": task_type.as_str(),
                        "version": version,
                        "title": contract.title(),
                        "owner": contract.owner(),
                        "idempotencyKey": key,
                        "upcasts": contract.has_upcasts(),
                    }))?;
                }
                let or_none = |text: Option<&str>| text.unwrap_or("-").to_owned();
                rows.push(vec![
                    task_type.to_string(),
                    version.to_string(),
                    or_none(contract.owner()),
                    or_none(key.as_deref()),
                    or_none(contract.title()),
                ]);
            }
        }
        if output.json {
            return Ok(());
        }
        output.data(&table(&["TYPE", "VERSION", "OWNER", "KEY", "TITLE"], rows))
    }
}
