//! Every metric there is: name, kind, labels, help. What is exported, described and documented comes from here.
//!
//! May import: nothing of ours.

use std::fmt::Write;

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts observations in buckets.
    Histogram,
}

/// One metric.
#[derive(Debug)]
pub struct Metric {
    /// Name as scraped.
    pub name: &'static str,
    /// What it is.
    pub kind: Type,
    /// Unit of its value.
    pub unit: Unit,
    /// Labels.
    pub labels: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
}

const fn metric(
    name: &'static str,
    kind: Type,
    unit: Unit,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    Metric {
        name,
        kind,
        unit,
        labels,
        help,
    }
}

use Type::{Counter, Gauge, Histogram};
use Unit::{Count, Seconds};

/// All metrics, in the order of the documentation.
#[rustfmt::skip]
pub static METRICS: &[Metric] = &[
    metric("tidegate_build_info", Gauge, Count, &["version"], "Always 1; the label is the version."),
    metric("tidegate_published_total", Counter, Count, &["task_type", "outcome"],
        "Publishes by how they ended: confirmed, returned (no queue takes the key), nacked, timed_out, no_exchange, forbidden, invalid."),
    metric("tidegate_publish_confirm_seconds", Histogram, Seconds, &["outcome"], "Time from a publish to its confirm or failure."),
    metric("tidegate_consumed_total", Counter, Count, &["task_type", "queue"], "Deliveries that reached a worker."),
    metric("tidegate_task_attempts_total", Counter, Count, &["task_type", "outcome"], "Attempts by how they ended."),
    metric("tidegate_task_duration_seconds", Histogram, Seconds, &["task_type", "outcome"], "How long handlers ran."),
    metric("tidegate_task_lateness_seconds", Histogram, Seconds, &["task_type"], "Time from when a task was due to its start."),
    metric("tidegate_task_retries_total", Counter, Count, &["task_type", "role"], "Attempts that were sent to the ladder, by worker or router."),
    metric("tidegate_task_errors_total", Counter, Count, &["task_type", "kind"],
        "Failed attempts in workers by the kind that the handler named; what is no short lower-case word, or one too many, is _other."),
    metric("tidegate_task_quick_retries_total", Counter, Count, &["task_type"], "Failed tries that were repeated at once, within one attempt."),
    metric("tidegate_deliveries_too_old_total", Counter, Count, &["queue"],
        "Deliveries that waited so long in a worker that they went back to their queue unstarted, before the broker took them."),
    metric("tidegate_blocking_outlived", Gauge, Count, &[], "Blocking closures that still run after their attempt ended."),
    metric("tidegate_task_deferred_total", Counter, Count, &["task_type", "reason"],
        "Deliveries put off as the same attempt, by a worker: early (before its time), concurrency, retries, rate (over that limit of its type), suspect (another suspect was running, or it became one), idempotency (its key is held, or can't be claimed), ledger (no answer); by the router: overflow (its queue was full and let it go)."),
    metric("tidegate_crash_suspects_total", Counter, Count, &["task_type", "step"],
        "Tasks that worker processes died with, as a worker met them: suspected (published anew), alone (started with nothing beside it), dead (dead-lettered)."),
    metric("tidegate_dead_letters_total", Counter, Count, &["task_type", "reason", "role"], "Tasks that failed for good, by reason."),
    metric("tidegate_dead_letters_archived_total", Counter, Count, &["task_type", "reason"], "Dead letters that came into the archive."),
    metric("tidegate_archive_batch_seconds", Histogram, Seconds, &[], "Time to archive a batch of dead letters, its commit included."),
    metric("tidegate_archive_failures_total", Counter, Count, &["kind"],
        "Failures to archive: database (a batch, tried again), refused (one dead letter, held in its queue)."),
    metric("tidegate_archive_refused", Gauge, Count, &[], "Dead letters that the database refuses and that stay in their queue, unacknowledged."),
    metric("tidegate_dead_letters_open", Gauge, Count, &["task_type"],
        "Dead letters in the archive that nobody has dealt with; every instance tells the same number."),
    metric("tidegate_dead_letters_dropped_open_total", Counter, Count, &[],
        "Dead letters that nobody had dealt with when they had been kept long enough and were dropped."),
    metric("tidegate_replayed_total", Counter, Count, &["task_type"],
        "Dead letters that went out again and were confirmed, by the server; what a command replays, its own output counts."),
    metric("tidegate_unroutable_total", Counter, Count, &["action"], "Messages that no binding took, by what became of them."),
    metric("tidegate_cron_fires_total", Counter, Count, &["outcome"], "Cron occurrences by outcome."),
    metric("tidegate_scheduler_lag_seconds", Histogram, Seconds, &[], "Time from a cron occurrence to its record."),
    metric("tidegate_cron_rows_in_error", Gauge, Count, &[], "Cron rows that can't be scheduled; their last_error says why."),
    metric("tidegate_cron_ids_taken_total", Counter, Count, &[], "Cron tasks that were not sent because their id stands for a task of another type or origin."),
    metric("tidegate_relayed_total", Counter, Count, &["outcome"], "Tasks of the ledger handed to the broker, by outcome."),
    metric("tidegate_ledger_statements_total", Counter, Count, &["kind"],
        "Statements to the ledger, of workers: start (claims), result, cancel (looks for requests to cancel); of idempotency keys claim, complete, release, renew; of the router: routed (what became of tasks at other consumers)."),
    metric("tidegate_ledger_tasks_total", Counter, Count, &["kind"], "Tasks that those statements were about."),
    metric("tidegate_ledger_results_late_total", Counter, Count, &[], "Tasks acknowledged before the ledger had their result; it is told in the background."),
    metric("tidegate_ledger_results_lost_total", Counter, Count, &[], "Results that the ledger never got: its row stays as it was."),
    metric("tidegate_idempotency_claims_total", Counter, Count, &["task_type", "answer"],
        "Claims of idempotency keys: granted (it runs), done (a duplicate, acknowledged without running), held (another run has it; the delivery waits)."),
    metric("tidegate_idempotency_key_missing_total", Counter, Count, &["task_type"],
        "Tasks whose payload lacks the member that is their type's idempotency key: the task id took its place."),
    metric("tidegate_idempotency_late_results_total", Counter, Count, &["task_type"],
        "Runs that succeeded after they had lost their key (frozen beyond the lease, or its row deleted): refused, not acknowledged."),
    metric("tidegate_pruned_total", Counter, Count, &["kind"], "Rows deleted because they had been kept long enough, by setting; of dead letters a whole day at once."),
    metric("tidegate_digests_total", Counter, Count, &["target", "outcome"],
        "Digests of dead letters by the webhook's format: sent, quiet (nothing new), retry (not taken; tried again), failed (given up; the next one tells of its span)."),
    metric("tidegate_amqp_connection_up", Gauge, Count, &["purpose"], "1 while a connection of this purpose stands."),
    metric("tidegate_amqp_connection_blocked", Gauge, Count, &["purpose"], "1 while the broker blocks a connection of this purpose: memory or disk alarm."),
    metric("tidegate_ack_frames_total", Counter, Count, &["queue"], "Frames that told the broker what is finished, acknowledged or put back."),
    metric("tidegate_ack_deliveries_total", Counter, Count, &["queue"], "Deliveries these frames settled; divided by them it is the deliveries per frame."),
    metric("tidegate_consumer_resubscribed_total", Counter, Count, &["queue", "why"], "Times a consumer had to subscribe again."),
    metric("tidegate_role_restarts_total", Counter, Count, &["role"], "Times a background loop ended and was started again."),
];

