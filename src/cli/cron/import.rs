//! `tidegate cron import`: the schedules of a crontab file.
//!
//! May import: `scheduler::admin`, `store`, `services`. The whole file is read and checked, here and against the
//! ledger, before anything is written; then all of it is written in one transaction.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Read},
    path::PathBuf,
};

use serde_json::json;

use super::{
    Detail, Exit, Failure, Output,
    add::{as_json, did},
    crontab::{self, Crontab, Entry, Reading},
    escaped, of_admin, services, shown, table,
};
use crate::{
    config::Config,
    scheduler::admin::{self, AdminError, MAX_DEFINITIONS, Placed, PutOptions},
    store::{
        Store,
        cron_admin::{Change, Definition, Scope},
    },
};

/// Most bytes of a crontab.
const MAX_BYTES: u64 = 8 * 1024 * 1024;

const EXAMPLES: &str = "\
A line is a schedule (5 or 6 fields, or a macro), a task type and its payload; CRON_TZ= sets the zone of the lines below:

  CRON_TZ=Europe/Berlin
  # name: morning-report
  0 9 * * mon-fri  report.make {\"of\": \"{{scheduled_date}}\"}

Nothing is written unless all of it is fine. Exit code 2: lines that can't be used; 5: schedules of these names that
are defined otherwise.";

/// Arguments of `cron import`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Import {
    /// Crontab file; `-` is stdin
    file: PathBuf,
    /// IANA time zone of lines below no CRON_TZ=
    #[arg(long, default_value = "UTC")]
    zone: String,
    /// Take lines that are shell commands as tasks of this type, with the payload {"command": …}
    #[arg(long, value_name = "TYPE")]
    command_type: Option<String>,
    /// Who answers for the schedules that are added
    #[arg(long)]
    owner: Option<String>,
    /// Change schedules that differ in expression, zone, type or payload; the rest of them stays
    #[arg(long)]
    replace: bool,
    /// Only say what would happen
    #[arg(long)]
    dry_run: bool,
}

/// What is wrong, each with its line.
type Wrong = Vec<(usize, String)>;

impl Import {
    /// Runs the command.
    pub(super) async fn run(self, config: &Config, output: Output) -> Result<(), Failure> {
        let name = self.place();
        let text = self.text(&name)?;
        let reading = Reading {
            zone: &self.zone,
            command_type: self.command_type.as_deref(),
        };
        let crontab = crontab::read(&text, &reading);
        for note in &crontab.notes {
            output.message(&escaped(&format!("note: {name}:{}: {}", note.line, note.text)));
        }
        if crontab.zone_assumed {
            output.message(&format!(
                "note: lines below no CRON_TZ= are read in {} (--zone)",
                self.zone
            ));
        }
        if crontab.entries.is_empty() && crontab.mistakes.is_empty() {
            output.message(&format!("note: there is no schedule in {name}"));
        }
        if crontab.entries.len() > MAX_DEFINITIONS {
            return Err(Failure::new(
                Exit::Usage,
                format!("over {MAX_DEFINITIONS} schedules"),
                name,
                "split the file",
            ));
        }
        let mistakes: Wrong = crontab
            .mistakes
            .iter()
            .map(|m| (m.line, m.text.clone()))
            .collect();
        if !mistakes.is_empty() {
            return Err(self.all_that_is_wrong(&crontab, mistakes, config).await);
        }
        let store = services::reached_store(config).await?;
        let placed = match self.put(&store, &crontab.entries, self.dry_run).await {
            Ok(placed) => placed,
            Err(AdminError::Refused(_) | AdminError::Exists(_)) => {
                return Err(self.all_that_is_wrong(&crontab, mistakes, config).await);
            }
            Err(error) => return Err(of_admin(error, config)),
        };
        self.print(&crontab, &placed, output)
    }

    async fn put(&self, store: &Store, entries: &[Entry], dry_run: bool) -> Result<Vec<Placed>, AdminError> {
        let definitions: Vec<Definition> = entries.iter().map(|entry| self.definition(entry)).collect();
        let options = PutOptions {
            scope: Scope::Crontab,
            replace: self.replace,
            dry_run,
        };
        admin::put(store, &definitions, options).await
    }

