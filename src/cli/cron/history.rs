//! `tidegate cron history`: what became of a schedule's occurrences.
//!
//! May import: `store`, `services`.

use serde::Serialize;
use tidegate_core::cron::FireOutcome;

use super::{Failure, Output, not_found, services, shown, table};
use crate::{config::Config, store::cron_admin::FireRecord};

/// Arguments of `cron history`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct History {
    /// A schedule in the ledger
    name: String,
    /// How many records at most
    #[arg(long, default_value_t = 20, allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    limit: i64,
    /// Only those with this outcome
    #[arg(long, ignore_case = true, value_parser = ["FIRED", "CAUGHT_UP", "SKIPPED_MISFIRE", "SKIPPED_OVERLAP", "MANUAL"])]
    outcome: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    fire_at: String,
    last_at: Option<String>,
    occurrences: i64,
    outcome: String,
    task_id: Option<String>,
    task_state: Option<String>,
    task_error: Option<String>,
    recorded_at: String,
}

impl From<FireRecord> for Record {
    fn from(record: FireRecord) -> Self {
        Self {
            fire_at: shown(record.fire_at),
            last_at: record.last_at.map(shown),
            occurrences: record.occurrences,
            outcome: record.outcome,
            task_id: record.task_id,
            task_state: record.task_state,
            task_error: record.task_error,
            recorded_at: shown(record.recorded_at),
        }
    }
}

const HEAD: [&str; 5] = ["AT", "OUTCOME", "TASK", "STATE", "RECORDED"];

impl History {
    /// Runs the command.
    pub(super) async fn run(self, config: &Config, output: Output) -> Result<(), Failure> {
        let outcome = self
            .outcome
            .as_deref()
            .and_then(|text| FireOutcome::parse(&text.to_ascii_uppercase()));
        let store = services::reached_store(config).await?;
        let records = store.cron_history(&self.name, outcome, self.limit).await;
        let records: Vec<Record> = records
            .map_err(|error| services::of_store(&error, config))?
            .ok_or_else(|| not_found(&self.name))?
            .into_iter()
            .map(Record::from)
            .collect();
        if output.json {
            return output.json_line(&records);
        }
        output.data(&table(&HEAD, records.into_iter().map(cells).collect()))
    }
}

fn cells(record: Record) -> Vec<String> {
    let at = match record.last_at {
        Some(last) => format!("{}…{last} ×{}", record.fire_at, record.occurrences),
        None => record.fire_at,
    };
    let state = match (&record.task_id, record.task_state) {
        (Some(_), None) => "no longer kept".to_owned(),
        (_, state) => state.unwrap_or_else(|| "-".to_owned()),
    };
    let task = record.task_id.unwrap_or_else(|| "-".to_owned());
    vec![at, record.outcome, task, state, record.recorded_at]
}
