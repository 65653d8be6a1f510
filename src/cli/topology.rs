//! `tidegate topology`: what must exist on the broker.
//!
//! May import: `topology`, `services`.

use std::path::PathBuf;

use super::{failure::Failure, output::Output};
use crate::config::Config;

/// Commands of `topology`.
#[derive(Debug, clap::Subcommand)]
pub enum Topology {
    /// Declare what the topology files describe. What is there already stays; what differs is reported (exit code 5)
    Apply {
        /// Directory of the topology files [default: topology]
        #[arg(long)]
        dir: Option<PathBuf>,
    },
}

impl Topology {
    /// The settings that its own flags stand for.
    pub(super) fn settings(&self) -> Vec<(String, String)> {
        let Self::Apply { dir } = self;
        dir.iter().map(|dir| ("topology.dir".to_owned(), dir.display().to_string())).collect()
    }

    /// Runs the command.
    pub async fn run(self, _config: &Config, _output: Output) -> Result<(), Failure> {
        unimplemented!()
    }
}
