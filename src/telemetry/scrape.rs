//! Reads what workers export: how often and how long handlers of a type ran.
//!
//! May import: reqwest. It understands the text of our own exporter, and of any that follows Prometheus' text format.

use std::time::Duration;

/// Longest wait for one worker.
const LIMIT: Duration = Duration::from_secs(10);

/// Longest text that is read.
const MOST_BYTES: usize = 16 * 1024 * 1024;

/// What every worker counts: attempts that ended, and how long they took.
const DURATIONS: &str = "tidegate_task_duration_seconds";

/// Why a worker's metrics can't be read.
#[derive(Debug, thiserror::Error)]
pub enum ScrapeError {
    /// Nobody answers there, or not with metrics.
    #[error("{0}")]
    Away(String),
    /// Too much.
    #[error("more than {MOST_BYTES} bytes")]
    TooLong,
    /// Metrics of something else.
    #[error("no series {DURATIONS}: is it the metrics listener of a worker that has run something?")]
    NotAWorker,
}

/// Attempts of one type that ended, and the time they took together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ran {
    /// How many.
    pub count: f64,
    /// Seconds.
    pub seconds: f64,
}

impl std::ops::Add for Ran {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            seconds: self.seconds + other.seconds,
        }
    }
}

/// What the worker at `url` has counted for `task_type` so far.
pub async fn ran(url: &str, task_type: &str) -> Result<Ran, ScrapeError> {
    let away = |error: reqwest::Error| ScrapeError::Away(error.without_url().to_string());
    let client = reqwest::Client::builder().timeout(LIMIT).build().map_err(away)?;
    let response = client.get(url).send().await.map_err(away)?;
    let mut response = response.error_for_status().map_err(away)?;
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(away)? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > MOST_BYTES {
            return Err(ScrapeError::TooLong);
        }
    }
    read(&String::from_utf8_lossy(&bytes), task_type).ok_or(ScrapeError::NotAWorker)
}

/// `None`: the text has no such series of any type.
fn read(text: &str, task_type: &str) -> Option<Ran> {
    let label = format!("task_type=\"{task_type}\"");
    let (mut ran, mut any) = (Ran::default(), false);
    for line in text.lines().filter(|line| line.starts_with(DURATIONS)) {
        let Some((series, value)) = line.rsplit_once(' ') else {
            continue;
        };
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        any = true;
        let Ok(value) = value.parse::<f64>() else { continue };
        if !labels.split([',', '}']).any(|one| one == label) {
            continue;
        }
        match name.strip_prefix(DURATIONS) {
            Some("_count") => ran.count += value,
            Some("_sum") => ran.seconds += value,
            _ => {}
        }
    }
    any.then_some(ran)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"# TYPE tidegate_task_duration_seconds histogram
tidegate_task_duration_seconds_bucket{task_type="order.close",outcome="done",le="0.005"} 7
tidegate_task_duration_seconds_sum{task_type="order.close",outcome="done"} 1.5
tidegate_task_duration_seconds_count{task_type="order.close",outcome="done"} 10
tidegate_task_duration_seconds_sum{task_type="order.close",outcome="retry"} 0.5
tidegate_task_duration_seconds_count{task_type="order.close",outcome="retry"} 2
tidegate_task_duration_seconds_count{task_type="order.close.late",outcome="done"} 99
tidegate_consumed_total{task_type="order.close",queue="q"} 12
"#;

    #[test]
    fn outcomes_of_a_type_are_added_up_and_other_types_left_out() {
        let want = Ran {
            count: 12.0,
            seconds: 2.0,
        };
        assert_eq!(read(TEXT, "order.close"), Some(want));
        assert_eq!(read(TEXT, "order.never"), Some(Ran::default()));
        assert_eq!(read("up 1\n", "order.close"), None);
    }
}