/// Tells the recorder unit and help of every metric.
pub fn describe() {
    for m in METRICS {
        match m.kind {
            Counter => describe_counter!(m.name, m.unit, m.help),
            Gauge => describe_gauge!(m.name, m.unit, m.help),
            Histogram => describe_histogram!(m.name, m.unit, m.help),
        }
    }
}

/// The table of `docs/metrics.md`.
pub fn documentation() -> String {
    let mut table = String::from("| Metric | Type | Unit | Labels | What it says |\n|---|---|---|---|---|\n");
    for m in METRICS {
        let kind = match m.kind {
            Counter => "counter",
            Gauge => "gauge",
            Histogram => "histogram",
        };
        let labels: Vec<_> = m.labels.iter().map(|label| format!("`{label}`")).collect();
        let labels = if labels.is_empty() {
            "—".to_owned()
        } else {
            labels.join(", ")
        };
        // Writing to a String can't fail.
        let _ = writeln!(
            table,
            "| `{}` | {kind} | {} | {labels} | {} |",
            m.name,
            m.unit.as_str(),
            m.help
        );
    }
    table
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_metric_that_is_recorded_is_listed_and_the_other_way_round() {
        let recorded: BTreeSet<&str> = [
            include_str!("metrics.rs"),
            include_str!("dead_letters.rs"),
            include_str!("exporter.rs"),
        ]
        .into_iter()
        .flat_map(|source| source.split('"'))
        .filter(|text| {
            text.starts_with("tidegate_") && text.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
        })
        .collect();
        let listed: BTreeSet<&str> = METRICS.iter().map(|m| m.name).collect();
        assert_eq!(recorded, listed);
    }

    #[test]
    fn names_follow_their_kind() {
        for m in METRICS {
            assert_eq!(m.name.ends_with("_total"), m.kind == Counter, "{}", m.name);
            assert_eq!(m.name.ends_with("_seconds"), m.kind == Histogram, "{}", m.name);
            assert!(m.help.ends_with('.'), "{}", m.name);
        }
    }

    #[test]
    fn the_documentation_holds_the_table() {
        crate::telemetry::docs::assert_holds("docs/metrics.md", &documentation());
    }
}
