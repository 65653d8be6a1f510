//! `tidegate migrate`: the schema of the ledger.
//!
//! May import: `store`, `services`.

use serde_json::json;

use super::{
    failure::{Exit, Failure},
    output::Output,
    services,
};
use crate::config::Config;

/// Arguments of `migrate`.
#[derive(Debug, clap::Args)]
pub(super) struct Migrate {
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Clone, Copy, Debug, clap::Subcommand)]
enum Action {
    /// Apply what is missing (the default). Safe to run many times at once
    Up,
    /// Whether the schema is current; exit code 3 if it is not
    Info,
    /// Undo every migration newer than a version, dropping tables and what is in them
    Down {
        /// The version to go back to; 0 drops everything
        #[arg(long)]
        to: i64,
        /// Says that the loss of data is meant
        #[arg(long)]
        yes: bool,
    },
}

impl Migrate {
    /// Runs the command.
    pub(super) async fn run(self, config: &Config, output: Output) -> Result<(), Failure> {
        if let Some(Action::Down { yes: false, .. }) = self.action {
            return Err(Failure::new(
                Exit::Usage,
                "this drops tables and what is in them",
                "migrate down",
                "add --yes if that is meant",
            ));
        }
        let store = services::reached_store(config).await?;
        let failed = |error| services::of_store(&error, config);
        match self.action.unwrap_or(Action::Up) {
            Action::Up => {
                let applied = store.migrate().await.map_err(failed)?;
                if output.json {
                    return output.json_line(&json!({ "applied": applied }));
                }
                match applied.as_slice() {
                    [] => output.data("the schema is current\n"),
                    versions => output.data(&format!("applied {}\n", joined(versions))),
                }
            }
            Action::Info => {
                let current = store.schema_is_current().await.map_err(failed)?;
                if output.json {
                    output.json_line(&json!({ "current": current }))?;
                } else {
                    output.data(if current {
                        "the schema is current\n"
                    } else {
                        "the schema is out of date\n"
                    })?;
                }
                if current { Ok(()) } else { Err(out_of_date()) }
            }
            Action::Down { to, yes: _ } => {
                store.revert_to(to).await.map_err(failed)?;
                if output.json {
                    output.json_line(&json!({ "revertedTo": to }))
                } else {
                    output.data(&format!("reverted to {to}\n"))
                }
            }
        }
    }
}

fn joined(versions: &[i64]) -> String {
    versions
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

fn out_of_date() -> Failure {
    Failure::new(
        Exit::Differences,
        "the schema is out of date",
        "database",
        "run `tidegate migrate`",
    )
}
