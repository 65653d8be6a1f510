//! `tidegate capacity`: how many workers a type needs.
//!
//! May import: `core`, `telemetry`. Reaches workers' metrics listeners only, and only where they are named.

use std::time::Duration;

use serde_json::json;
use tidegate_core::capacity::{Load, Need, RESERVE};
use tokio::time::Instant;

use super::{
    failure::{Exit, Failure},
    output::Output,
};
use crate::{
    config::url::MASK,
    telemetry::scrape::{self, Ran, ScrapeError},
};

/// Arguments of `capacity`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tidegate capacity --rate 100 --duration 250ms --concurrency 10
  tidegate capacity order.close.timeout --metrics http://10.0.0.7:9464/metrics --window 1m

N tasks a second that take T milliseconds each keep N x T / 1000 handlers busy;
30 to 50 % more keep the queue short when tasks come unevenly.")]
pub(super) struct Capacity {
    /// A task type that workers run now
    #[arg(requires = "metrics", required_unless_present_all = ["rate", "duration"])]
    task_type: Option<String>,
    /// Metrics of a worker that runs it; give one for each worker
    #[arg(long, value_name = "URL", requires = "task_type", value_parser = address)]
    metrics: Vec<String>,
    /// How long to watch those metrics, from 1s to 1h
    #[arg(long, default_value = "30s", value_parser = window)]
    window: Duration,
    /// Tasks that arrive in a second, retries included; by default as many as the workers end
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<f64>,
    /// How long one task takes; by default what the workers measure
    #[arg(long, value_parser = humantime::parse_duration)]
    duration: Option<Duration>,
    /// Handlers that run at once in one worker process
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    concurrency: u32,
}

/// Where metrics can be read from.
fn address(text: &str) -> Result<String, String> {
    let is_http = |url: &url::Url| matches!(url.scheme(), "http" | "https") && url.has_host();
    match url::Url::parse(text).ok().filter(is_http) {
        Some(url) => Ok(url.into()),
        None => Err("write it as http://HOST:PORT/metrics".to_owned()),
    }
}

/// A URL without its password.
fn shown(url: &str) -> String {
    let Ok(mut url) = url::Url::parse(url) else {
        return String::new();
    };
    // Refused where there is no host to log in at, and then there is no password either.
    if url.password().is_some() && url.set_password(Some(MASK)).is_err() {
        return String::new();
    }
    url.into()
}

/// Shorter than a second nothing is seen; longer than an hour nobody waits.
fn window(text: &str) -> Result<Duration, String> {
    let window = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let allowed = Duration::from_secs(1)..=Duration::from_secs(3600);
    match allowed.contains(&window) {
        true => Ok(window),
        false => Err("from 1s to 1h".to_owned()),
    }
}

impl Capacity {
    /// Runs the command.
    pub(super) async fn run(self, output: Output) -> Result<(), Failure> {
        let mut seen = std::collections::HashSet::new();
        if let Some(twice) = self.metrics.iter().find(|url| !seen.insert(url.as_str())) {
            return Err(Failure::new(
                Exit::Usage,
                "the same worker twice: its tasks would count twice",
                shown(twice),
                "name each worker once",
            ));
        }
        let measured = match (&self.task_type, self.rate, self.duration) {
            (Some(_), Some(_), Some(_)) | (None, ..) => None,
            (Some(task_type), ..) => Some(self.watch(task_type, output).await?),
        };
        let millis = match (self.duration, measured) {
            (Some(duration), _) => duration.as_secs_f64() * 1000.0,
            (None, Some(measured)) => measured.millis,
            (None, None) => return Err(missing()),
        };
        let per_second = match (self.rate, measured) {
            (Some(rate), _) => rate,
            (None, Some(measured)) => measured.per_second,
            (None, None) => return Err(missing()),
        };
        let load = Load {
            per_second,
            millis,
            concurrency: self.concurrency,
        };
        let need = load.need().map_err(|error| {
            Failure::new(
                Exit::Usage,
                error,
                "command line",
                "correct --rate, --duration or --concurrency",
            )
        })?;
        show(load, need, measured.is_some(), output)
    }

    async fn watch(&self, task_type: &str, output: Output) -> Result<Measured, Failure> {
        let (before, from) = (self.scrape(task_type).await?, Instant::now());
        output.message(&format!(
            "watching {} for {} …",
            if self.metrics.len() == 1 {
                "one worker"
            } else {
                "the workers"
            },
            humantime::format_duration(self.window)
        ));
        tokio::time::sleep(self.window).await;
        let after = self.scrape(task_type).await?;
        let took = from.elapsed().as_secs_f64();
        let (count, seconds) = (after.count - before.count, after.seconds - before.seconds);
        if count < 1.0 || seconds <= 0.0 || took <= 0.0 {
            return Err(Failure::new(
                Exit::NotFound,
                format!("no task of {task_type} ended while the workers were watched"),
                self.metrics
                    .iter()
                    .map(|url| shown(url))
                    .collect::<Vec<_>>()
                    .join(", "),
                "name each worker that runs it, watch longer (--window), or give --rate and --duration",
            ));
        }
        Ok(Measured {
            per_second: count / took,
            millis: seconds * 1000.0 / count,
        })
    }

    async fn scrape(&self, task_type: &str) -> Result<Ran, Failure> {
        let mut all = Ran::default();
        for url in &self.metrics {
            let ran = scrape::ran(url, task_type).await.map_err(|error| {
                let exit = match error {
                    ScrapeError::Away(_) => Exit::Unavailable,
                    ScrapeError::TooLong | ScrapeError::NotAWorker => Exit::Usage,
                };
                Failure::new(
                    exit,
                    error,
                    shown(url),
                    "check the address; a worker shows its metrics where its service does",
                )
            })?;
            all = all + ran;
        }
        Ok(all)
    }
}

#[derive(Clone, Copy)]
struct Measured {
    per_second: f64,
    millis: f64,
}

fn missing() -> Failure {
    Failure::new(
        Exit::Usage,
        "neither a rate and a duration nor a type with its workers' metrics",
        "command line",
        "give --rate and --duration, or a task type and --metrics",
    )
}

fn show(load: Load, need: Need, measured: bool, output: Output) -> Result<(), Failure> {
    if output.json {
        return output.json_line(&json!({
            "perSecond": load.per_second,
            "durationMs": load.millis,
            "measured": measured,
            "concurrency": load.concurrency,
            "busy": need.busy,
            "slots": [need.slots_low, need.slots_high],
            "workers": [need.workers_low, need.workers_high],
        }));
    }
    let (low, high) = (RESERVE.0 * 100.0, RESERVE.1 * 100.0);
    let source = if measured { " (measured)" } else { "" };
    output.data(&format!(
        "load      N = {:.2} tasks/s, T = {:.1} ms{source}\n\
         busy      N × T / 1000 = {:.2} handlers at any moment\n\
         reserve   {low:.0} % to {high:.0} % more: {} to {} handlers\n\
         workers   at concurrency {}: {} to {}\n",
        load.per_second,
        load.millis,
        need.busy,
        need.slots_low,
        need.slots_high,
        load.concurrency,
        need.workers_low,
        need.workers_high,
    ))
}
