//! `tidegate cron next`: the next occurrences, and which rule about changes of the clock applied to each.
//!
//! May import: `core`, `services`.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use serde::Serialize;
use tidegate_core::cron::Schedule;

use super::{Exit, Failure, Output, named, services, shown};
use crate::config::Config;

/// Arguments of `cron next`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  tidegate cron next --expression '0 9 * * mon-fri' --zone Asia/Shanghai --count 3"
)]
pub(in crate::cli) struct Next {
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
    #[arg(long, default_value_t = 5, allow_negative_numbers = true, value_parser = clap::value_parser!(u16).range(1..=1000))]
    count: u16,
    /// The instant to look from, RFC 3339; by default now
    #[arg(long, value_name = "RFC3339")]
    after: Option<DateTime<Utc>>,
}

/// What a schedule's window leaves of its occurrences.
#[derive(Default)]
struct Window {
    starts_at: Option<DateTime<Utc>>,
    ends_at: Option<DateTime<Utc>>,
}

#[derive(Debug, Serialize)]
struct Occurrence {
    utc: String,
    local: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rules: Vec<Rule>,
}

#[derive(Debug, Serialize)]
struct Rule {
    rule: &'static str,
    explanation: String,
}

impl Next {
    /// Runs the command.
    pub(super) async fn run(self, config: &Config, output: Output) -> Result<(), Failure> {
        let (expression, zone, window) = match (&self.name, &self.expression) {
            (Some(name), _) => {
                let store = services::reached_store(config).await?;
                let row = named(name, &store, config).await?;
                if !row.enabled {
                    output
                        .message("note: this schedule is paused; these are the times at which it would fire");
                }
                if let Some(why) = &row.last_error {
                    output.message(&format!("note: this schedule doesn't fire as it is: {why}"));
                }
                let window = Window {
                    starts_at: row.starts_at,
                    ends_at: row.ends_at,
                };
                (row.cron_expression, row.time_zone, window)
            }
            (None, expression) => (
                expression.clone().unwrap_or_default(),
                self.zone.clone(),
                Window::default(),
            ),
        };
        let schedule = Schedule::parse(&expression, &zone).map_err(|why| {
            let place = format!("expression {expression:?} in zone {zone:?}");
            Failure::new(Exit::Usage, why, place, "correct the expression or the zone")
        })?;
        self.print(&schedule, &window, output)
    }

    fn print(&self, schedule: &Schedule, window: &Window, output: Output) -> Result<(), Failure> {
        let mut after = self.after.unwrap_or_else(Utc::now);
        if let Some(start) = window.starts_at {
            // An occurrence at the start itself counts.
            after = after.max(start - TimeDelta::microseconds(1));
        }
        let mut occurrences = Vec::new();
        while occurrences.len() < usize::from(self.count)
            && let Some(at) = schedule.next_after(after)
            && window.ends_at.is_none_or(|end| at < end)
        {
            let rules = schedule.explain(after, at);
            occurrences.push(Occurrence {
                utc: shown(at),
                local: at
                    .with_timezone(&schedule.zone())
                    .to_rfc3339_opts(SecondsFormat::Secs, false),
                rules: rules
                    .iter()
                    .map(|rule| Rule {
                        rule: rule.as_str(),
                        explanation: rule.to_string(),
                    })
                    .collect(),
            });
            after = at;
        }
        if occurrences.is_empty() {
            output.message("note: this schedule never fires again");
        }
        if output.json {
            return output.json_line(&occurrences);
        }
        output.data(&occurrences.iter().map(line).collect::<String>())
    }
}

fn line(occurrence: &Occurrence) -> String {
    let rules: Vec<&str> = occurrence
        .rules
        .iter()
        .map(|rule| rule.explanation.as_str())
        .collect();
    let tab = if rules.is_empty() { "" } else { "\t" };
    format!(
        "{}\t{}{tab}{}\n",
        occurrence.utc,
        occurrence.local,
        rules.join("; ")
    )
}
