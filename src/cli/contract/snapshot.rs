//! `tidegate contract snapshot`: golden envelopes.
//!
//! May import: `contract`.

use std::path::PathBuf;

use super::{
    Files,
    generated::{Work, deliver},
    load_whole, unreadable,
};
use crate::{
    cli::{
        failure::{Detail, Exit, Failure},
        output::Output,
    },
    contract::{generated::extra, snapshot},
};

/// Arguments of `contract snapshot`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tidegate contract snapshot --out golden
  tidegate contract snapshot --out golden --check

DIR/<taskType>/<version>.json is the body of the task that a producer makes of the
contract's first example. The same contracts give the same bytes. With --check
nothing is written; exit code 3 with the places that differ.")]
pub(in crate::cli) struct Snapshot {
    #[command(flatten)]
    files: Files,
    /// Directory of the envelopes
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Compare instead of writing
    #[arg(long)]
    check: bool,
}

impl Snapshot {
    /// Runs the command. An envelope of no contract is told of, and is never deleted.
    pub(super) fn run(self, output: Output) -> Result<(), Failure> {
        let set = load_whole(&self.files.dir)?;
        let made = snapshot(&set.catalogue).map_err(|without| {
            let details = without.iter().map(|one| Detail {
                text: one.to_string(),
                data: serde_json::json!({
                    "type": one.id.task_type.as_str(),
                    "version": one.id.version,
                    "what": one.why.to_string(),
                }),
            });
            let failure = Failure::new(
                Exit::Usage,
                "not every contract has an example that can be sent",
                format!("directory {}", self.files.dir.display()),
                "give each contract an example that `tidegate contract check` takes",
            );
            failure.with_details(details.collect())
        })?;
        let work = Work {
            dir: &self.out,
            extra: extra(&self.out, &made).map_err(|error| unreadable(&error))?,
            files: &made,
            check: self.check,
            next: "run `tidegate contract snapshot` with the same --out, and read what it changes: consumers see it too",
        };
        deliver(work, output)
    }
}
