//! One batch of due tasks: locked, announced, published at once, written back.
//!
//! May import: `store`, `publish`, `telemetry`. A task that can never be sent as it is (a row of plain SQL that is no
//! task, a name that AMQP can't carry) is set aside: `FAILED`, with the reason. One that can't be delivered waits on its
//! own, longer each time, and holds up no other. Dying
//! - before a publish: the locks go with the connection, the rows are due as before;
//! - after a publish, before the commit: the rows are published again under the same task id, by the next process. A
//!   task may be duplicated here, never lost, and no lease has to run out first.

use std::time::Duration;

use bytes::Bytes;
use chrono::{SecondsFormat, Utc};
use futures::{StreamExt, stream::FuturesUnordered};
use tidegate_core::{
    envelope::{Envelope, Limits},
    headers::Origin,
};
use tokio::time::timeout;

use super::RelaySettings;
use crate::{
    publish::{SendError, Task, TaskPublisher},
    store::{
        Store, StoreError,
        tasks::{DueTask, Failure, Handover, SetAside, Settlement},
    },
    telemetry::metrics,
};

/// Longest wait for confirms whatever the settings say: a transaction is open meanwhile, and both the server's
/// `idle_in_transaction_timeout` and the limit of a step must not end it.
const MAX_CONFIRM_LIMIT: Duration = Duration::from_secs(30);

/// How much longer than for the confirms the server waits to hear of a relay before it takes the rows from it.
const FROZEN: Duration = Duration::from_secs(5);

/// What became of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Rows locked.
    pub taken: usize,
    /// Confirmed by the broker.
    pub published: usize,
    /// Taken by no queue.
    pub undeliverable: usize,
    /// Never to be sent as they are.
    pub set_aside: usize,
    /// Nacked, or not confirmed in time.
    pub unconfirmed: usize,
    /// Of all these, rows that can't be written; they are remembered.
    pub unwritten: usize,
}

impl Batch {
    /// Whether the broker took nothing of it.
    pub(super) fn is_stuck(&self) -> bool {
        self.unconfirmed > 0 && self.published == 0
    }
}

/// A locked and announced batch.
pub(super) struct Taken(Handover);

impl Taken {
    pub(super) fn is_empty(&self) -> bool {
        self.0.tasks().is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.tasks().len()
    }
}

/// Locks and announces what is due, at most `most` tasks.
pub(super) async fn lock(store: &Store, settings: &RelaySettings, most: u32) -> Result<Taken, StoreError> {
    let mut handover = store.tasks().lock_due(i64::from(most)).await?;
    if !handover.tasks().is_empty() {
        handover.announce(confirm_limit(settings) + FROZEN).await?;
    }
    Ok(Taken(handover))
}

fn confirm_limit(settings: &RelaySettings) -> Duration {
    settings.confirm_limit.min(MAX_CONFIRM_LIMIT)
}

/// Hands over one batch of due tasks.
pub async fn pass(
    store: &Store,
    publisher: &TaskPublisher,
    settings: &RelaySettings,
) -> Result<Batch, StoreError> {
    super::tell(&store.tasks().write_back().await?.refused);
    let taken = lock(store, settings, settings.batch).await?;
    deliver(taken, publisher, settings).await
}

/// Publishes a batch and writes down what became of it.
pub(super) async fn deliver(
    Taken(handover): Taken,
    publisher: &TaskPublisher,
    settings: &RelaySettings,
) -> Result<Batch, StoreError> {
    let limit = confirm_limit(settings);
    let mut batch = Batch {
        taken: handover.tasks().len(),
        ..Batch::default()
    };
    if batch.taken == 0 {
        return Ok(batch);
    }
    let mut outcome = Settlement::default();
    let mut sends = FuturesUnordered::new();
    for row in handover.tasks() {
        if let Some(why) = poison(row, &settings.limits) {
            outcome.set_aside.push(set_aside(row, why));
            continue;
        }
        sends.push(async move {
            let sent = timeout(
                limit,
                publisher.send_due(message(row), Duration::ZERO, row.due_at),
            )
            .await;
            (
                row,
                sent.unwrap_or_else(|_| Err(SendError::Unknown(format!("none within {limit:?}")))),
            )
        });
    }
    while let Some((row, sent)) = sends.next().await {
        let error = match sent {
            Ok(()) => {
                outcome.published.push(row.task_id.clone());
                continue;
            }
            Err(SendError::Refused(why)) => {
                outcome.set_aside.push(set_aside(row, why.to_string()));
                continue;
            }
            Err(SendError::Invalid(why)) => {
                outcome.set_aside.push(set_aside(row, why));
                continue;
            }
            Err(error) => error,
        };
        let unconfirmed = matches!(error, SendError::Nacked | SendError::Unknown(_));
        if unconfirmed {
            batch.unconfirmed += 1;
        } else {
            batch.undeliverable += 1;
            tracing::warn!(task_id = %row.task_id, task_type = %row.task_type, %error, "task can't be delivered; it waits in the ledger");
        }
        outcome.failures.push(Failure {
            task_id: row.task_id.clone(),
            error: error.to_string(),
            after: backoff(!unconfirmed, row.publish_attempts),
            maybe_sent: unconfirmed,
        });
    }
    drop(sends);
    batch.published = outcome.published.len();
    batch.set_aside = outcome.set_aside.len();
    let refused = handover.settle(&outcome).await?;
    batch.unwritten = refused.len();
    super::tell(&refused);
    for (outcome, rows) in [
        ("published", batch.published),
        ("undeliverable", batch.undeliverable),
        ("unconfirmed", batch.unconfirmed),
        ("set_aside", batch.set_aside),
        ("unwritten", batch.unwritten),
    ] {
        if rows > 0 {
            metrics::relayed(outcome, rows as u64);
        }
    }
    Ok(batch)
}

