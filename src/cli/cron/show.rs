//! `tidegate cron show`: one schedule with all that is known of it.
//!
//! May import: `store`, `services`.

use serde::Serialize;
use serde_json::value::RawValue;

use super::{Failure, Output, named, services, shown};
use crate::{cli::output::fields, config::Config, store::cron_tasks::CronTask};

/// Arguments of `cron show`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Show {
    /// A schedule in the ledger
    name: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    name: String,
    task_type: String,
    cron_expression: String,
    time_zone: String,
    payload: Option<Box<RawValue>>,
    payload_version: i32,
    exchange: Option<String>,
    routing_key: Option<String>,
    enabled: bool,
    misfire_policy: String,
    catch_up_limit: i32,
    overlap_policy: String,
    jitter_ms: i32,
    starts_at: Option<String>,
    ends_at: Option<String>,
    max_retries: Option<i32>,
    timeout_ms: Option<i32>,
    priority: i16,
    owner: Option<String>,
    next_fire_at: Option<String>,
    last_triggered_at: Option<String>,
    accounted_until: Option<String>,
    exhausted: bool,
    last_error: Option<String>,
}

impl From<CronTask> for Shown {
    fn from(row: CronTask) -> Self {
        Self {
            name: row.name,
            task_type: row.task_type,
            cron_expression: row.cron_expression,
            time_zone: row.time_zone,
            // It comes from a jsonb column.
            payload: row.payload.and_then(|text| RawValue::from_string(text).ok()),
            payload_version: row.payload_version,
            exchange: row.exchange,
            routing_key: row.routing_key,
            enabled: row.enabled,
            misfire_policy: row.misfire_policy,
            catch_up_limit: row.catch_up_limit,
            overlap_policy: row.overlap_policy,
            jitter_ms: row.jitter_ms,
            starts_at: row.starts_at.map(shown),
            ends_at: row.ends_at.map(shown),
            max_retries: row.max_retries,
            timeout_ms: row.timeout_ms,
            priority: row.priority,
            owner: row.owner,
            next_fire_at: row.next_fire_at.map(shown),
            last_triggered_at: row.last_triggered_at.map(shown),
            accounted_until: row.accounted_until.map(shown),
            exhausted: row.exhausted,
            last_error: row.last_error,
        }
    }
}

impl Shown {
    fn lines(self) -> Vec<Vec<String>> {
        let or = |value: Option<String>, none: &str| value.unwrap_or_else(|| none.to_owned());
        let number = |value: Option<i32>| or(value.map(|n| n.to_string()), "-");
        let misfire = match self.misfire_policy.as_str() {
            "catch_up" => format!("catch_up, at most {}", self.catch_up_limit),
            other => other.to_owned(),
        };
        let state = match (&self.last_error, self.enabled, self.exhausted) {
            (Some(why), true, _) if self.next_fire_at.is_some() => format!("active; last: {why}"),
            (Some(why), ..) => format!("can't be scheduled: {why}"),
            (None, false, _) => "paused".to_owned(),
            (None, true, true) => "ended".to_owned(),
            (None, true, false) => "active".to_owned(),
        };
        let lines: Vec<(&str, String)> = vec![
            ("name", self.name),
            ("state", state),
            ("expression", self.cron_expression),
            ("zone", self.time_zone),
            ("next", or(self.next_fire_at, "-")),
            ("last", or(self.last_triggered_at, "-")),
            ("accounted until", or(self.accounted_until, "-")),
            ("type", self.task_type.clone()),
            ("payload", or(self.payload.map(|text| text.get().to_owned()), "-")),
            ("payload version", self.payload_version.to_string()),
            ("exchange", or(self.exchange, "the platform's")),
            ("routing key", or(self.routing_key, &self.task_type)),
            ("misfire", misfire),
            ("overlap", self.overlap_policy),
            ("jitter", format!("{} ms", self.jitter_ms)),
            ("starts at", or(self.starts_at, "-")),
            ("ends at", or(self.ends_at, "-")),
            ("max retries", number(self.max_retries)),
            ("time-out in ms", number(self.timeout_ms)),
            ("priority", self.priority.to_string()),
            ("owner", or(self.owner, "-")),
        ];
        lines
            .into_iter()
            .map(|(key, value)| vec![key.to_owned(), value])
            .collect()
    }
}

impl Show {
    /// Runs the command.
    pub(super) async fn run(self, config: &Config, output: Output) -> Result<(), Failure> {
        let store = services::reached_store(config).await?;
        let shown = Shown::from(named(&self.name, &store, config).await?);
        if output.json {
            output.json_line(&shown)
        } else {
            output.data(&fields(shown.lines()))
        }
    }
}
