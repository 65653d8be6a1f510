//! `tidegate contract docs`: the catalogue for people and for tools.
//!
//! May import: `contract`.

use std::path::PathBuf;

use tidegate_core::names::Names;

use super::{
    Files,
    generated::{Work, deliver},
    load_whole,
};
use crate::{
    cli::{failure::Failure, output::Output},
    contract::{asyncapi, generated, html, markdown},
};

/// Arguments of `contract docs`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tidegate contract docs --out docs/contracts
  tidegate contract docs --out docs/contracts --check
  tidegate contract docs --format markdown

The same contracts give the same bytes, so the files can be kept beside the
contracts. With --check nothing is written; exit code 3 if a file isn't as the
contracts make it.")]
#[command(group = clap::ArgGroup::new("where").required(true).multiple(true))]
pub(in crate::cli) struct Docs {
    #[command(flatten)]
    files: Files,
    /// Directory to write contracts.md, contracts.html and asyncapi.json to
    #[arg(long, value_name = "DIR", group = "where")]
    out: Option<PathBuf>,
    /// Only this form; without --out to stdout
    #[arg(long, value_enum, group = "where")]
    format: Option<Format>,
    /// Compare instead of writing
    #[arg(long, requires = "out")]
    check: bool,
    /// Prefix of the platform's names on the broker, as in topology/platform.toml
    #[arg(long, value_name = "NAME", default_value = "task", value_parser = names)]
    prefix: Names,
}

/// The forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// A page of a wiki
    Markdown,
    /// A page of the web, one file
    Html,
    /// AsyncAPI 3.0, as JSON
    Asyncapi,
}

impl Format {
    const ALL: [Self; 3] = [Self::Markdown, Self::Html, Self::Asyncapi];

    const fn file(self) -> &'static str {
        match self {
            Self::Markdown => "contracts.md",
            Self::Html => "contracts.html",
            Self::Asyncapi => "asyncapi.json",
        }
    }
}

fn names(prefix: &str) -> Result<Names, String> {
    Names::new(prefix).map_err(|why| why.to_string())
}

impl Docs {
    /// Runs the command.
    pub(super) fn run(self, output: Output) -> Result<(), Failure> {
        let set = load_whole(&self.files.dir)?;
        let text = |format| match format {
            Format::Markdown => markdown(&set.catalogue),
            Format::Html => html(&set.catalogue),
            Format::Asyncapi => asyncapi(&set.catalogue, &self.prefix),
        };
        let wanted = |format: &Format| self.format.is_none_or(|wanted| wanted == *format);
        let Some(out) = &self.out else {
            // Without either the call was refused.
            return self.format.map_or(Ok(()), |format| output.data(&text(format)));
        };
        let forms = Format::ALL.into_iter().filter(wanted);
        let made: generated::Files = forms
            .map(|format| (format.file().to_owned(), text(format)))
            .collect();
        let work = Work {
            dir: out,
            files: &made,
            extra: Vec::new(),
            check: self.check,
            next: "run `tidegate contract docs` with the same --out, and keep what it writes",
        };
        deliver(work, output)
    }
}