    /// Adds what the ledger says of the lines that could be read: one call, all mistakes.
    async fn all_that_is_wrong(&self, crontab: &Crontab, mut wrong: Wrong, config: &Config) -> Failure {
        let lines: HashMap<&str, usize> = crontab
            .entries
            .iter()
            .rev()
            .map(|e| (e.name.as_str(), e.line))
            .collect();
        let line = |name: &str| lines.get(name).copied().unwrap_or_default();
        let mut exit = if wrong.is_empty() {
            Exit::Conflict
        } else {
            Exit::Usage
        };
        // The same name twice is told already.
        let mut seen = std::collections::HashSet::new();
        let entries: Vec<Entry> = crontab
            .entries
            .iter()
            .filter(|e| seen.insert(&e.name))
            .cloned()
            .collect();
        if let Ok(store) = services::reached_store(config).await {
            match self.put(&store, &entries, true).await {
                Err(AdminError::Refused(refusals)) => {
                    exit = Exit::Usage;
                    wrong.extend(refusals.iter().map(|r| (line(&r.name), r.why.clone())));
                }
                Ok(placed) if !self.replace => {
                    let differ = placed.iter().filter(|placed| placed.change == Change::Differs);
                    wrong.extend(differ.map(|placed| {
                        let why = format!(
                            "{:?} is defined otherwise already; --replace changes it",
                            placed.name
                        );
                        (line(&placed.name), why)
                    }));
                }
                _ => {}
            }
        }
        wrong.sort();
        let file = self.place();
        let details = wrong.into_iter().map(|(line, why)| Detail {
            text: escaped(&format!("{file}:{line}: {why}")),
            data: json!({ "file": file, "line": line, "message": why }),
        });
        let next = match exit {
            Exit::Conflict => "change them with --replace, or take other names; nothing was written",
            _ => "correct what is listed; nothing was written",
        };
        Failure::new(exit, "the crontab can't be imported as it is", &file, next)
            .with_details(details.collect())
    }

    fn print(&self, crontab: &Crontab, placed: &[Placed], output: Output) -> Result<(), Failure> {
        let conflict = |placed: &Placed| placed.change == Change::Differs && !self.replace;
        let would = |placed: &Placed| match placed.change {
            _ if !self.dry_run => did(placed.change),
            Change::Add => "add",
            Change::Differs if conflict(placed) => "conflict",
            Change::Differs => "change",
            Change::Unchanged => "unchanged",
        };
        let lines = crontab.entries.iter().zip(placed);
        if output.json {
            let rows = lines.map(|(entry, placed)| {
                let mut row = as_json(placed);
                row["line"] = entry.line.into();
                row["change"] = would(placed).into();
                row
            });
            output.json_line(&json!({ "dryRun": self.dry_run, "schedules": rows.collect::<Vec<_>>() }))?;
        } else {
            let cells = lines.map(|(entry, placed)| {
                vec![
                    entry.line.to_string(),
                    would(placed).to_owned(),
                    placed.name.clone(),
                    entry.expression.clone(),
                    entry.zone.clone(),
                    match placed.next {
                        Some(at) => shown(at),
                        None if placed.enabled => "ended".to_owned(),
                        None => "-".to_owned(),
                    },
                ]
            });
            let head = ["LINE", "CHANGE", "NAME", "EXPRESSION", "ZONE", "NEXT"];
            output.data(&table(&head, cells.collect()))?;
        }
        match placed.iter().filter(|placed| conflict(placed)).count() {
            0 => Ok(()),
            conflicts => Err(Failure::new(
                Exit::Conflict,
                format!("{conflicts} schedules are defined otherwise already"),
                self.place(),
                "change them with --replace, or take other names; nothing was written",
            )),
        }
    }

    fn definition(&self, entry: &Entry) -> Definition {
        Definition {
            owner: self.owner.clone(),
            ..Definition::new(
                entry.name.clone(),
                entry.task_type.clone(),
                entry.expression.clone(),
                entry.zone.clone(),
                entry.payload.clone(),
            )
        }
    }

    fn place(&self) -> String {
        if self.file.as_os_str() == "-" {
            "stdin".to_owned()
        } else {
            self.file.display().to_string()
        }
    }

    fn text(&self, name: &str) -> Result<String, Failure> {
        let unreadable = |why: io::Error| {
            Failure::new(
                Exit::Usage,
                why,
                name,
                "name a file of UTF-8 text that can be read, or - for stdin",
            )
        };
        let source: Box<dyn Read> = if self.file.as_os_str() == "-" {
            Box::new(io::stdin())
        } else {
            Box::new(File::open(&self.file).map_err(unreadable)?)
        };
        let mut text = String::new();
        source
            .take(MAX_BYTES + 1)
            .read_to_string(&mut text)
            .map_err(unreadable)?;
        if text.len() as u64 > MAX_BYTES {
            return Err(Failure::new(
                Exit::Usage,
                format!("the file is over {MAX_BYTES} bytes"),
                name,
                "split it",
            ));
        }
        Ok(text)
    }
}
