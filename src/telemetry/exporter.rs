//! The recorder behind all metrics, and the text that Prometheus scrapes.
//!
//! May import: `catalogue`, `metrics`. Series whose labels are known are exported at zero from the start, so that a
//! rate over the first event is not lost.

use std::time::Duration;

use metrics_exporter_prometheus::{
    BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};

use super::{catalogue, metrics as recorded};

/// Upper bounds of the buckets of every histogram of seconds.
pub const SECONDS: [f64; 17] = [
    0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 30.0, 60.0, 300.0,
];

/// How often the recorder folds what it collected, even if nobody scrapes.
const UPKEEP: Duration = Duration::from_secs(5);

/// Why metrics can't be recorded.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    /// The recorder can't be built.
    #[error("metrics: {0}")]
    Build(#[from] BuildError),
    /// Something has set up metrics already.
    #[error("metrics are set up already")]
    Twice,
}

/// What a scrape reads; cheap to clone.
#[derive(Clone, Debug)]
pub struct Exporter {
    handle: PrometheusHandle,
}

impl Exporter {
    /// Installs the recorder of the whole process; call once, before anything records.
    pub fn install() -> Result<Self, MetricsError> {
        let recorder = recorder()?;
        let exporter = Self {
            handle: recorder.handle(),
        };
        metrics::set_global_recorder(recorder).map_err(|_| MetricsError::Twice)?;
        start_at_zero();
        Ok(exporter)
    }

    /// All series in Prometheus' text format.
    pub fn render(&self) -> String {
        self.handle.render()
    }

    /// Folds histograms for ever; without it they grow until the next scrape.
    pub async fn upkeep(self) {
        let mut every = tokio::time::interval(UPKEEP);
        loop {
            every.tick().await;
            self.handle.run_upkeep();
        }
    }
}

fn recorder() -> Result<PrometheusRecorder, MetricsError> {
    Ok(PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS)?
        .build_recorder())
}

fn start_at_zero() {
    catalogue::describe();
    recorded::start_at_zero();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(record: impl FnOnce()) -> String {
        let recorder = recorder().unwrap();
        let handle = recorder.handle();
        metrics::with_local_recorder(&recorder, || {
            start_at_zero();
            record();
        });
        handle.render()
    }

    #[test]
    fn known_series_are_there_before_anything_happens() {
        let text = rendered(|| {});
        for line in [
            concat!(
                "tidegate_build_info{version=\"",
                env!("CARGO_PKG_VERSION"),
                "\"} 1"
            ),
            "tidegate_published_total{task_type=\"_other\",outcome=\"returned\"} 0",
            "tidegate_dead_letters_total{task_type=\"_other\",reason=\"retries_exhausted\",role=\"router\"} 0",
            "tidegate_cron_fires_total{outcome=\"SKIPPED_MISFIRE\"} 0",
            "tidegate_role_restarts_total{role=\"relay\"} 0",
            "tidegate_amqp_connection_blocked{purpose=\"publish\"} 0",
            "# HELP tidegate_role_restarts_total Times a background loop ended and was started again.",
            "# TYPE tidegate_published_total counter",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }

    #[test]
    fn histograms_have_buckets_in_seconds() {
        let text = rendered(|| recorded::started(None, Duration::from_millis(80)));
        assert!(
            text.contains("tidegate_task_lateness_seconds_bucket{task_type=\"_other\",le=\"0.075\"} 0"),
            "{text}"
        );
        assert!(
            text.contains("tidegate_task_lateness_seconds_bucket{task_type=\"_other\",le=\"0.1\"} 1"),
            "{text}"
        );
        assert!(
            text.contains("tidegate_task_lateness_seconds_bucket{task_type=\"_other\",le=\"300\"} 1"),
            "{text}"
        );
    }
}
