//! What is recorded of the archive of dead letters.
//!
//! May import: `metrics`, for the labels of task types.

use std::time::Duration;

use metrics::{counter, gauge, histogram};

use super::metrics::task_type_label;

/// Exports series whose labels are known before the first event.
pub(super) fn start_at_zero() {
    for kind in ["database", "refused"] {
        counter!("tidegate_archive_failures_total", "kind" => kind).increment(0);
    }
    refused(0);
    open_dropped(0);
}

/// A dead letter came into the archive.
pub fn archived(task_type: Option<&str>, reason: &'static str) {
    counter!("tidegate_dead_letters_archived_total", "task_type" => task_type_label(task_type), "reason" => reason)
        .increment(1);
}

/// A dead letter went out again.
pub fn replayed(task_type: Option<&str>) {
    counter!("tidegate_replayed_total", "task_type" => task_type_label(task_type)).increment(1);
}

/// A batch of dead letters was archived within `took`.
pub fn batch(took: Duration) {
    histogram!("tidegate_archive_batch_seconds").record(took);
}

/// Archiving failed: `database` or `refused`.
pub fn failed(kind: &'static str) {
    counter!("tidegate_archive_failures_total", "kind" => kind).increment(1);
}

/// So many dead letters are held that the database refuses.
pub fn refused(held: usize) {
    gauge!("tidegate_archive_refused").set(held as f64);
}

/// So many dead letters of the type with this label are open in the archive.
pub fn open(label: &str, open: u64) {
    gauge!("tidegate_dead_letters_open", "task_type" => label.to_owned()).set(open as f64);
}

/// So many open dead letters were dropped because they had been kept long enough.
pub fn open_dropped(open: u64) {
    counter!("tidegate_dead_letters_dropped_open_total").increment(open);
}

/// A digest in the webhook's format `target` ended as `sent`, `quiet`, `retry` or `failed`.
pub fn digest(target: &'static str, outcome: &'static str) {
    counter!("tidegate_digests_total", "target" => target, "outcome" => outcome).increment(1);
}
