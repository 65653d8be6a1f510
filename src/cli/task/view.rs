//! A task as it is shown.
//!
//! May import: `store`, `output`.

use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;

use crate::{cli::output::fields, store::tasks::TaskRecord};

/// All that the ledger knows of a task but its envelope.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct View {
    task_id: String,
    task_type: String,
    state: String,
    due_at: String,
    next_try_at: Option<String>,
    attempts: i32,
    publish_attempts: i32,
    maybe_sent: bool,
    last_error: Option<String>,
    origin: String,
    exchange: Option<String>,
    routing_key: Option<String>,
    priority: i16,
    idempotency_key: Option<String>,
    producer: Option<String>,
    trace_id: Option<String>,
    created_at: String,
    published_at: Option<String>,
    started_at: Option<String>,
    finished_at: Option<String>,
    cancel_requested_at: Option<String>,
}

impl View {
    pub(super) fn new(task: TaskRecord) -> Self {
        Self {
            task_id: task.task_id,
            task_type: task.task_type,
            state: task.state,
            due_at: shown(task.due_at),
            next_try_at: task.next_try_at.map(shown),
            attempts: task.attempts,
            publish_attempts: task.publish_attempts,
            maybe_sent: task.maybe_sent,
            last_error: task.last_error,
            origin: task.origin,
            exchange: task.exchange,
            routing_key: task.routing_key,
            priority: task.priority,
            idempotency_key: task.idempotency_key,
            producer: task.producer,
            trace_id: task.trace_id,
            created_at: shown(task.created_at),
            published_at: task.published_at.map(shown),
            started_at: task.started_at.map(shown),
            finished_at: task.finished_at.map(shown),
            cancel_requested_at: task.cancel_requested_at.map(shown),
        }
    }

    /// Fields and values, one per line, without those that are empty.
    pub(super) fn text(self) -> String {
        let some = |name: &str, value: Option<String>| value.map(|value| vec![name.to_owned(), value]);
        let rows = [
            some("task id", Some(self.task_id)),
            some("type", Some(self.task_type)),
            some("state", Some(self.state)),
            some("due", Some(self.due_at)),
            some("next try", self.next_try_at),
            some("attempts", Some(self.attempts.to_string())),
            some(
                "failed hand-overs",
                Some(self.publish_attempts)
                    .filter(|n| *n > 0)
                    .map(|n| n.to_string()),
            ),
            some("error", self.last_error),
            some("origin", Some(self.origin)),
            some("exchange", self.exchange),
            some("routing key", self.routing_key),
            some("priority", Some(self.priority.to_string())),
            some("idempotency key", self.idempotency_key),
            some("producer", self.producer),
            some("trace id", self.trace_id),
            some("created", Some(self.created_at)),
            some("published", self.published_at),
            some("started", self.started_at),
            some("finished", self.finished_at),
            some("cancel requested", self.cancel_requested_at),
        ];
        fields(rows.into_iter().flatten().collect())
    }

    /// The cells of its line in a list, under [`HEAD`].
    pub(super) fn cells(self) -> Vec<String> {
        vec![
            self.task_id,
            self.task_type,
            self.state,
            self.due_at,
            self.attempts.to_string(),
            self.last_error.unwrap_or_else(|| "-".to_owned()),
        ]
    }
}

/// Heads of the columns of a list.
pub(super) const HEAD: [&str; 6] = ["TASK ID", "TASK TYPE", "STATE", "DUE", "ATTEMPTS", "ERROR"];

/// An instant as the command line shows it.
pub(super) fn shown(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}
