//! `tidegate config`: the settings in force.
//!
//! May import: `config`.

use super::{
    failure::Failure,
    output::{Output, table},
};
use crate::config::{Loaded, print};

/// What to do with the settings.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Config {
    /// Show every setting, where it is from, and its environment variable. Secrets are masked
    Print,
}

impl Config {
    /// Runs the command.
    pub(super) fn run(&self, loaded: &Loaded, output: Output) -> Result<(), Failure> {
        let Self::Print = self;
        let shown = print::shown(&loaded.settings);
        if output.json {
            return output.json_line(&shown);
        }
        let value = |value: &Option<toml::Value>| value.as_ref().map_or("-".to_owned(), ToString::to_string);
        let rows = shown
            .iter()
            .map(|s| {
                let source = s.source.clone().unwrap_or_else(|| "not set".to_owned());
                vec![s.key.to_owned(), value(&s.value), source, s.env.to_owned()]
            })
            .collect();
        output.data(&table(&["KEY", "VALUE", "FROM", "ENVIRONMENT"], rows))
    }
}
