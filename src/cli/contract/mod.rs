//! `tidegate contract`: what payloads look like. A file for each verb. Reaches neither broker nor database.
//!
//! May import: `contract`.

mod check;
mod list;

use std::path::{Path, PathBuf};

use super::{
    failure::{Exit, Failure},
    output::Output,
};
use crate::contract::{DirError, Set, read_dir};

/// Commands of `contract`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Contract {
    /// Say what is wrong with contracts, for themselves and against published ones. Exit code 3 if anything is
    Check(check::Check),
    /// Name every contract with its owner
    List(list::List),
}

/// Where the contracts are.
#[derive(Debug, clap::Args)]
struct Files {
    /// Directory of the contracts, in files TYPE/VERSION.json
    #[arg(long, default_value = "contracts")]
    dir: PathBuf,
}

impl Contract {
    /// Runs the command.
    pub(super) fn run(self, output: Output) -> Result<(), Failure> {
        match self {
            Self::Check(check) => check.run(output),
            Self::List(list) => list.run(output),
        }
    }
}

/// The contracts in `dir`, of which there must be some: a check of nothing passes always.
fn load(dir: &Path) -> Result<Set, Failure> {
    let set = read_dir(dir).map_err(|error| unreadable(&error))?;
    if set.files.is_empty() && set.broken.is_empty() {
        return Err(Failure::new(
            Exit::Usage,
            "there is no contract",
            format!("directory {}", dir.display()),
            "name the directory that holds files such as order.close/1.json, by --dir or --against",
        ));
    }
    Ok(set)
}

fn unreadable(error: &DirError) -> Failure {
    let (DirError::Unreadable(path, _) | DirError::TooMany(path)) = error;
    Failure::new(
        Exit::Usage,
        error,
        path.display(),
        "name a directory, or a file, of contracts that this user may read",
    )
}
