//! Names of all metrics, and one function to record each.
//!
//! A task type becomes a label only if topology, a contract or a registered handler names it; any other is
//! `_other`, so that what strangers publish can't grow the number of series.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::{Mutex, PoisonError, RwLock},
    time::Duration,
};

use metrics::{counter, gauge, histogram};

use super::dead_letters;

/// Label of every task type that nothing here names.
pub const OTHER: &str = "_other";

/// Most task types that become labels.
pub const MAX_TASK_TYPES: usize = 1_000;

static KNOWN: RwLock<Option<HashSet<String>>> = RwLock::new(None);

/// Lets `task_type` appear as a label.
pub fn know_task_type(task_type: &str) {
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_default();
    if known.len() < MAX_TASK_TYPES && known.insert(task_type.to_owned()) {
        task_type_at_zero(task_type);
    }
}

/// Exports series whose labels are known before the first event. `serve` does so; a service with a recorder of its own calls
/// it, and [`describe`](super::catalogue::describe), once that is installed.
pub fn start_at_zero() {
    gauge!("tidegate_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    task_type_at_zero(OTHER);
    for outcome in ["FIRED", "CAUGHT_UP", "SKIPPED_MISFIRE", "SKIPPED_OVERLAP"] {
        counter!("tidegate_cron_fires_total", "outcome" => outcome).increment(0);
    }
    for action in ["returned_to_ledger", "dead_lettered"] {
        counter!("tidegate_unroutable_total", "action" => action).increment(0);
    }
    for purpose in ["publish", "consume"] {
        count_connections(purpose, |_| {});
    }
    for role in [
        "scheduler",
        "relay",
        "router",
        "retention",
        "archivist",
        "archive_days",
    ] {
        counter!("tidegate_role_restarts_total", "role" => role).increment(0);
    }
    cron_rows_in_error(0);
    counter!("tidegate_cron_ids_taken_total").increment(0);
    for kind in [
        "start", "result", "cancel", "claim", "complete", "release", "renew", "routed",
    ] {
        counter!("tidegate_ledger_statements_total", "kind" => kind).increment(0);
        counter!("tidegate_ledger_tasks_total", "kind" => kind).increment(0);
    }
    gauge!("tidegate_blocking_outlived").set(0.0);
    counter!("tidegate_ledger_results_late_total").increment(0);
    counter!("tidegate_ledger_results_lost_total").increment(0);
    for kind in [
        "success",
        "failed",
        "canceled",
        "unreported",
        "cron_fires",
        "executions",
        "dead_letters",
    ] {
        pruned(kind, 0);
    }
    dead_letters::start_at_zero();
}

fn task_type_at_zero(task_type: &str) {
    for outcome in [
        "confirmed",
        "returned",
        "nacked",
        "timed_out",
        "no_exchange",
        "forbidden",
        "invalid",
    ] {
        counter!("tidegate_published_total", "task_type" => task_type.to_owned(), "outcome" => outcome)
            .increment(0);
    }
    for step in ["suspected", "alone", "dead"] {
        counter!("tidegate_crash_suspects_total", "task_type" => task_type.to_owned(), "step" => step)
            .increment(0);
    }
    for role in ["worker", "router"] {
        counter!("tidegate_task_retries_total", "task_type" => task_type.to_owned(), "role" => role)
            .increment(0);
        // The commonest reasons only: all of them for each type would be mostly zeros for ever.
        for reason in ["retries_exhausted", "rejected"] {
            counter!("tidegate_dead_letters_total", "task_type" => task_type.to_owned(), "reason" => reason, "role" => role)
                .increment(0);
        }
    }
}

/// The label for `task_type`.
pub fn task_type_label(task_type: Option<&str>) -> String {
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
    match (task_type, known.as_ref()) {
        (Some(task_type), Some(known)) if known.contains(task_type) => task_type.to_owned(),
        _ => OTHER.to_owned(),
    }
}

/// Most kinds of errors that become labels, and the longest of them.
const MAX_ERROR_KINDS: usize = 100;
const MAX_ERROR_KIND_BYTES: usize = 48;

static ERROR_KINDS: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// The label for a kind that comes from a handler: one that looks like a word, while there are not too many of them.
fn error_kind_label(kind: &str, known: &mut BTreeSet<String>) -> String {
    let word = kind.len() <= MAX_ERROR_KIND_BYTES
        && kind.starts_with(|c: char| c.is_ascii_lowercase())
        && kind
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-' | b'.'));
    if word && !known.contains(kind) && known.len() < MAX_ERROR_KINDS {
        known.insert(kind.to_owned());
    }
    if known.contains(kind) {
        kind.to_owned()
    } else {
        OTHER.to_owned()
    }
}

/// An attempt in a worker failed with `kind`.
pub fn attempt_failed(task_type: Option<&str>, kind: &str) {
    let kind = error_kind_label(
        kind,
        &mut ERROR_KINDS.lock().unwrap_or_else(PoisonError::into_inner),
    );
    counter!("tidegate_task_errors_total", "task_type" => task_type_label(task_type), "kind" => kind)
        .increment(1);
}

/// A publish ended as `confirmed`, `returned`, `nacked` or `timed_out` after `took`.
pub fn publish_ended(task_type: Option<&str>, outcome: &'static str, took: Duration) {
    counter!("tidegate_published_total", "task_type" => task_type_label(task_type), "outcome" => outcome)
        .increment(1);
    histogram!("tidegate_publish_confirm_seconds", "outcome" => outcome).record(took);
}

/// A delivery reached a worker.
pub fn consumed(task_type: Option<&str>, queue: &str) {
    counter!("tidegate_consumed_total", "task_type" => task_type_label(task_type), "queue" => queue.to_owned()).increment(1);
}

/// An attempt ended with `outcome`; after `took`, where it was ours to measure.
pub fn attempt_ended(task_type: Option<&str>, outcome: &'static str, took: Option<Duration>) {
    counter!("tidegate_task_attempts_total", "task_type" => task_type_label(task_type), "outcome" => outcome)
        .increment(1);
    if let Some(took) = took {
        histogram!("tidegate_task_duration_seconds", "task_type" => task_type_label(task_type), "outcome" => outcome)
            .record(took);
    }
}

/// A task started `late` after it was due.
pub fn started(task_type: Option<&str>, late: Duration) {
    histogram!("tidegate_task_lateness_seconds", "task_type" => task_type_label(task_type)).record(late);
}

/// A task was sent to the ladder for another attempt by `role` (`worker` or `router`).
pub fn retried(task_type: Option<&str>, role: &'static str) {
    counter!("tidegate_task_retries_total", "task_type" => task_type_label(task_type), "role" => role)
        .increment(1);
}

/// A failed try of a task was repeated at once, within its attempt.
pub fn quick_retried(task_type: &str) {
    counter!("tidegate_task_quick_retries_total", "task_type" => task_type_label(Some(task_type)))
        .increment(1);
}

/// A delivery waited so long in a worker that its timeout no longer fits what the broker allows; it goes back to `queue`.
pub fn too_old(queue: &str) {
    counter!("tidegate_deliveries_too_old_total", "queue" => queue.to_owned()).increment(1);
}

/// `change` closures run whose attempt has ended: 1 more, or -1 where one has ended.
pub fn blocking_outlives(change: f64) {
    gauge!("tidegate_blocking_outlived").increment(change);
}

/// A delivery was put off as the same attempt: `early`, `suspect`, `concurrency`, `retries`, `rate`, `idempotency` or `ledger` by a
/// worker, `overflow` by the router.
pub fn deferred(task_type: Option<&str>, reason: &'static str) {
    counter!("tidegate_task_deferred_total", "task_type" => task_type_label(task_type), "reason" => reason)
        .increment(1);
}

/// A worker met a task that worker processes had died with: `suspected`, `alone` or `dead`.
pub fn crash_suspect(task_type: Option<&str>, step: &'static str) {
    counter!("tidegate_crash_suspects_total", "task_type" => task_type_label(task_type), "step" => step)
        .increment(1);
}

/// A task was dead-lettered by `role`.
pub fn dead_lettered(task_type: Option<&str>, reason: &'static str, role: &'static str) {
    counter!("tidegate_dead_letters_total", "task_type" => task_type_label(task_type), "reason" => reason, "role" => role)
        .increment(1);
}

/// A message reached `task.unrouted` and was taken care of by `action`.
pub fn unroutable(action: &'static str) {
    counter!("tidegate_unroutable_total", "action" => action).increment(1);
}

/// Cron occurrences were recorded with `outcome`, the last of them `lag` after its instant.
pub fn cron_fired(outcome: &'static str, occurrences: u64, lag: Duration) {
    counter!("tidegate_cron_fires_total", "outcome" => outcome).increment(occurrences);
    histogram!("tidegate_scheduler_lag_seconds").record(lag);
}

/// Cron rows that can't be scheduled right now.
pub fn cron_rows_in_error(rows: u64) {
    gauge!("tidegate_cron_rows_in_error").set(rows as f64);
}

/// A cron row's task was not sent, because its id stands for another.
pub fn cron_id_taken() {
    counter!("tidegate_cron_ids_taken_total").increment(1);
}

/// The relay handed over `rows` tasks with `outcome`.
pub fn relayed(outcome: &'static str, rows: u64) {
    counter!("tidegate_relayed_total", "outcome" => outcome).increment(rows);
}

/// A worker asked the ledger about `tasks` tasks in one statement of `kind`: see the catalogue.
pub fn ledger_asked(kind: &'static str, tasks: usize) {
    counter!("tidegate_ledger_statements_total", "kind" => kind).increment(1);
    counter!("tidegate_ledger_tasks_total", "kind" => kind).increment(tasks as u64);
}

/// A task was acknowledged before the ledger had its result, which is told in the background.
pub fn ledger_result_late() {
    counter!("tidegate_ledger_results_late_total").increment(1);
}

/// A result never reached the ledger.
pub fn ledger_result_lost() {
    counter!("tidegate_ledger_results_lost_total").increment(1);
}

/// The ledger answered a claim of an idempotency key: `granted`, `done` or `held`.
pub fn key_claimed(task_type: &str, answer: &'static str) {
    counter!("tidegate_idempotency_claims_total", "task_type" => task_type_label(Some(task_type)), "answer" => answer).increment(1);
}

/// The member of the payload that is the idempotency key was missing: the task id took its place.
pub fn key_missing(task_type: &str) {
    counter!("tidegate_idempotency_key_missing_total", "task_type" => task_type_label(Some(task_type)))
        .increment(1);
}

/// A run succeeded after it had lost its idempotency key, and its result was refused.
pub fn late_result_refused(task_type: &str) {
    counter!("tidegate_idempotency_late_results_total", "task_type" => task_type_label(Some(task_type)))
        .increment(1);
}

/// Retention deleted `rows` rows of `kind`.
pub fn pruned(kind: &'static str, rows: u64) {
    counter!("tidegate_pruned_total", "kind" => kind).increment(rows);
}

/// Connections that stand, by purpose (`publish` or `consume`), and how many of them are blocked. The gauges say whether
/// there is one: publishing uses several, and an old one may end after its successor has begun.
static CONNECTIONS: Mutex<BTreeMap<&'static str, (u32, u32)>> = Mutex::new(BTreeMap::new());

/// What one AMQP connection contributes to the gauges, for as long as it stands.
#[derive(Debug)]
pub struct ConnectionGauges {
    purpose: &'static str,
    blocked: bool,
}

impl ConnectionGauges {
    /// A connection was opened.
    pub fn up(purpose: &'static str) -> Self {
        count_connections(purpose, |(up, _)| *up += 1);
        Self {
            purpose,
            blocked: false,
        }
    }

    /// The broker blocks it (memory or disk alarm), or does so no longer.
    pub fn blocked(&mut self, now: bool) {
        match (self.blocked, now) {
            (false, true) => count_connections(self.purpose, |(_, blocked)| *blocked += 1),
            (true, false) => count_connections(self.purpose, |(_, blocked)| *blocked -= 1),
            _ => {}
        }
        self.blocked = now;
    }
}

impl Drop for ConnectionGauges {
    fn drop(&mut self) {
        self.blocked(false);
        count_connections(self.purpose, |(up, _)| *up -= 1);
    }
}

fn count_connections(purpose: &'static str, change: impl FnOnce(&mut (u32, u32))) {
    let mut connections = CONNECTIONS.lock().unwrap_or_else(PoisonError::into_inner);
    let counts = connections.entry(purpose).or_default();
    change(counts);
    let one_if = |count: u32| if count > 0 { 1.0 } else { 0.0 };
    gauge!("tidegate_amqp_connection_up", "purpose" => purpose).set(one_if(counts.0));
    gauge!("tidegate_amqp_connection_blocked", "purpose" => purpose).set(one_if(counts.1));
}

/// A consumer of `queue` subscribed again because of `why`.
pub fn resubscribed(queue: &str, why: &'static str) {
    counter!("tidegate_consumer_resubscribed_total", "queue" => queue.to_owned(), "why" => why).increment(1);
}

/// One frame settled `deliveries` of `queue`.
pub fn settled(queue: &str, deliveries: usize) {
    counter!("tidegate_ack_frames_total", "queue" => queue.to_owned()).increment(1);
    counter!("tidegate_ack_deliveries_total", "queue" => queue.to_owned()).increment(deliveries as u64);
}

/// A role's loop was restarted by the supervisor.
pub fn role_restarted(role: &'static str) {
    counter!("tidegate_role_restarts_total", "role" => role).increment(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_task_types_share_one_label() {
        know_task_type("order.close");
        assert_eq!(task_type_label(Some("order.close")), "order.close");
        assert_eq!(task_type_label(Some("x.y")), OTHER);
        assert_eq!(task_type_label(None), OTHER);
    }

    #[test]
    fn only_words_become_labels_and_only_so_many() {
        let mut known = BTreeSet::new();
        let mut label = |kind: &str| error_kind_label(kind, &mut known);
        for kind in ["payment_declined", "http.503", "timeout", &"a".repeat(48)] {
            assert_eq!(label(kind), kind);
        }
        for kind in [
            "",
            "order 7 is gone",
            "Timeout",
            "7days",
            "a\nb",
            "fällig",
            "a\"b",
            &"a".repeat(49),
        ] {
            assert_eq!(label(kind), OTHER, "{kind:?}");
        }
        for n in 0..1_000 {
            label(&format!("order_{n}"));
        }
        assert_eq!(label("order_95"), "order_95");
        assert_eq!(
            (label("order_96").as_str(), label("new").as_str()),
            (OTHER, OTHER)
        );
        assert_eq!(label("timeout"), "timeout", "what came first stays");
    }
}
