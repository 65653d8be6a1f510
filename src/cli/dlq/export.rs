//! `tidegate dlq export`: a day of the archive as NDJSON.
//!
//! May import: `store`, `deadletter::export`, `services`. A file gets its name when it is complete and on disk: whoever dies
//! before leaves `.NAME.PID.part` beside it, and a file of that name that was there before stays as it was.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use chrono::NaiveDate;
use serde_json::json;

use super::{Exit, Failure, Output, services, usage};
use crate::{
    config::Config,
    deadletter::export::{ExportError, export},
    store::Store,
};

pub(super) const HELP: &str = "\
A line for each dead letter, oldest first: all that is known of it, its body as text or,
where it is no UTF-8, in base64, and its properties with every AMQP type. The day is that
of archiving, in UTC. Exit code 0 means complete.

Examples:
  tidegate dlq export 2026-03-01 --gzip --out dead-2026-03-01.ndjson.gz
  tidegate dlq export 2026-03-01 | jq -r .taskId";

/// Which day, and where to.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Export {
    /// The day, e.g. 2026-03-01
    #[arg(value_name = "DAY")]
    day: NaiveDate,
    /// Packed
    #[arg(long)]
    gzip: bool,
    /// Into this file, which appears when it is complete, instead of stdout
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Export {
    pub(super) async fn run(self, store: &Store, config: &Config, output: Output) -> Result<(), Failure> {
        let Some(out) = &self.out else {
            let stdout = BufWriter::new(io::stdout());
            let lines = export(store, self.day, self.gzip, stdout).await;
            lines.map_err(|error| of_export(error, "stdout", config))?;
            return Ok(());
        };
        let place = out.display().to_string();
        let failed = |why: io::Error| of_export(why.into(), &place, config);
        let part = Part::beside(out).map_err(failed)?;
        let lines = export(store, self.day, self.gzip, BufWriter::new(&part.file)).await;
        let lines = lines.map_err(|error| of_export(error, &place, config))?;
        part.complete(out).map_err(failed)?;
        if output.json {
            return output.json_line(&json!({"day": self.day.to_string(), "lines": lines, "file": place}));
        }
        output.message(&format!("{lines} dead letters of {} in {place}", self.day));
        Ok(())
    }
}

/// A file that is not complete yet. Dropped, it is removed.
struct Part {
    file: File,
    path: PathBuf,
    is_done: bool,
}

impl Part {
    fn beside(out: &Path) -> io::Result<Self> {
        let name = out
            .file_name()
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "it names no file"))?;
        let name = format!(".{}.{}.part", name.to_string_lossy(), std::process::id());
        let path = out.with_file_name(name);
        let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        Ok(Self {
            file,
            path,
            is_done: false,
        })
    }

    fn complete(mut self, out: &Path) -> io::Result<()> {
        (&self.file).flush()?;
        self.file.sync_all()?;
        fs::rename(&self.path, out)?;
        self.is_done = true;
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.is_done {
            // The failure that led here is told; a file that can't be removed shows by its name what it is.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn of_export(error: ExportError, place: &str, config: &Config) -> Failure {
    match error {
        ExportError::Store(error) => services::of_store(&error, config),
        ExportError::NoSuchDay(_) => Failure::new(
            Exit::NotFound,
            error,
            "tidegate.dead_letters",
            "days are those of archiving, in UTC; `retention.dead_letters` says how long they are kept",
        ),
        ExportError::Io(why) if why.kind() == io::ErrorKind::InvalidInput => usage(why, place, "name a file"),
        ExportError::Io(_) => Failure::new(
            Exit::Failed,
            format!("the export is not complete: {error}"),
            place,
            "check space and rights there, then export again",
        ),
    }
}
