//! `tidegate cron`: the schedules in the ledger, and when they fire.
//!
//! May import: `core`, `store`, `services`.

use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;
use tidegate_core::cron::Schedule;

use super::{
    failure::{Exit, Failure},
    output::{Output, table},
    services,
};
use crate::{config::Config, store::Store};

/// Commands of `cron`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Cron {
    /// All schedules in the ledger
    List,
    /// When a schedule fires next; without a NAME no database is needed
    #[command(
        after_help = "Example:\n  tidegate cron next --expression '0 9 * * mon-fri' --zone Asia/Shanghai --count 3"
    )]
    Next {
        /// A schedule in the ledger
        #[arg(required_unless_present = "expression")]
        name: Option<String>,
        /// An expression: 5 or 6 fields, or a macro such as @daily
        #[arg(long, conflicts_with = "name")]
        expression: Option<String>,
        /// IANA time zone of --expression
        #[arg(long, default_value = "UTC", conflicts_with = "name")]
        zone: String,
        /// How many occurrences
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
        count: u16,
        /// The instant to look from, RFC 3339; by default now
        #[arg(long, value_name = "RFC3339")]
        after: Option<DateTime<Utc>>,
    },
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    name: String,
    task_type: String,
    cron_expression: String,
    time_zone: String,
    enabled: bool,
    next_fire_at: Option<String>,
    last_triggered_at: Option<String>,
    last_error: Option<String>,
}

#[derive(Debug, Serialize)]
struct Occurrence {
    utc: String,
    local: String,
}

impl Cron {
    /// Runs the command.
    pub(super) async fn run(self, config: &Config, output: Output) -> Result<(), Failure> {
        match self {
            Self::List => list(&services::reached_store(config).await?, config, output).await,
            Self::Next {
                name,
                expression,
                zone,
                count,
                after,
            } => {
                let (expression, zone) = match (name, expression) {
                    (Some(name), _) => named(&name, config).await?,
                    (None, expression) => (expression.unwrap_or_default(), zone),
                };
                next(&expression, &zone, count, after.unwrap_or_else(Utc::now), output)
            }
        }
    }
}

async fn list(store: &Store, config: &Config, output: Output) -> Result<(), Failure> {
    let rows = store
        .cron_tasks()
        .list()
        .await
        .map_err(|error| services::of_store(&error, config))?;
    let rows: Vec<Row> = rows
        .into_iter()
        .map(|row| Row {
            name: row.name,
            task_type: row.task_type,
            cron_expression: row.cron_expression,
            time_zone: row.time_zone,
            enabled: row.enabled,
            next_fire_at: row.next_fire_at.map(shown),
            last_triggered_at: row.last_triggered_at.map(shown),
            last_error: row.last_error,
        })
        .collect();
    if output.json {
        return output.json_line(&rows);
    }
    let text = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let rows = rows
        .into_iter()
        .map(|row| {
            vec![
                row.name,
                row.task_type,
                row.cron_expression,
                row.time_zone,
                if row.enabled { "yes" } else { "no" }.to_owned(),
                text(row.next_fire_at),
                text(row.last_triggered_at),
                text(row.last_error),
            ]
        })
        .collect();
    let head = [
        "NAME",
        "TASK TYPE",
        "EXPRESSION",
        "ZONE",
        "ENABLED",
        "NEXT",
        "LAST",
        "ERROR",
    ];
    output.data(&table(&head, rows))
}

async fn named(name: &str, config: &Config) -> Result<(String, String), Failure> {
    let store = services::reached_store(config).await?;
    let row = store
        .cron_tasks()
        .get(name)
        .await
        .map_err(|error| services::of_store(&error, config))?;
    let row = row.ok_or_else(|| {
        Failure::new(
            Exit::NotFound,
            format!("no schedule is called {name:?}"),
            "tidegate.cron_tasks",
            "`tidegate cron list` names them",
        )
    })?;
    Ok((row.cron_expression, row.time_zone))
}

fn next(
    expression: &str,
    zone: &str,
    count: u16,
    after: DateTime<Utc>,
    output: Output,
) -> Result<(), Failure> {
    let schedule = Schedule::parse(expression, zone).map_err(|why| {
        let place = format!("expression {expression:?} in zone {zone:?}");
        Failure::new(Exit::Usage, why, place, "correct the expression or the zone")
    })?;
    let occurrences: Vec<Occurrence> =
        std::iter::successors(schedule.next_after(after), |at| schedule.next_after(*at))
            .take(count.into())
            .map(|at| Occurrence {
                utc: at.to_rfc3339_opts(SecondsFormat::Secs, true),
                local: at
                    .with_timezone(&schedule.zone())
                    .to_rfc3339_opts(SecondsFormat::Secs, false),
            })
            .collect();
    if occurrences.is_empty() {
        output.message("note: this schedule never fires again");
    }
    if output.json {
        return output.json_line(&occurrences);
    }
    output.data(
        &occurrences
            .iter()
            .map(|o| format!("{}\t{}\n", o.utc, o.local))
            .collect::<String>(),
    )
}

fn shown(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}
