//! What a worker counts for each delivery that succeeds, by handles instead of by names.
//!
//! May import: `metrics`. Labels as everywhere: [`super::metrics`] decides.

use std::time::Duration;

use metrics::{Counter, Histogram, counter, histogram};
use tidegate_core::dispose::Outcome;

use super::metrics::task_type_label;

/// What is counted for each delivery that succeeds, looked up once instead of three times for each of them.
#[derive(Debug)]
pub struct Successes {
    consumed: Counter,
    ended: Counter,
    took: Histogram,
}

impl Successes {
    /// Of a task type in a queue. Counts by the recorder that is installed now.
    pub fn of(task_type: &str, queue: &str) -> Self {
        let (label, outcome) = (task_type_label(Some(task_type)), Outcome::Done.as_str());
        Self {
            consumed: counter!("tidegate_consumed_total", "task_type" => label.clone(), "queue" => queue.to_owned()),
            ended: counter!("tidegate_task_attempts_total", "task_type" => label.clone(), "outcome" => outcome),
            took: histogram!("tidegate_task_duration_seconds", "task_type" => label, "outcome" => outcome),
        }
    }

    /// As [`consumed`](super::metrics::consumed).
    pub fn consumed(&self) {
        self.consumed.increment(1);
    }

    /// As [`attempt_ended`](super::metrics::attempt_ended) with `done`.
    pub fn ended(&self, took: Duration) {
        self.ended.increment(1);
        self.took.record(took);
    }
}
