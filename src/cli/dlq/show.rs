//! `tidegate dlq show`: one dead letter.
//!
//! May import: `deadletter::look`, `story`, `services`.

use std::io::{self, IsTerminal, Write};

use super::{Exit, Failure, Output, services, story, usage};
use crate::{
    cli::failure::Detail,
    config::Config,
    deadletter::look::{self, LookError},
    store::Store,
};

pub(super) const HELP: &str = "\
Its body is laid out where it is JSON, with numbers and strings as they were written;
what a terminal would obey is shown as an escape. --body has the exact bytes.

Examples:
  tidegate dlq show 0196a5e0-7f20
  tidegate dlq show 0196a5e0-7f20 --body > body.json";

/// Which one.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Show {
    /// Its id, or how it begins
    id: String,
    /// Only its body, byte for byte as it was sent; not to a terminal
    #[arg(long)]
    body: bool,
}

impl Show {
    pub(super) async fn run(self, store: &Store, config: &Config, output: Output) -> Result<(), Failure> {
        let letter = look::one(store, &self.id).await;
        let letter = letter.map_err(|error| of_look(error, config))?;
        if self.body {
            return raw(&letter.body);
        }
        let story = look::story(store, letter).await;
        let story = story.map_err(|error| services::of_store(&error, config))?;
        if output.json {
            return output.json_line(&story::json(story)?);
        }
        output.data(&story::text(story))
    }
}

fn raw(body: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout();
    if stdout.is_terminal() {
        return Err(usage(
            "the exact bytes may steer this terminal",
            "stdout",
            "write them into a file or a pipe; without --body they are shown safely",
        ));
    }
    let written = stdout.write_all(body).and_then(|()| stdout.flush());
    written.map_err(|why| Failure::new(Exit::Failed, why, "stdout", "check where the output goes"))
}

fn of_look(error: LookError, config: &Config) -> Failure {
    let what = error.to_string();
    match error {
        LookError::Store(error) => services::of_store(&error, config),
        LookError::NoId(_) => usage(
            what,
            "ID",
            "`tidegate dlq list` shows ids; 4 digits or more of one will do",
        ),
        LookError::NotFound(_) => Failure::new(
            Exit::NotFound,
            what,
            "tidegate.dead_letters",
            "check the id; what was kept long enough is removed, and what has just died may still be on its way",
        ),
        LookError::Ambiguous(_, ids) => Failure::new(
            Exit::Conflict,
            what,
            "tidegate.dead_letters",
            "write more of the id",
        )
        .with_details(
            ids.iter()
                .map(|id| Detail {
                    text: id.to_string(),
                    data: serde_json::json!({"id": id.to_string()}),
                })
                .collect(),
        ),
    }
}
