//! Several runs, their median, and a table of it.

#![allow(clippy::print_stderr, reason = "a bench shows what it does")]

use std::{fmt, time::Duration};

use sqlx::PgPool;

use crate::services;

/// How much and how often, from the environment.
#[derive(Debug)]
pub struct Scale {
    factor: f64,
    /// How often each figure is taken.
    pub runs: usize,
}

impl Scale {
    /// As the environment says; `TIDEGATE_BENCH_RUNS` and `TIDEGATE_BENCH_SCALE`.
    ///
    /// # Panics
    /// If they are no numbers.
    pub fn from_environment() -> Self {
        let number = |name: &str, default: f64| {
            std::env::var(name).map_or(default, |text| {
                text.parse()
                    .unwrap_or_else(|_| panic!("{name} is a number, not {text:?}"))
            })
        };
        Self {
            factor: number("TIDEGATE_BENCH_SCALE", 1.0),
            runs: number("TIDEGATE_BENCH_RUNS", 3.0).max(1.0) as usize,
        }
    }

    /// A number that is not scaled.
    ///
    /// # Panics
    /// If the variable `name` holds none.
    pub fn setting(&self, name: &str, default: u32) -> u32 {
        std::env::var(name).map_or(default, |text| {
            text.parse()
                .unwrap_or_else(|_| panic!("{name} is a whole number, not {text:?}"))
        })
    }

    /// A count of things.
    pub fn count(&self, full: u32) -> u32 {
        ((f64::from(full) * self.factor) as u32).max(1)
    }

    /// A time, of five seconds at least.
    pub fn time(&self, full: Duration) -> Duration {
        full.mul_f64(self.factor).max(Duration::from_secs(5))
    }
}

/// The middle one; of an even number the lower of the two.
pub fn median(mut runs: Vec<f64>) -> f64 {
    runs.sort_by(f64::total_cmp);
    runs[(runs.len() - 1) / 2]
}

#[derive(Debug)]
struct Figure {
    part: &'static str,
    what: String,
    value: String,
    ratio: String,
    runs: String,
}

/// The table.
#[derive(Debug)]
pub struct Figures {
    bench: &'static str,
    taken: Vec<Figure>,
}

impl Figures {
    /// An empty table of the bench of that name.
    pub fn of(bench: &'static str) -> Self {
        let taken = Vec::new();
        Self { bench, taken }
    }

    /// A figure with all its runs; returns their median. `ratio` is compared with whatever its text names.
    pub fn add(&mut self, part: &'static str, what: impl Into<String>, unit: &str, runs: Vec<f64>) -> f64 {
        let shown: Vec<String> = runs.iter().map(|run| number(*run)).collect();
        let value = median(runs);
        let what = what.into();
        eprintln!("  {what}: {} {unit} (runs: {})", number(value), shown.join(", "));
        self.taken.push(Figure {
            part,
            what,
            value: format!("{} {unit}", number(value)),
            ratio: String::new(),
            runs: shown.join(", "),
        });
        value
    }

    /// The last figure as a part of another one; may be called for several.
    pub fn ratio(&mut self, of: f64, to: f64, name: &str) {
        if let Some(last) = self.taken.last_mut() {
            if !last.ratio.is_empty() {
                last.ratio.push_str("; ");
            }
            last.ratio += &format!("{:.2} of {name}", of / to);
        }
    }
}

fn number(value: f64) -> String {
    if value >= 100.0 {
        let digits = format!("{value:.0}");
        let mut out = String::new();
        for (at, digit) in digits.chars().enumerate() {
            if at > 0 && (digits.len() - at).is_multiple_of(3) {
                out.push(',');
            }
            out.push(digit);
        }
        out
    } else {
        format!("{value:.2}")
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| figure | median | ratio | runs | command |")?;
        writeln!(f, "|---|---|---|---|---|")?;
        for figure in &self.taken {
            writeln!(
                f,
                "| {} | {} | {} | {} | `cargo bench --bench {} -- {}` |",
                figure.what, figure.value, figure.ratio, figure.runs, self.bench, figure.part
            )?;
        }
        Ok(())
    }
}

/// What this runs on.
///
/// # Panics
/// If the services do not answer.
pub async fn machine() -> String {
    let sql = PgPool::connect(&services().database)
        .await
        .expect("Postgres answers");
    let postgres: String = sqlx::query_scalar("SHOW server_version")
        .fetch_one(&sql)
        .await
        .expect("Postgres answers");
    let url = format!("{}/api/overview", services().management);
    let overview: serde_json::Value = async { reqwest::get(url).await?.json().await }
        .await
        .unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let build = if cfg!(debug_assertions) {
        "DEBUG build: no figures to keep"
    } else {
        "release build"
    };
    format!(
        "{cores} cores shared with all services; Postgres {postgres}; RabbitMQ {}; {build}; {}",
        overview["rabbitmq_version"]
            .as_str()
            .unwrap_or("of unknown version"),
        chrono::Utc::now().format("%Y-%m-%d")
    )
}
