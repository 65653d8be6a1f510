//! Where it is measured: a virtual host with one queue, and the tasks that go through it.
//!
//! May import: `broker`, `ledger`, `publish`, `topology`, `worker`.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use chrono::Utc;
use futures::{StreamExt, stream};
use rand::Rng;
use tidegate_core::headers::Origin;
use tokio::time::Instant as Tick;
use uuid::Uuid;

use super::{BenchError, BenchSettings, ours::Workers};
use crate::{
    broker::{
        BrokerSettings, declare,
        management::Management,
        plain::Body,
        publisher::Publisher,
        throwaway::{self, Throwaway},
    },
    ledger::PostgresLedger,
    publish::{Task, TaskPublisher},
    topology::Topology,
};

/// Task type and routing key.
pub const TASK_TYPE: &str = "tidegate.bench";
pub(super) const QUEUE: &str = "tidegate.bench.queue";

/// A word in the throw-away virtual host's name.
const PURPOSE: &str = "bench";

/// Shortest delay of the part about delays.
const SHORTEST: Duration = Duration::from_millis(200);

const QUEUE_FILE: &str = r#"
[[queue]]
name = "tidegate.bench.queue"
bind = ["tidegate.bench"]
owner = "tidegate"
task_types = ["tidegate.bench"]
"#;

const IDEMPOTENT: &str = r#"
[[task_type]]
name = "tidegate.bench"
idempotency = "key"
"#;

pub(super) struct Ground {
    throwaway: Throwaway,
    broker: BrokerSettings,
    plain: Arc<Topology>,
    idempotent: Arc<Topology>,
    publisher: TaskPublisher,
    pub(super) ledger: Option<PostgresLedger>,
    size: usize,
}

impl Ground {
    pub(super) async fn create(
        broker: &BrokerSettings,
        management: &Management,
        ledger: Option<PostgresLedger>,
        settings: &BenchSettings,
    ) -> Result<Self, BenchError> {
        throwaway::sweep(management, PURPOSE)
            .await
            .map_err(BenchError::NoVhost)?;
        let throwaway = Throwaway::create(management, broker, PURPOSE)
            .await
            .map_err(BenchError::NoVhost)?;
        let broker = BrokerSettings {
            publish_connections: broker.publish_connections,
            ..throwaway.settings.clone()
        };
        let parsed = |text: &str| {
            Topology::parse(&[("bench.toml", text)])
                .map(Arc::new)
                .map_err(|errors| BenchError::Build(errors.to_string()))
        };
        let made = async {
            let plain = parsed(QUEUE_FILE)?;
            let idempotent = parsed(&format!("{QUEUE_FILE}{IDEMPOTENT}"))?;
            let connection = throwaway.connect("bench").await?;
            declare::apply(&connection, &plain.objects(), |_| {}).await?;
            let _ = connection.close(200, "done".into()).await;
            let publisher =
                Publisher::start(&broker).map_err(|error| BenchError::Build(error.to_string()))?;
            Ok((plain.clone(), idempotent, TaskPublisher::new(publisher, plain)))
        };
        match made.await {
            Ok((plain, idempotent, publisher)) => Ok(Self {
                throwaway,
                broker,
                plain,
                idempotent,
                publisher,
                ledger,
                size: settings.size,
            }),
            Err(error) => {
                let _ = throwaway.delete().await;
                Err(error)
            }
        }
    }

    pub(super) fn broker(&self) -> &BrokerSettings {
        &self.broker
    }

    pub(super) fn exchange(&self) -> String {
        self.plain.names.exchange()
    }

    /// Messages of their own each time: an id is never used twice.
    pub(super) fn bodies(&self) -> Body {
        let (head, tail) = frame(self.size);
        Arc::new(move |n| format!("{head}{n:08}{tail}"))
    }

    pub(super) fn workers(&self, settings: &BenchSettings, idempotent: bool) -> Result<Workers, BenchError> {
        let (topology, ledger) = match (&self.ledger, idempotent) {
            (Some(ledger), true) => (self.idempotent.clone(), Some(ledger.clone())),
            _ => (self.plain.clone(), None),
        };
        Workers::start(&self.broker, &topology, ledger, settings)
    }

