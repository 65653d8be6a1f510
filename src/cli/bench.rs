//! `tidegate bench`: what this broker does with publisher and worker, beside plain lapin.
//!
//! May import: `bench`, `ledger`, `services`.

use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{
    failure::{Exit, Failure},
    output::{Output, table},
    services,
};
use crate::{
    bench::{self, BenchError, BenchSettings, Report},
    config::Config,
    ledger::PostgresLedger,
    supervisor,
};

/// What a user needs for it.
const NEEDS: &str = "it needs MANAGEMENT_URL (management.url) with a user that has the tag administrator, since it makes a virtual \
                     host of its own: `rabbitmqctl set_user_tags USER administrator`";

/// Arguments of `bench`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Publishes, drains and does both at once through the real publisher and worker,
and in turns with them through loops of plain lapin with the same queue type,
size, confirms and prefetch. All of it in a throw-away virtual host. It loads
the broker as much as it can: not for one that others need.

With a database (DATABASE_URL) also with idempotency. Figures are medians of
the runs; a ratio is Tidegate's figure divided by lapin's in the same run.")]
pub(super) struct Bench {
    /// Tasks a second end to end; by default as many as go
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    tps: Option<u32>,
    /// Bytes of a message
    #[arg(long, default_value_t = 1024, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(200..=65_536))]
    size: u32,
    /// How long each side publishes in each part
    #[arg(long, default_value = "3s", value_parser = length)]
    duration: Duration,
    /// Workers, each with a connection of its own
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: u16,
    /// Handlers that run at once in each worker
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    concurrency: u16,
    /// Unacknowledged messages of each consumer, ours and lapin's
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u16).range(1..))]
    prefetch: u16,
    /// How often the whole is repeated
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=100))]
    runs: u8,
}

fn length(text: &str) -> Result<Duration, String> {
    let length = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if length < Duration::from_millis(500) || length > Duration::from_secs(3600) {
        return Err("use 500ms to 1h".to_owned());
    }
    Ok(length)
}

impl Bench {
    /// Runs the command.
    pub(super) async fn run(self, config: &Config, output: Output) -> Result<(), Failure> {
        let broker = services::broker(config, "tidegate bench")?;
        let Some(management) = services::management(config, output)? else {
            return Err(Failure::new(
                Exit::Usage,
                "nothing can be measured without the broker's management API",
                "settings",
                NEEDS,
            ));
        };
        let ledger = match config.database.url() {
            Ok(_) => {
                let ledger = PostgresLedger::from(services::reached_store(config).await?);
                // What a killed run left; and without the schema nothing would be handled.
                ledger
                    .forget_keys(bench::TASK_TYPE)
                    .await
                    .map_err(|error| services::of_store(&error, config))?;
                Some(ledger)
            }
            Err(_) => {
                output.message("no database (DATABASE_URL): idempotency is left out");
                None
            }
        };
        let settings = BenchSettings {
            size: self.size as usize,
            length: self.duration,
            per_second: self.tps.map(f64::from),
            workers: self.workers.into(),
            concurrency: self.concurrency.into(),
            prefetch: self.prefetch,
            runs: self.runs.into(),
        };
        let cancel = CancellationToken::new();
        let _signals = supervisor::cancel_on_signal(cancel.clone());
        let progress = |text: &str| output.message(text);
        let result = bench::run(&broker, &management, ledger, &settings, &cancel, progress).await;
        show(&result.map_err(|error| failed(&error, config))?, output)
    }
}

fn show(report: &Report, output: Output) -> Result<(), Failure> {
    for warning in &report.warnings {
        output.message(&format!("warning: {warning}"));
    }
    if output.json {
        let figures: Vec<_> = report
            .figures
            .iter()
            .map(|figure| {
                let ratios: serde_json::Map<_, _> = figure
                    .ratios
                    .iter()
                    .map(|(to, ratio)| (to.clone(), json!(ratio)))
                    .collect();
                json!({
                    "part": figure.part,
                    "side": figure.side,
                    "unit": figure.unit,
                    "median": figure.median(),
                    "runs": figure.runs,
                    "ratios": ratios,
                })
            })
            .collect();
        return output.json_line(&json!({ "figures": figures, "warnings": report.warnings }));
    }
    let rows = report.figures.iter().map(|figure| {
        let number = |n: f64| {
            if n < 100.0 {
                format!("{n:.1}")
            } else {
                format!("{n:.0}")
            }
        };
        let runs: Vec<String> = figure.runs.iter().copied().map(number).collect();
        let ratios: Vec<String> = figure
            .ratios
            .iter()
            .map(|(to, ratio)| format!("{ratio:.2} of {to}"))
            .collect();
        vec![
            figure.part.clone(),
            figure.side.clone(),
            format!("{} {}", number(figure.median()), figure.unit),
            ratios.join("; "),
            runs.join(" "),
        ]
    });
    output.data(&table(
        &["PART", "SIDE", "MEDIAN", "RATIO", "RUNS"],
        rows.collect(),
    ))
}

fn failed(error: &BenchError, config: &Config) -> Failure {
    let place = config
        .amqp
        .url()
        .map_or_else(|_| "broker".to_owned(), |url| format!("broker {url}"));
    let (exit, next) = match error {
        BenchError::NoVhost(_) => (Exit::Unavailable, NEEDS),
        BenchError::Link(error) => return services::of_link(error, config),
        BenchError::Interrupted => (
            Exit::Failed,
            "the throw-away virtual host is deleted; run it again",
        ),
        BenchError::Missing { .. } => (
            Exit::Failed,
            "look at the broker's log and its alarms; give fewer tasks by --tps",
        ),
        BenchError::Declare(_) | BenchError::Plain(_) | BenchError::Send(_) | BenchError::Build(_) => (
            Exit::Failed,
            "look at the broker's log and its alarms, then run it again",
        ),
    };
    Failure::new(exit, error, place, next)
}
