//! `tidegate dlq`: dead letters in the archive. A file for each verb; [`meant`] is how all of them are told which ones.
//!
//! May import: `core`, `store`, `deadletter`, `services`.

mod audit;
mod by;
mod discard;
mod export;
mod groups;
mod list;
mod meant;
mod replay;
mod replays;
mod show;
mod story;

use chrono::{DateTime, SecondsFormat, Utc};

use super::{
    failure::{Exit, Failure},
    output::Output,
    services,
};
use crate::{
    config::{Config, Loaded},
    store::Store,
};

/// Commands of `dlq`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Dlq {
    /// Dead letters by what they have in common: how many, since when, and a sample
    #[command(after_help = groups::HELP)]
    Groups(groups::Groups),
    /// Dead letters, newest first
    #[command(after_help = list::HELP)]
    List(list::List),
    /// One dead letter: its body, headers, attempts and deaths, and what was done about it
    #[command(after_help = show::HELP)]
    Show(show::Show),
    /// Decide that dead letters shall not run
    #[command(after_help = discard::HELP)]
    Discard(discard::Discard),
    /// Send dead letters again, unchanged or edited
    #[command(after_help = replay::HELP)]
    Replay(Box<replay::Replay>),
    /// Runs of replays: what they are at and what became of them
    #[command(subcommand)]
    Replays(replays::Replays),
    /// What was archived on one day, as NDJSON
    #[command(after_help = export::HELP)]
    Export(export::Export),
    /// Who replayed, edited or discarded what, when and why; latest first
    #[command(after_help = audit::HELP)]
    Audit(audit::Audit),
}

impl Dlq {
    /// Runs the command.
    pub(super) async fn run(self, loaded: &Loaded, output: Output) -> Result<(), Failure> {
        let config = &loaded.config;
        let store = services::reached_store(config).await?;
        match self {
            Self::Groups(groups) => groups.run(&store, config, output).await,
            Self::List(list) => list.run(&store, config, output).await,
            Self::Show(show) => show.run(&store, config, output).await,
            Self::Discard(discard) => discard.run(&store, config, output).await,
            Self::Replay(replay) => replay.run(&store, loaded, output).await,
            Self::Replays(replays) => replays.run(&store, config, output).await,
            Self::Export(export) => export.run(&store, config, output).await,
            Self::Audit(audit) => audit.run(&store, config, output).await,
        }
    }
}

/// The database's clock, which ages count back from.
async fn now(store: &Store, config: &Config) -> Result<DateTime<Utc>, Failure> {
    let now = store.dead_letters().now().await;
    now.map_err(|error| services::of_store(&error, config))
}

/// An instant as it is shown.
fn shown(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}

fn usage(what: impl ToString, place: &str, next: &str) -> Failure {
    Failure::new(Exit::Usage, what, place, next)
}
