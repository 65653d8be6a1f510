//! `tidegate cron add`: one schedule from flags.
//!
//! May import: `scheduler::admin`, `store`, `services`.

use std::{
    fs::File,
    io::{self, Read},
};

use chrono::{DateTime, Utc};
use serde_json::{json, value::RawValue};
use tidegate_core::cron::MisfirePolicy;

use super::{Exit, Failure, Output, delay, of_admin, services, shown};
use crate::{
    cli::output::escaped,
    config::Config,
    scheduler::admin::{self, Placed, PutOptions},
    store::cron_admin::{Change, Definition, Scope},
};

/// Most bytes of a payload that are read; a task carries less.
const MAX_PAYLOAD_BYTES: u64 = 1024 * 1024;

const EXAMPLES: &str = "\
Examples:
  tidegate cron add nightly-report --type report.make --cron '0 3 * * *' --zone Europe/Berlin
  tidegate cron add board-pack --type report.make --cron '0 9 * * FRIL' --payload '{\"of\": \"{{scheduled_date}}\"}'

Exit code 2: the schedule can never fire, or its zone, payload or template is broken; 5: the name is taken.";

/// Arguments of `cron add`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Add {
    /// Unique name
    name: String,
    /// Task type of its tasks
    #[arg(long = "type", value_name = "TYPE")]
    task_type: String,
    /// 5 or 6 fields, or a macro such as @daily
    #[arg(long = "cron", value_name = "EXPRESSION")]
    expression: String,
    /// IANA time zone
    #[arg(long, default_value = "UTC")]
    zone: String,
    /// Payload, a JSON object; its strings may be templates. @FILE reads a file, - reads stdin
    #[arg(long, value_name = "JSON", default_value = "{}", allow_hyphen_values = true)]
    payload: String,
    /// Version of the payload's contract
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true)]
    payload_version: i32,
    /// Exchange; by default the platform's
    #[arg(long)]
    exchange: Option<String>,
    /// Routing key; by default the task type
    #[arg(long, value_name = "KEY")]
    routing_key: Option<String>,
    /// What becomes of occurrences that were missed
    #[arg(long, default_value = "fire_once", value_parser = ["fire_once", "skip", "catch_up"])]
    misfire: String,
    /// With --misfire catch_up: how many are made up for at most, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 100, allow_negative_numbers = true)]
    catch_up_limit: i32,
    /// Whether a task is sent while the one before still waits or runs
    #[arg(long, default_value = "allow", value_parser = ["allow", "skip"])]
    overlap: String,
    /// Send each task up to this much later, e.g. 30s
    #[arg(long, value_name = "DURATION", value_parser = millis, allow_hyphen_values = true)]
    jitter: Option<i32>,
    /// First instant at which it may fire
    #[arg(long, value_name = "RFC3339")]
    starts_at: Option<DateTime<Utc>>,
    /// From here on it doesn't fire
    #[arg(long, value_name = "RFC3339")]
    ends_at: Option<DateTime<Utc>>,
    /// Retries of each task, instead of the queue's number
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    max_retries: Option<i32>,
    /// Longest run of each task, e.g. 5m
    #[arg(long, value_name = "DURATION", value_parser = millis, allow_hyphen_values = true)]
    timeout: Option<i32>,
    /// 0 to 255
    #[arg(long, default_value_t = 100, allow_negative_numbers = true)]
    priority: i16,
    /// Who answers for it
    #[arg(long)]
    owner: Option<String>,
    /// Add it paused
    #[arg(long)]
    disabled: bool,
    /// Where the name is taken, make that schedule what these flags say; a paused one stays paused
    #[arg(long)]
    replace: bool,
}

fn millis(text: &str) -> Result<i32, String> {
    let duration = delay::parse(text).map_err(|why| why.to_string())?;
    if !duration.is_zero() && duration.as_millis() == 0 {
        return Err(
            "less than 1ms, the shortest that is kept; leave it out, or write 1ms or more".to_owned(),
        );
    }
    i32::try_from(duration.as_millis()).map_err(|_| "at most 24h".to_owned())
}

impl Add {
    /// Runs the command.
    pub(super) async fn run(self, config: &Config, output: Output) -> Result<(), Failure> {
        let replace = self.replace;
        let definition = self.definition()?;
        let store = services::reached_store(config).await?;
        let options = PutOptions {
            scope: Scope::Whole,
            replace,
            dry_run: false,
        };
        let placed = admin::put(&store, &[definition], options).await;
        for placed in placed.map_err(|error| of_admin(error, config))? {
            if output.json {
                output.json_line(&as_json(&placed))?;
            } else {
                let next = match placed.next {
                    Some(at) => format!("next {}", shown(at)),
                    None if placed.enabled => "ended".to_owned(),
                    None => "paused".to_owned(),
                };
                let name = escaped(&placed.name);
                output.data(&format!("{} {name}, {next}\n", did(placed.change)))?;
            }
        }
        Ok(())
    }

    fn definition(self) -> Result<Definition, Failure> {
        let payload = payload(&self.payload)?;
        Ok(Definition {
            name: self.name,
            task_type: self.task_type,
            cron_expression: self.expression,
            time_zone: self.zone,
            payload,
            payload_version: self.payload_version,
            exchange: self.exchange,
            routing_key: self.routing_key,
            enabled: self.disabled.then_some(false),
            // The parser of the arguments knows the words.
            misfire_policy: MisfirePolicy::parse(&self.misfire).unwrap_or_default(),
            catch_up_limit: self.catch_up_limit,
            overlap_policy: if self.overlap == "skip" { "skip" } else { "allow" },
            jitter_ms: self.jitter.unwrap_or_default(),
            starts_at: self.starts_at,
            ends_at: self.ends_at,
            max_retries: self.max_retries,
            timeout_ms: self.timeout,
            priority: self.priority,
            owner: self.owner,
        })
    }
}

/// What a definition did, in the past tense.
pub(super) fn did(change: Change) -> &'static str {
    match change {
        Change::Add => "added",
        Change::Differs => "changed",
        Change::Unchanged => "unchanged",
    }
}

/// A schedule that was placed, for programs.
pub(super) fn as_json(placed: &Placed) -> serde_json::Value {
    json!({
        "name": placed.name,
        "change": did(placed.change),
        "enabled": placed.enabled,
        "nextFireAt": placed.next.map(shown),
    })
}

fn payload(argument: &str) -> Result<Box<RawValue>, Failure> {
    let (place, text) = match argument.strip_prefix('@') {
        _ if argument == "-" => ("stdin".to_owned(), read(io::stdin(), "stdin")?),
        Some(path) => {
            let file = File::open(path).map_err(|why| unreadable(why, path))?;
            (path.to_owned(), read(file, path)?)
        }
        None => ("--payload".to_owned(), argument.to_owned()),
    };
    RawValue::from_string(text).map_err(|why| {
        Failure::new(
            Exit::Usage,
            format!("the payload is no JSON: {why}"),
            place,
            "give a JSON object, e.g. '{\"orderId\":\"1\"}', or @FILE",
        )
    })
}

fn read(source: impl Read, place: &str) -> Result<String, Failure> {
    let mut text = String::new();
    source
        .take(MAX_PAYLOAD_BYTES)
        .read_to_string(&mut text)
        .map_err(|why| unreadable(why, place))?;
    Ok(text.trim().to_owned())
}

fn unreadable(why: io::Error, place: &str) -> Failure {
    Failure::new(
        Exit::Usage,
        why,
        place,
        "name a file of UTF-8 text that can be read, or - for stdin",
    )
}
