//! `tidegate cron`: the schedules in the ledger, and when they fire. A file for each verb, or for a few that are alike.
//!
//! May import: `core`, `store`, `scheduler::admin`, `services`.

mod add;
mod crontab;
mod history;
mod import;
mod list;
mod next;
mod show;
mod state;

use chrono::{DateTime, SecondsFormat, Utc};

use super::{
    delay,
    failure::{Detail, Exit, Failure},
    output::{Output, escaped, table},
    services,
};
use crate::{
    config::Config,
    scheduler::admin::AdminError,
    store::{Store, cron_tasks::CronTask},
};

/// Commands of `cron`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Cron {
    /// Add a schedule, or change one with --replace
    Add(Box<add::Add>),
    /// Add what a crontab file says: task types with a payload, or shell commands
    Import(import::Import),
    /// All schedules in the ledger
    List(list::List),
    /// One schedule with all that is known of it
    Show(show::Show),
    /// When a schedule fires next, and where a change of the clock matters; with --expression no database is needed
    Next(next::Next),
    /// What became of a schedule's occurrences, latest first
    History(history::History),
    /// Send a schedule's task now, as configured; its next occurrence stays as it is
    Run(state::Named),
    /// Stop a schedule. What would have come meanwhile does not happen and is not made up for
    Pause(state::Named),
    /// Let a schedule fire again, from now on
    Resume(state::Named),
    /// Remove a schedule with its history; tasks that it has made stay
    Remove(state::Named),
}

impl Cron {
    /// Runs the command.
    pub(super) async fn run(self, config: &Config, output: Output) -> Result<(), Failure> {
        match self {
            Self::Add(add) => add.run(config, output).await,
            Self::Import(import) => import.run(config, output).await,
            Self::List(list) => list.run(config, output).await,
            Self::Show(show) => show.run(config, output).await,
            Self::Next(next) => next.run(config, output).await,
            Self::History(history) => history.run(config, output).await,
            Self::Run(named) => named.run_now(config, output).await,
            Self::Pause(named) => named.pause(config, output).await,
            Self::Resume(named) => named.resume(config, output).await,
            Self::Remove(named) => named.remove(config, output).await,
        }
    }
}

/// Why a change of schedules failed.
fn of_admin(error: AdminError, config: &Config) -> Failure {
    let detail = |name: &str, why: &str| Detail {
        text: format!("{}: {}", escaped(name), escaped(why)),
        data: serde_json::json!({ "name": name, "message": why }),
    };
    match error {
        AdminError::Store(error) => services::of_store(&error, config),
        AdminError::NotFound(name) => not_found(&name),
        AdminError::Exists(names) => Failure::new(
            Exit::Conflict,
            format!("defined otherwise already: {}", escaped(&names.join(", "))),
            "tidegate.cron_tasks",
            "look at it with `tidegate cron show`; change it with --replace, or take another name",
        ),
        AdminError::Refused(refusals) => Failure::new(
            Exit::Usage,
            "the schedule can't be used",
            "its definition",
            "correct what is listed; nothing was changed",
        )
        .with_details(refusals.iter().map(|r| detail(&r.name, &r.why)).collect()),
    }
}

fn not_found(name: &str) -> Failure {
    Failure::new(
        Exit::NotFound,
        format!("no schedule is called {name:?}"),
        "tidegate.cron_tasks",
        "`tidegate cron list` names them",
    )
}

async fn named(name: &str, store: &Store, config: &Config) -> Result<CronTask, Failure> {
    let row = store.cron_tasks().get(name).await;
    row.map_err(|error| services::of_store(&error, config))?
        .ok_or_else(|| not_found(name))
}

fn shown(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}
