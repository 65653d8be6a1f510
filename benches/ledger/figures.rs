//! Several runs, their median, and a table of it.

use std::{fmt, time::Duration};

/// How much and how often.
pub(crate) struct Scale {
    factor: f64,
    pub(crate) runs: usize,
}

impl Scale {
    pub(crate) fn from_environment() -> Self {
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
    pub(crate) fn setting(&self, name: &str, default: u32) -> u32 {
        std::env::var(name).map_or(default, |text| {
            text.parse()
                .unwrap_or_else(|_| panic!("{name} is a whole number, not {text:?}"))
        })
    }

    /// A count of things.
    pub(crate) fn count(&self, full: u32) -> u32 {
        ((f64::from(full) * self.factor) as u32).max(1)
    }

    /// A time, of five seconds at least.
    pub(crate) fn time(&self, full: Duration) -> Duration {
        full.mul_f64(self.factor).max(Duration::from_secs(5))
    }
}

/// The middle one; of an even number the lower of the two.
pub(crate) fn median(mut runs: Vec<f64>) -> f64 {
    runs.sort_by(f64::total_cmp);
    runs[(runs.len() - 1) / 2]
}

struct Figure {
    part: &'static str,
    what: String,
    value: String,
    ratio: String,
    runs: String,
}

/// The table.
#[derive(Default)]
pub(crate) struct Figures(Vec<Figure>);

impl Figures {
    /// A figure with all its runs; returns their median. `ratio` is compared with whatever its text names.
    pub(crate) fn add(
        &mut self,
        part: &'static str,
        what: impl Into<String>,
        unit: &str,
        runs: Vec<f64>,
    ) -> f64 {
        let shown: Vec<String> = runs.iter().map(|run| number(*run)).collect();
        let value = median(runs);
        let what = what.into();
        eprintln!("  {what}: {} {unit} (runs: {})", number(value), shown.join(", "));
        self.0.push(Figure {
            part,
            what,
            value: format!("{} {unit}", number(value)),
            ratio: String::new(),
            runs: shown.join(", "),
        });
        value
    }

    /// The last figure as a part of another one.
    pub(crate) fn ratio(&mut self, of: f64, to: f64, name: &str) {
        if let Some(last) = self.0.last_mut() {
            last.ratio = format!("{:.2} of {name}", of / to);
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
        for figure in &self.0 {
            writeln!(
                f,
                "| {} | {} | {} | {} | `cargo bench --bench ledger -- {}` |",
                figure.what, figure.value, figure.ratio, figure.runs, figure.part
            )?;
        }
        Ok(())
    }
}