fn set_aside(row: &DueTask, error: String) -> SetAside {
    tracing::warn!(task_id = %row.task_id, task_type = %row.task_type, error, "task can never be sent as it is; it is set aside");
    SetAside {
        task_id: row.task_id.clone(),
        error,
    }
}

/// Why a row can never be sent as it is. Envelopes that our own programs made have been checked by them; a row may be
/// anybody's.
fn poison(row: &DueTask, limits: &Limits) -> Option<String> {
    if row.origin != Origin::Sql.as_str() {
        return None;
    }
    let limits = Limits {
        // Somebody may have promoted it.
        max_schedule_ahead: Duration::MAX,
        ..*limits
    };
    match Envelope::parse(row.envelope.as_bytes(), &limits, Utc::now()) {
        Err(why) => Some(format!("the envelope breaks the wire format: {why}")),
        Ok(envelope) if envelope.task_id.as_str() != row.task_id => Some(format!(
            "the envelope's taskId is {}, not the row's task_id",
            envelope.task_id
        )),
        Ok(envelope) if envelope.task_type.as_str() != row.task_type => Some(format!(
            "the envelope's taskType is {}, not the row's task_type",
            envelope.task_type
        )),
        Ok(_) => None,
    }
}

/// Wait before a task is tried again: what can't be delivered needs a change by somebody (1 s to 5 min), what was
/// not confirmed needs the broker back (0.5 s to 30 s).
fn backoff(undeliverable: bool, failed_before: i32) -> Duration {
    let (first, longest) = if undeliverable {
        (1_000, 300_000)
    } else {
        (500, 30_000)
    };
    let factor = 1_u64 << failed_before.clamp(0, 16);
    Duration::from_millis((first * factor).min(longest))
}

fn message(row: &DueTask) -> Task {
    Task {
        body: Bytes::copy_from_slice(row.envelope.as_bytes()),
        task_id: row.task_id.clone(),
        task_type: row.task_type.clone(),
        producer: row.producer.clone(),
        trace_id: row.trace_id.clone(),
        // A CHECK holds the range.
        priority: u8::try_from(row.priority).unwrap_or(u8::MAX),
        schedule_time: Some(row.due_at.to_rfc3339_opts(SecondsFormat::AutoSi, true)),
        exchange: row.exchange.clone(),
        routing_key: row.routing_key.clone(),
        origin: Origin::parse(&row.origin).unwrap_or(Origin::Sql),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_and_end() {
        let waits = |undeliverable| [0, 1, 2, 6, 1_000].map(|n| backoff(undeliverable, n).as_millis());
        assert_eq!(waits(true), [1_000, 2_000, 4_000, 64_000, 300_000]);
        assert_eq!(waits(false), [500, 1_000, 2_000, 30_000, 30_000]);
    }

    fn row(task_id: &str, envelope: &str, origin: &str) -> DueTask {
        DueTask {
            task_id: task_id.to_owned(),
            task_type: "a.b".to_owned(),
            exchange: None,
            routing_key: None,
            envelope: envelope.to_owned(),
            priority: 100,
            producer: None,
            trace_id: None,
            origin: origin.to_owned(),
            due_at: Utc::now(),
            publish_attempts: 0,
            next_try_at: None,
        }
    }

    #[test]
    fn a_row_of_sql_must_be_the_task_that_it_says() {
        let why = |task_id, envelope: &str| poison(&row(task_id, envelope, "sql"), &Limits::standard());
        let far = (Utc::now() + chrono::TimeDelta::days(80)).to_rfc3339();
        let good =
            format!(r#"{{"taskId":"t","taskType":"a.b","scheduleTime":"{far}","payload":{{"n":1.10}}}}"#);
        assert_eq!(why("t", &good), None);
        assert!(why("u", &good).unwrap().contains("taskId is t"));
        assert!(
            why("t", &good.replace("a.b", "a.c"))
                .unwrap()
                .contains("taskType is a.c")
        );
        assert!(why("t", "{}").unwrap().contains("missing_field"));
        assert!(why("t", "no json").unwrap().contains("syntax"));
        assert_eq!(
            poison(&row("t", "{}", "http"), &Limits::standard()),
            None,
            "checked at its entrance"
        );
    }

    #[test]
    fn a_batch_is_stuck_only_if_the_broker_took_nothing() {
        let stuck = Batch {
            taken: 2,
            unconfirmed: 2,
            ..Batch::default()
        };
        assert!(stuck.is_stuck());
        assert!(
            !Batch {
                published: 1,
                ..stuck
            }
            .is_stuck()
        );
        assert!(
            !Batch {
                taken: 1,
                undeliverable: 1,
                ..Batch::default()
            }
            .is_stuck()
        );
    }
}