    /// Publishes for `length` as a service does. How many were confirmed, and the time until the last was.
    pub(super) async fn publish(
        &self,
        length: Duration,
        per_second: Option<f64>,
    ) -> Result<(u64, Duration), BenchError> {
        let (lanes, bodies) = (self.broker.publish_connections.max(1), self.bodies());
        let began = Instant::now();
        let mut publishers = tokio::task::JoinSet::new();
        for lane in 0..lanes as u64 {
            let (publisher, bodies, in_flight) =
                (self.publisher.clone(), bodies.clone(), self.broker.in_flight);
            let pace = per_second.map(|rate| rate / lanes as f64);
            publishers.spawn(async move {
                let from = Tick::now();
                let numbers = stream::unfold(0_u64, move |sent| async move {
                    if let Some(pace) = pace {
                        tokio::time::sleep_until(from + Duration::from_secs_f64(sent as f64 / pace)).await;
                    }
                    (from.elapsed() < length).then(|| (sent * lanes as u64 + lane, sent + 1))
                });
                let sent = numbers
                    .map(|n| publisher.send(task(bodies(n)), Duration::ZERO))
                    .buffer_unordered(in_flight);
                counted(sent).await
            });
        }
        let mut sent = 0;
        while let Some(ended) = publishers.join_next().await {
            sent += ended.map_err(|error| BenchError::Build(error.to_string()))??;
        }
        Ok((sent, began.elapsed()))
    }

    /// Publishes tasks with delays from [`SHORTEST`] to `length`, `per_second` of them each second; how many.
    pub(super) async fn publish_delayed(&self, length: Duration, per_second: f64) -> Result<u64, BenchError> {
        let (from, longest) = (Tick::now(), length.max(SHORTEST * 2));
        let numbers = stream::unfold(0_u64, move |n| async move {
            tokio::time::sleep_until(from + Duration::from_secs_f64(n as f64 / per_second)).await;
            // One at least, however slow the machine.
            (n == 0 || from.elapsed() < length).then_some((n, n + 1))
        });
        let sent = numbers
            .map(|n| {
                let delay = rand::rng().random_range(SHORTEST..longest);
                self.publisher.send(task(delayed(self.size, n, delay)), delay)
            })
            .buffer_unordered(self.broker.in_flight);
        counted(sent).await
    }

    /// Deletes the virtual host, and what idempotency wrote into the ledger.
    pub(super) async fn clear(self) -> Result<(), BenchError> {
        if let Some(ledger) = &self.ledger {
            ledger.forget_keys(TASK_TYPE).await.map_err(|error| {
                BenchError::Build(format!(
                    "rows of {TASK_TYPE} stay in tidegate.executions: {error}"
                ))
            })?;
        }
        self.throwaway.delete().await.map_err(BenchError::NoVhost)
    }
}

async fn counted(
    sent: impl futures::Stream<Item = Result<(), crate::publish::SendError>>,
) -> Result<u64, BenchError> {
    let mut count = 0;
    futures::pin_mut!(sent);
    while let Some(sent) = sent.next().await {
        sent?;
        count += 1;
    }
    Ok(count)
}

/// What stands before and after the number in a message of `size` bytes.
fn frame(size: usize) -> (String, String) {
    let head = format!(r#"{{"taskId":"bench-{}-"#, Uuid::now_v7().simple());
    let start = format!(r#"","taskType":"{TASK_TYPE}","payload":{{"pad":""#);
    let end = r#""}}"#;
    let pad = size.saturating_sub(head.len() + 8 + start.len() + end.len());
    (head, format!("{start}{}{end}", "x".repeat(pad)))
}

/// A message that says when it is due, in milliseconds since 1970.
fn delayed(size: usize, n: u64, delay: Duration) -> String {
    let due = Utc::now().timestamp_millis() + i64::try_from(delay.as_millis()).unwrap_or_default();
    let (head, tail) = frame(size.saturating_sub(22));
    let tail = tail.replacen(r#"{"pad""#, &format!(r#"{{"due":{due},"pad""#), 1);
    format!("{head}{n:08}{tail}")
}

fn task(body: String) -> Task {
    let id = body.split('"').nth(3).unwrap_or_default().to_owned();
    Task {
        task_id: id,
        task_type: TASK_TYPE.to_owned(),
        producer: None,
        trace_id: None,
        priority: 100,
        schedule_time: None,
        exchange: None,
        routing_key: None,
        origin: Origin::Amqp,
        body: body.into(),
    }
}
