//! `tidegate topology`: what must exist on the broker. A file for each verb.
//!
//! May import: `topology`, `services`.

mod apply;
mod export;
mod migrate;
mod perform;
mod plan;
mod verify;

use std::path::PathBuf;

use super::{failure::Failure, output::Output, services};
use crate::{config::Config, topology};

/// Commands of `topology`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Topology {
    /// Show what would have to change on the broker, object by object. Exit code 3 if anything would
    Plan(plan::Show),
    /// Declare what the topology files describe. What is there already stays; what differs is reported (exit code 5)
    Apply(apply::Apply),
    /// Print the topology for others: RabbitMQ definitions, a picture, a wiki page, permissions
    Export(export::Export),
    /// Give a queue other arguments under the same name, or take down what an older ladder left, while everything runs
    Migrate(migrate::Migrate),
    /// Send marked messages through every route, in a copy of the virtual host, and see them come out
    Verify(verify::Verify),
}

/// Where the topology files are.
#[derive(Debug, clap::Args)]
struct Files {
    /// Directory of the topology files [default: topology]
    #[arg(long)]
    dir: Option<PathBuf>,
}

impl Files {
    /// The topology that they describe; what may be a mistake in them goes to stderr.
    fn load(config: &Config, output: Output) -> Result<std::sync::Arc<topology::Topology>, Failure> {
        let topology = services::topology(&config.topology.dir)?;
        for warning in &topology.warnings {
            output.message(&format!("warning: {warning}"));
        }
        Ok(topology)
    }
}

impl Topology {
    /// The settings that its own flags stand for.
    pub(super) fn settings(&self) -> Vec<(String, String)> {
        let files = match self {
            Self::Plan(plan) => &plan.files,
            Self::Apply(apply) => &apply.files,
            Self::Export(export) => &export.files,
            Self::Migrate(migrate) => &migrate.files,
            Self::Verify(verify) => &verify.files,
        };
        files
            .dir
            .iter()
            .map(|dir| ("topology.dir".to_owned(), dir.display().to_string()))
            .collect()
    }

    /// Runs the command.
    pub(super) async fn run(self, config: &Config, output: Output) -> Result<(), Failure> {
        match self {
            Self::Plan(plan) => plan.run(config, output).await,
            Self::Apply(apply) => apply.run(config, output).await,
            Self::Export(export) => export.run(config, output),
            Self::Migrate(migrate) => migrate.run(config, output).await,
            Self::Verify(verify) => verify.run(config, output).await,
        }
    }
}
