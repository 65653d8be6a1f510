//! The loop that hands due tasks over to the broker.
//!
//! May import: `store`, `publish`, `telemetry`. Never reads a cron row. A pass is: lock a batch of due rows, announce
//! it, publish all of it at once, wait for the confirms for a bounded time, write down what became of each, commit.
//! While rows are plenty, up to three passes overlap, so that neither the database nor the broker waits for the other. Dying
//! - before a publish: the locks go with the connection, the rows are due as before;
//! - after a publish, before the commit: the rows are published again under the same task id. A task may be
//!   duplicated here, never lost, and no lease has to run out first.
//!
//! A task that can't be delivered waits on its own, longer each time, and holds up no other. One that can never be
//! sent as it is (a row of plain SQL that is no task, a name that AMQP can't carry) is set aside: `FAILED`, with the
//! reason. While the broker confirms nothing, passes pause: rows stay where they are, and no more is sent than one
//! batch per pause.

use std::time::Duration;

use bytes::Bytes;
use chrono::{SecondsFormat, Utc};
use futures::{StreamExt, stream::FuturesUnordered};
use tidegate_core::{
    envelope::{Envelope, Limits},
    headers::Origin,
};
use tokio::{
    task::{JoinError, JoinSet},
    time::{Instant, error::Elapsed, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{PASS_LIMIT, SAFETY_SCAN, SchedulerError, deadline};
use crate::{
    publish::{SendError, Task, TaskPublisher},
    store::{
        NextDue, Store, StoreError,
        tasks::{DueTask, Failure, Handover, SetAside, Settlement},
        wake::Channel,
    },
    telemetry::{health::Health, metrics},
};

/// Name of this role in health and logs.
pub const ROLE: &str = "relay";

/// Most batches in work at once: while one waits for its confirms, the next is read and the one before written back.
const AT_ONCE: usize = 3;

/// First and longest pause while the broker confirms nothing.
const PAUSE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// Longest wait for the last batch when told to stop.
const LAST_BATCH: Duration = Duration::from_secs(5);

/// Longest wait for confirms whatever the settings say: a transaction is open meanwhile, and both the server's
/// `idle_in_transaction_timeout` and the limit of a step must not end it.
const MAX_CONFIRM_LIMIT: Duration = Duration::from_secs(30);

/// How much longer than for the confirms the server waits to hear of a relay before it takes the rows from it.
const FROZEN: Duration = Duration::from_secs(5);

/// How tasks are handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelaySettings {
    /// Most tasks per transaction, all published at once.
    pub batch: u32,
    /// How often to look even if nothing is due and nobody notified.
    pub safety_scan: Duration,
    /// Longest wait for a confirm; rows stay locked that long. More than 30 s counts as 30 s.
    pub confirm_limit: Duration,
    /// What the envelope of a row that came by SQL is held to. How far ahead it is planned is not looked at.
    pub limits: Limits,
}

impl Default for RelaySettings {
    fn default() -> Self {
        Self {
            batch: 500,
            safety_scan: SAFETY_SCAN,
            confirm_limit: Duration::from_secs(10),
            limits: Limits::standard(),
        }
    }
}

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
}

impl Batch {
    /// Whether the broker took nothing of it.
    fn is_stuck(&self) -> bool {
        self.unconfirmed > 0 && self.published == 0
    }
}

