//! `tidegate task`: what is in the ledger, and changing its course.
//!
//! May import: `core`, `store`, `services`. A file per verb; [`view`] shows a task. The words of the answers are those
//! of the SQL functions.

mod change;
mod list;
mod view;

use chrono::{DateTime, Utc};

use super::{
    delay,
    failure::{Exit, Failure},
    output::Output,
    services,
};
use crate::{config::Config, store::Store};

/// Commands of `task`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Task {
    /// One task: where it is in its life
    Get {
        /// Its id
        id: String,
        /// Only its envelope, byte for byte as it is sent
        #[arg(long)]
        envelope: bool,
    },
    /// Tasks: those that wait, earliest first; then all others, latest hand-over or end first
    #[command(
        after_help = "Examples:\n  tidegate task list --state pending --due-before 2026-01-01T00:00:00Z\n  \
                      tidegate task list --state failed --type order.close.timeout --json"
    )]
    List(list::List),
    /// Cancel tasks; the answer says whether one can still run
    #[command(after_help = change::CANCEL_HELP)]
    Cancel {
        /// Their ids
        #[arg(required = true, num_args = 1.., value_name = "ID")]
        ids: Vec<String>,
    },
    /// Make waiting tasks due now, and take back those that were set aside
    Promote {
        /// Their ids
        #[arg(required = true, num_args = 1.., value_name = "ID")]
        ids: Vec<String>,
    },
    /// Move a waiting task to another time
    #[command(after_help = "Examples:\n  tidegate task move 0198c2f4-… --in 30m\n  \
                            tidegate task move 0198c2f4-… --to 2026-01-01T09:00:00+08:00")]
    Move {
        /// Its id
        id: String,
        #[command(flatten)]
        when: When,
    },
}

/// The time that a task is moved to.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(super) struct When {
    /// An instant, RFC 3339 with offset; one that has passed is now
    #[arg(long, value_name = "RFC3339")]
    to: Option<DateTime<Utc>>,
    /// A delay from now: 30s, 1h30m, 2d
    #[arg(long, value_name = "DELAY", value_parser = delay::parse, allow_hyphen_values = true)]
    r#in: Option<std::time::Duration>,
}

impl Task {
    /// Runs the command.
    pub(super) async fn run(self, config: &Config, output: Output) -> Result<(), Failure> {
        let store = services::reached_store(config).await?;
        match self {
            Self::Get { id, envelope } => get(&store, &id, envelope, config, output).await,
            Self::List(list) => list.run(&store, config, output).await,
            Self::Cancel { ids } => change::cancel(&store, &ids, config, output).await,
            Self::Promote { ids } => change::promote(&store, &ids, config, output).await,
            Self::Move { id, when } => change::reschedule(&store, &id, &when, config, output).await,
        }
    }
}

async fn get(
    store: &Store,
    id: &str,
    envelope: bool,
    config: &Config,
    output: Output,
) -> Result<(), Failure> {
    if envelope {
        let text = store.tasks().envelope(id).await;
        let text = text.map_err(|error| services::of_store(&error, config))?;
        return output.data(&text.ok_or_else(|| unknown(&[id]))?);
    }
    let task = store.tasks().get(id).await;
    let task = task.map_err(|error| services::of_store(&error, config))?;
    let view = view::View::new(task.ok_or_else(|| unknown(&[id]))?);
    if output.json {
        return output.json_line(&view);
    }
    output.data(&view.text())
}

/// No task has these ids.
fn unknown(ids: &[&str]) -> Failure {
    let what = match ids {
        [id] => format!("no task has the id {id:?}"),
        ids => format!("{} of the ids belong to no task", ids.len()),
    };
    Failure::new(
        Exit::NotFound,
        what,
        "tidegate.tasks",
        "check the id; tasks that went straight to the broker are not in the ledger, and old ones are removed from it",
    )
}
