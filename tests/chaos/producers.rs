//! Producers of five kinds. Each sends a task again, under the same id, until it knows that it was accepted.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use chrono::{DateTime, Utc};
use lapin::{
    BasicProperties, Channel, Confirmation, Connection,
    options::{BasicPublishOptions, ConfirmSelectOptions},
    types::{AMQPValue, FieldTable},
};
use sqlx::PgPool;
use tidegate::{
    core::{
        envelope::{Envelope, Limits},
        headers::{DELAY, Origin},
    },
    publish::{Task, TaskPublisher},
};
use tokio::{task::JoinSet, time::Instant};

use crate::{
    installation::{Installation, WORK},
    load::{Behaviour, Entrance, Planned},
};

/// Producers of each kind that work at once.
const EACH: usize = 6;

/// A task whose acceptance was confirmed: by the broker, or by a commit.
#[derive(Clone, Debug)]
pub(crate) struct Accepted {
    pub(crate) behaviour: Behaviour,
    pub(crate) entrance: Entrance,
    /// Not to be started before.
    pub(crate) due: DateTime<Utc>,
}

/// What was accepted, and how often the outcome of a send was not known.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) accepted: Mutex<BTreeMap<String, Accepted>>,
    pub(crate) unknown: AtomicU64,
}

/// Sends all of `plan`; returns when everything has been accepted.
pub(crate) async fn send_all(installation: &Arc<Installation>, plan: Vec<Planned>, log: &Arc<Log>) {
    let started = Instant::now();
    let mut settings = installation.broker();
    settings.confirm_timeout = Duration::from_secs(5);
    let publisher = installation.publisher(&settings);
    let sql = installation.sql();
    let mut producers = JoinSet::new();
    let mut lanes: BTreeMap<(Entrance, usize), Vec<Planned>> = BTreeMap::new();
    for (n, planned) in plan.into_iter().enumerate() {
        lanes
            .entry((planned.entrance, n % EACH))
            .or_default()
            .push(planned);
    }
    for (_, lane) in lanes {
        let mut producer = Producer {
            installation: installation.clone(),
            publisher: publisher.clone(),
            sql: sql.clone(),
            plain: None,
        };
        let log = log.clone();
        producers.spawn(async move {
            for planned in lane {
                tokio::time::sleep_until(started + planned.after).await;
                producer.send(&planned, &log).await;
            }
        });
    }
    while let Some(ended) = producers.join_next().await {
        ended.unwrap();
    }
    sql.close().await;
}

struct Producer {
    installation: Arc<Installation>,
    publisher: TaskPublisher,
    sql: PgPool,
    plain: Option<(Connection, Channel)>,
}

impl Producer {
    async fn send(&mut self, planned: &Planned, log: &Log) {
        // Before the first send: the delay of a send that got through unseen counts from then.
        let due = Utc::now() + planned.delay;
        let mut pause = Duration::from_millis(50);
        while let Err(why) = self.try_send(planned, due).await {
            log.unknown.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(id = planned.id, why, "sending again");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
        let accepted = Accepted {
            behaviour: planned.behaviour,
            entrance: planned.entrance,
            due,
        };
        log.accepted.lock().unwrap().insert(planned.id.clone(), accepted);
    }

    async fn try_send(&mut self, planned: &Planned, due: DateTime<Utc>) -> Result<(), String> {
        let left = (due - Utc::now()).to_std().unwrap_or_default();
        match planned.entrance {
            Entrance::Plain => self.plain("task.exchange", planned, FieldTable::default()).await,
            Entrance::Ingress => {
                let mut headers = FieldTable::default();
                // Whole milliseconds, rounded up.
                headers.insert(DELAY.into(), AMQPValue::LongLongInt(left.as_millis() as i64 + 1));
                self.plain("task.ingress", planned, headers).await
            }
            Entrance::Publisher | Entrance::Ladder => {
                let envelope =
                    Envelope::parse(planned.body.as_bytes(), &Limits::standard(), Utc::now()).unwrap();
                let task = Task::new(planned.body.clone(), &envelope, Origin::Amqp);
                let left = if planned.delay.is_zero() {
                    Duration::ZERO
                } else {
                    left
                };
                self.publisher
                    .send(task, left)
                    .await
                    .map_err(|error| error.to_string())
            }
            Entrance::Outbox => self.insert(planned, due).await.map_err(|error| error.to_string()),
        }
    }

    async fn insert(&self, planned: &Planned, due: DateTime<Utc>) -> sqlx::Result<()> {
        // Of a commit without an answer nothing is known either: the same id again does no harm.
        sqlx::query(
            "INSERT INTO tidegate.tasks (task_id, task_type, envelope, due_at) VALUES ($1, $2, $3, $4) \
             ON CONFLICT (task_id) DO NOTHING",
        )
        .bind(&planned.id)
        .bind(task_type(planned))
        .bind(&planned.body)
        .bind(due)
        .execute(&self.sql)
        .await?;
        Ok(())
    }

    /// As a client with nothing but an AMQP library does it: confirmed, with a message id.
    async fn plain(&mut self, exchange: &str, planned: &Planned, headers: FieldTable) -> Result<(), String> {
        let sent =
            tokio::time::timeout(Duration::from_secs(5), self.publish(exchange, planned, headers)).await;
        let outcome = match sent {
            Ok(Ok(Confirmation::Ack(None))) => return Ok(()),
            Ok(Ok(other)) => format!("{other:?}"),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no confirm in time".to_owned(),
        };
        self.plain = None;
        Err(outcome)
    }

    async fn publish(
        &mut self,
        exchange: &str,
        planned: &Planned,
        headers: FieldTable,
    ) -> lapin::Result<Confirmation> {
        let channel = match &self.plain {
            Some((_, channel)) => channel,
            None => {
                let (connection, channel) = self.installation.channel().await?;
                channel.confirm_select(ConfirmSelectOptions::default()).await?;
                &self.plain.insert((connection, channel)).1
            }
        };
        let properties = BasicProperties::default()
            .with_delivery_mode(2)
            .with_message_id(planned.id.as_str().into())
            .with_headers(headers);
        let options = BasicPublishOptions {
            mandatory: true,
            ..BasicPublishOptions::default()
        };
        let body = planned.body.as_bytes();
        let key = task_type(planned);
        channel
            .basic_publish(exchange.into(), key.into(), options, body, properties)
            .await?
            .await
    }
}

fn task_type(planned: &Planned) -> &'static str {
    if planned.behaviour == Behaviour::NobodysType {
        "chaos.nobody"
    } else {
        WORK
    }
}