/// Hands due tasks over until `cancel`, then finishes the batches at hand within 5 s. An error ends the loop; nothing is
/// lost by starting it again.
pub async fn run(
    store: Store,
    publisher: TaskPublisher,
    settings: RelaySettings,
    health: Health,
    cancel: CancellationToken,
) -> Result<(), SchedulerError> {
    let wakes = store.listen(Channel::Tasks);
    let mut delivering = Deliveries::new();
    let mut rest = Rest::default();
    loop {
        // Before the look at the table: what is notified from here on is looked at again.
        wakes.clear();
        let mut next = None;
        let mut idle = false;
        if delivering.len() < AT_ONCE && rest.is_over() {
            let (taken, due) = tokio::select! {
                taken = timeout(PASS_LIMIT, take(&store, &settings)) => taken.map_err(|_| SchedulerError::Stalled)??,
                () = overdue(&cancel) => return Ok(()),
            };
            let full = taken.is_full(&settings);
            (next, idle) = (due, taken.is_empty());
            if !idle {
                let (publisher, settings) = (publisher.clone(), settings.clone());
                delivering
                    .spawn(async move { timeout(PASS_LIMIT, deliver(taken, &publisher, &settings)).await });
            } else if delivering.is_empty() {
                store.tasks().forget_announcements().await?;
            }
            if full && delivering.len() < AT_ONCE && !cancel.is_cancelled() {
                continue;
            }
        }
        // Rows of our own batches are still due, so there is no sense in looking for more of them at once.
        let until = deadline(next, settings.safety_scan, idle || !delivering.is_empty());
        let trouble_changed = publisher.trouble_changed();
        let ended = tokio::select! {
            biased;
            Some(ended) = delivering.join_next() => Some(batch_of(ended)?),
            () = cancel.cancelled() => return finish(delivering, &cancel).await,
            () = rest.over(), if !rest.is_over() => None,
            () = wakes.wait_until(until, next.map(|next| next.at)), if delivering.len() < AT_ONCE && rest.is_over() => None,
            () = trouble_changed => None,
        };
        let trouble = publisher.trouble();
        match ended {
            Some(batch) if batch.is_stuck() => {
                let why = trouble.unwrap_or_else(|| "overdue".to_owned());
                health.down(
                    ROLE,
                    &format!("the broker confirms nothing; tasks wait in the ledger: {why}"),
                );
                let pause = rest.begin();
                tracing::warn!(
                    tasks = batch.unconfirmed,
                    ?pause,
                    why,
                    "the broker confirms nothing; tasks wait in the ledger"
                );
                continue;
            }
            Some(_) => rest = Rest::default(),
            // Nothing was sent: that says nothing about the broker, unless it has said something itself.
            None => {}
        }
        match trouble {
            Some(trouble) => health.down(ROLE, &trouble),
            None if rest.is_over() => health.up(ROLE),
            None => {}
        }
    }
}

/// Batches in work.
type Deliveries = JoinSet<Result<Result<Batch, StoreError>, Elapsed>>;

fn batch_of(
    ended: Result<Result<Result<Batch, StoreError>, Elapsed>, JoinError>,
) -> Result<Batch, SchedulerError> {
    match ended {
        Ok(in_time) => Ok(in_time.map_err(|_| SchedulerError::Stalled)??),
        // Nobody aborts them: it panicked, and the supervisor hears of it.
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    }
}

/// The pause of a relay to which the broker confirms nothing.
struct Rest {
    until: Option<Instant>,
    next: Duration,
}

impl Default for Rest {
    fn default() -> Self {
        Self {
            until: None,
            next: PAUSE.0,
        }
    }
}

impl Rest {
    /// Begins a pause, twice as long as the one before; returns its length.
    fn begin(&mut self) -> Duration {
        let pause = self.next;
        self.until = Some(Instant::now() + pause);
        self.next = (pause * 2).min(PAUSE.1);
        pause
    }

    fn is_over(&self) -> bool {
        self.until.is_none_or(|until| until <= Instant::now())
    }

    async fn over(&self) {
        if let Some(until) = self.until {
            sleep_until(until).await;
        }
    }
}

/// Waits for the batches at hand, for some time after `cancel`.
async fn finish(mut delivering: Deliveries, cancel: &CancellationToken) -> Result<(), SchedulerError> {
    let all = async {
        while let Some(ended) = delivering.join_next().await {
            batch_of(ended)?;
        }
        Ok(())
    };
    tokio::select! {
        ended = all => ended,
        () = overdue(cancel) => Ok(()),
    }
}

/// Ends some time after `cancel`: what is not confirmed by then is published again by the next process.
async fn overdue(cancel: &CancellationToken) {
    cancel.cancelled().await;
    tokio::time::sleep(LAST_BATCH).await;
}

/// Locks and announces the next batch, and says when more is due.
async fn take(store: &Store, settings: &RelaySettings) -> Result<(Taken, Option<NextDue>), StoreError> {
    let taken = lock(store, settings).await?;
    // A full batch: more is due now.
    let next = if taken.is_full(settings) {
        None
    } else {
        store.tasks().next_due().await?
    };
    Ok((taken, next))
}

/// A locked and announced batch.
struct Taken(Handover);

impl Taken {
    fn is_empty(&self) -> bool {
        self.0.tasks().is_empty()
    }

    fn is_full(&self, settings: &RelaySettings) -> bool {
        self.0.tasks().len() >= settings.batch as usize
    }
}

async fn lock(store: &Store, settings: &RelaySettings) -> Result<Taken, StoreError> {
    let mut handover = store.tasks().lock_due(i64::from(settings.batch)).await?;
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
    let taken = lock(store, settings).await?;
    deliver(taken, publisher, settings).await
}

/// Publishes a batch and writes down what became of it.
async fn deliver(
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
    handover.settle(&outcome).await?;
    for (outcome, rows) in [
        ("published", batch.published),
        ("undeliverable", batch.undeliverable),
        ("unconfirmed", batch.unconfirmed),
        ("set_aside", batch.set_aside),
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
