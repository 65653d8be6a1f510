//! `tidegate cron list`: all schedules, or those in error, or somebody's.
//!
//! May import: `store`, `services`.

use serde::Serialize;

use super::{Failure, Output, services, shown, table};
use crate::config::Config;

/// Arguments of `cron list`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct List {
    /// Only those that can't be scheduled
    #[arg(long)]
    errors: bool,
    /// Only those of this owner
    #[arg(long)]
    owner: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    name: String,
    task_type: String,
    cron_expression: String,
    time_zone: String,
    enabled: bool,
    /// Whether no occurrence is left before its `ends_at`.
    exhausted: bool,
    owner: Option<String>,
    next_fire_at: Option<String>,
    last_triggered_at: Option<String>,
    last_error: Option<String>,
}

const HEAD: [&str; 8] = [
    "NAME",
    "TASK TYPE",
    "EXPRESSION",
    "ZONE",
    "ENABLED",
    "NEXT",
    "LAST",
    "ERROR",
];

impl List {
    /// Runs the command.
    pub(super) async fn run(self, config: &Config, output: Output) -> Result<(), Failure> {
        let store = services::reached_store(config).await?;
        let rows = store.cron_tasks().list().await;
        let rows: Vec<Row> = rows
            .map_err(|error| services::of_store(&error, config))?
            .into_iter()
            .filter(|row| !self.errors || row.last_error.is_some())
            .filter(|row| self.owner.is_none() || row.owner == self.owner)
            .map(|row| Row {
                name: row.name,
                task_type: row.task_type,
                cron_expression: row.cron_expression,
                time_zone: row.time_zone,
                enabled: row.enabled,
                exhausted: row.exhausted,
                owner: row.owner,
                next_fire_at: row.next_fire_at.map(shown),
                last_triggered_at: row.last_triggered_at.map(shown),
                last_error: row.last_error,
            })
            .collect();
        if output.json {
            return output.json_line(&rows);
        }
        let text = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let cells = |row: Row| {
            vec![
                row.name,
                row.task_type,
                row.cron_expression,
                row.time_zone,
                if row.enabled { "yes" } else { "no" }.to_owned(),
                if row.exhausted {
                    "ended".to_owned()
                } else {
                    text(row.next_fire_at)
                },
                text(row.last_triggered_at),
                text(row.last_error),
            ]
        };
        output.data(&table(&HEAD, rows.into_iter().map(cells).collect()))
    }
}
