//! `tidegate contract check`: what is wrong with contracts.
//!
//! May import: `contract`.

use std::path::PathBuf;

use tidegate_core::contract::compatibility::Mode;

use super::{Files, load, load_published, unreadable};
use crate::{
    cli::{
        failure::{Exit, Failure},
        output::Output,
    },
    contract::{check, github, json, junit, read_service, text},
};

/// Arguments of `contract check`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tidegate contract check
  tidegate contract check --against published --mode full-transitive
  tidegate contract check --against git:origin/main
  tidegate contract check --service services/order/tidegate.contract.toml

With --against, what is there is published: it must not change, and what is new is
compared with it. Without, the newest version of each type is compared with the
older ones. Every finding has a file, a line, a JSON pointer and a rule.
docs/contracts.md has the rules. Exit code 3 if there is a finding.")]
pub(in crate::cli) struct Check {
    #[command(flatten)]
    files: Files,
    /// Directory of the contracts that are published already, or git:REVISION[:DIR]
    #[arg(long, value_name = "DIR")]
    against: Option<String>,
    /// Which versions must be compatible: none, backward, forward or full, the last three also with -transitive
    #[arg(long, default_value = "backward-transitive", value_parser = mode)]
    mode: Mode,
    /// A service's tidegate.contract.toml, whose types and versions must exist; may be given many times
    #[arg(long, value_name = "FILE")]
    service: Vec<PathBuf>,
    /// In which form [default: text, or json with --json]
    #[arg(long, value_enum)]
    format: Option<Format>,
}

/// The forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Lines for people
    Text,
    /// One JSON object
    Json,
    /// XML that servers show as test results
    Junit,
    /// Commands that GitHub's runners show beside the lines
    Github,
}

fn mode(name: &str) -> Result<Mode, String> {
    Mode::parse(name).ok_or_else(|| {
        let names: Vec<&str> = Mode::ALL.iter().map(|(name, _)| *name).collect();
        format!("one of {}", names.join(", "))
    })
}

impl Check {
    /// Runs the command.
    pub(super) fn run(self, output: Output) -> Result<(), Failure> {
        let ours = load(&self.files.dir)?;
        let published = self.against.as_deref();
        let published = published
            .map(|against| load_published(against, &self.files.dir))
            .transpose()?;
        let services = self.service.iter().map(|file| read_service(file));
        let services: Vec<_> = services
            .collect::<Result<_, _>>()
            .map_err(|error| unreadable(&error))?;
        let report = check(&ours, published.as_ref(), self.mode, &services);
        let format = self
            .format
            .unwrap_or(if output.json { Format::Json } else { Format::Text });
        match format {
            Format::Text => output.data(&text(&report))?,
            Format::Json => output.json_line(&json(&report))?,
            Format::Junit => output.data(&junit(&report))?,
            Format::Github => output.data(&github(&report))?,
        }
        if report.items.is_empty() {
            return Ok(());
        }
        Err(Failure::new(
            Exit::Differences,
            match report.items.len() {
                1 => "there is 1 finding".to_owned(),
                count => format!("there are {count} findings"),
            },
            format!("directory {}", self.files.dir.display()),
            "each finding on stdout says what to write instead; docs/contracts.md has the rules",
        ))
    }
}
