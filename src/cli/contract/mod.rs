//! `tidegate contract`: what payloads look like. A file for each verb. Reaches neither broker nor database.
//!
//! May import: `contract`.

mod check;
mod docs;
mod generated;
mod list;
mod snapshot;

use std::path::{Path, PathBuf};

use tidegate_core::printable;

use super::{
    failure::{Detail, Exit, Failure},
    output::Output,
};
use crate::contract::{DirError, GitError, Set, read_dir, read_git};

/// Commands of `contract`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Contract {
    /// Say what is wrong with contracts, for themselves and against published ones. Exit code 3 if anything is
    Check(check::Check),
    /// Name every contract with its owner
    List(list::List),
    /// Write the catalogue of all contracts: for people, and as AsyncAPI 3
    Docs(docs::Docs),
    /// Write the envelope of each contract's example, for tests in any language
    Snapshot(snapshot::Snapshot),
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
            Self::Docs(docs) => docs.run(output),
            Self::Snapshot(snapshot) => snapshot.run(output),
        }
    }
}

/// The contracts in `dir`, of which there must be some: a check of nothing passes always.
fn load(dir: &Path) -> Result<Set, Failure> {
    let set = read_dir(dir).map_err(|error| unreadable(&error))?;
    some(set, &format!("directory {}", dir.display()))
}

/// The published contracts: a directory, or `git:REVISION[:DIR]`.
fn load_published(against: &str, ours: &Path) -> Result<Set, Failure> {
    let Some(spec) = against.strip_prefix("git:") else {
        return load(Path::new(against));
    };
    let set = read_git(spec, ours).map_err(|error| {
        let (exit, next) = match &error {
            GitError::NoGit(_) => (Exit::Failed, "install git, or name a directory"),
            GitError::NoRepository(_) => (
                Exit::Usage,
                "run it inside of the repository, or name a directory",
            ),
            GitError::NoRevision(_) => (
                Exit::Usage,
                "name a commit, branch or tag; a shallow clone has to fetch it first",
            ),
            GitError::NoDirectory(..) => (
                Exit::Usage,
                "name the directory as git:REVISION:DIR, relative to here",
            ),
            GitError::Name(_) => (Exit::Usage, "write git:REVISION or git:REVISION:DIR"),
            GitError::TooMuch => (Exit::Usage, "name the directory that holds contracts only"),
            GitError::TimedOut | GitError::Failed(_) => (Exit::Failed, "try `git ls-tree` on that revision"),
        };
        Failure::new(exit, &error, printable::line(against), next)
    })?;
    some(set, &printable::line(against))
}

fn some(set: Set, place: &str) -> Result<Set, Failure> {
    if set.files.is_empty() && set.broken.is_empty() {
        return Err(Failure::new(
            Exit::Usage,
            "there is no contract",
            place,
            "name the directory that holds files such as order.close/1.json, by --dir or --against",
        ));
    }
    Ok(set)
}

/// The contracts in `dir`, all of them: what is made of them must not leave one out unnoticed.
fn load_whole(dir: &Path) -> Result<Set, Failure> {
    let set = load(dir)?;
    if set.broken.is_empty() {
        return Ok(set);
    }
    let details = set.broken.iter().map(|item| Detail {
        text: format!(
            "{}:{}: {}",
            printable::line(&item.file),
            item.line,
            printable::line(&item.what)
        ),
        data: serde_json::json!({
            "file": item.file,
            "line": item.line,
            "pointer": item.pointer,
            "rule": item.rule,
            "what": item.what,
        }),
    });
    let failure = Failure::new(
        Exit::Usage,
        "not every file is a contract, so nothing was made of them",
        format!("directory {}", dir.display()),
        "correct what `tidegate contract check` finds",
    );
    Err(failure.with_details(details.collect()))
}

fn unreadable(error: &DirError) -> Failure {
    let (exit, path, next) = match error {
        DirError::Unreadable(path, _) | DirError::TooMany(path) => (
            Exit::Usage,
            path,
            "name a directory, or a file, of contracts that this user may read",
        ),
        DirError::Unwritable(path, _) => (
            Exit::Failed,
            path,
            "name a directory that this user may write to, with room for the files",
        ),
    };
    Failure::new(exit, error, path.display(), next)
}
