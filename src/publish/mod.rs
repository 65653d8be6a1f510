//! The only way to send a task: the first time ([`TaskPublisher::send`]), again ([`resend`]), or out of the archive (`replay`).
//!
//! May import: `core`, `topology`, `broker`, `telemetry`. Every publish is mandatory and awaited until confirmed.

pub mod prepare;
#[cfg(feature = "worker")]
pub mod reading;
#[cfg(feature = "server")]
pub mod replay;
#[cfg(feature = "worker")]
pub mod resend;
#[cfg(feature = "worker")]
pub mod settle;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use chrono::{DateTime, Utc};
use lapin::BasicProperties;
use tidegate_core::{
    envelope::Envelope,
    headers::{self, Origin},
    ladder::{self, LadderError, Target},
};
use tokio::time::Instant;

use crate::{
    broker::{
        message::{Headers, short},
        publisher::{Outgoing, PublishOutcome, Publisher},
    },
    telemetry::metrics,
    topology::{Lane, Topology},
};

/// A task ready to be sent.
#[derive(Clone, Debug)]
pub struct Task {
    /// The envelope's bytes, sent as they are.
    pub body: Bytes,
    /// `taskId`.
    pub task_id: String,
    /// `taskType`.
    pub task_type: String,
    /// `producer`.
    pub producer: Option<String>,
    /// `traceId`.
    pub trace_id: Option<String>,
    /// `priority`.
    pub priority: u8,
    /// Planned time, RFC 3339; travels as a header.
    pub schedule_time: Option<String>,
    /// Exchange to publish to; `None` is the platform's. A delay needs `None`.
    pub exchange: Option<String>,
    /// Routing key; `None` is the task type.
    pub routing_key: Option<String>,
    /// How the task came in.
    pub origin: Origin,
}

impl Task {
    /// The task that `body` holds, described by its parsed `envelope`.
    pub fn new(body: impl Into<Bytes>, envelope: &Envelope, origin: Origin) -> Self {
        Self {
            body: body.into(),
            task_id: envelope.task_id.to_string(),
            task_type: envelope.task_type.to_string(),
            producer: envelope.producer.clone(),
            trace_id: envelope.trace_id.clone(),
            priority: envelope.priority,
            schedule_time: envelope.schedule_time.map(|t| t.to_rfc3339()),
            exchange: None,
            routing_key: None,
            origin,
        }
    }

    /// The routing key it is published with.
    pub fn key(&self) -> &str {
        self.routing_key.as_deref().unwrap_or(&self.task_type)
    }
}

/// Why a task was not sent, or may not have been.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// Nothing takes it: nothing was stored. Fix the topology or the key.
    #[error("no queue takes routing key {key:?} on exchange {exchange:?}")]
    Unroutable {
        /// Exchange.
        exchange: String,
        /// Routing key.
        key: String,
    },
    /// The exchange does not exist. Apply the topology.
    #[error("exchange {0:?} does not exist; run `tidegate topology apply`, or correct the name")]
    NoExchange(String),
    /// This user may not write to the exchange: nothing was stored. Grant the right, or correct the name.
    #[error("exchange {exchange:?} is closed to this user: {why}")]
    Forbidden {
        /// Exchange.
        exchange: String,
        /// The broker's words.
        why: String,
    },
    /// The delay or the key can't be carried: the same task will never be accepted.
    #[error(transparent)]
    Refused(#[from] LadderError),
    /// It can't be written as AMQP: the same task will never be accepted.
    #[error("it can't be sent: {0}")]
    Invalid(String),
    /// The broker refused to store it (queue full or failing): try again later.
    #[error("the broker refused the message (nack): a queue is full or failing")]
    Nacked,
    /// No confirm in time (blocked, away, slow): it may or may not be stored; send it again with the same id.
    #[error("no confirm from the broker: {0}")]
    Unknown(String),
}

/// Sends tasks; cheap to clone.
#[derive(Clone, Debug)]
pub struct TaskPublisher {
    publisher: Publisher,
    topology: Arc<Topology>,
}

impl TaskPublisher {
    /// A task publisher on `publisher`; `topology` gives the names and decides lanes.
    pub fn new(publisher: Publisher, topology: Arc<Topology>) -> Self {
        Self { publisher, topology }
    }

    /// The topology that tasks are routed by.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// What keeps tasks from being sent now: a connection that is missing or blocked.
    pub fn trouble(&self) -> Option<String> {
        self.publisher.trouble()
    }

    /// Ready once [`trouble`](Self::trouble) may answer otherwise than when this was called.
    pub fn trouble_changed(&self) -> impl Future<Output = ()> + Send + use<> {
        self.publisher.trouble_changed()
    }

    /// Sends `task` to arrive `delay` from now (zero: at once). `Ok` means confirmed by a durable queue.
    pub async fn send(&self, task: Task, delay: Duration) -> Result<(), SendError> {
        let due = Utc::now() + chrono::Duration::from_std(delay).unwrap_or_default();
        self.send_due(task, delay, due).await
    }

    /// As [`send`](Self::send), for a task that was due at `due`: the header from which lateness is measured.
    pub async fn send_due(&self, task: Task, delay: Duration, due: DateTime<Utc>) -> Result<(), SendError> {
        let (exchange, routing_key) = self.address(&task, delay)?;
        let headers = Headers::default()
            .text(headers::TASK_TYPE, &task.task_type)
            .text(headers::ROUTING_KEY, task.key())
            .text(headers::ORIGIN, task.origin.as_str())
            .integer(headers::ATTEMPT, 1)
            .instant(headers::DUE_AT, due);
        let headers = match &task.schedule_time {
            Some(time) => headers.text(headers::SCHEDULE_TIME, time),
            None => headers,
        };
        let properties = properties(&task)?.with_headers(headers.into_table());
        let message = Outgoing {
            exchange,
            routing_key,
            body: task.body,
            properties,
        };
        self.publish(message, Some(&task.task_type)).await
    }

    fn address(&self, task: &Task, delay: Duration) -> Result<(String, String), SendError> {
        let platform = self.topology.names.exchange();
        match &task.exchange {
            None => Ok(self.route(task.key(), task.priority, delay)?),
            Some(exchange) if *exchange == platform => Ok(self.route(task.key(), task.priority, delay)?),
            Some(exchange) if delay.is_zero() => Ok((exchange.clone(), task.key().to_owned())),
            Some(exchange) => Err(SendError::Invalid(format!(
                "a delay ends in {platform:?}; it can't end in exchange {exchange:?}"
            ))),
        }
    }

    /// Exchange and routing key by which a task of this key and priority arrives after `delay`, in its lane.
    fn route(&self, key: &str, priority: u8, delay: Duration) -> Result<(String, String), LadderError> {
        let names = &self.topology.names;
        let (exchange, target) = match self.topology.lane(key, priority) {
            Lane::Normal => (names.exchange(), Target::Key(key.to_owned())),
            Lane::High => (names.exchange_high(), Target::HighKey(key.to_owned())),
        };
        if delay.is_zero() {
            return Ok((exchange, key.to_owned()));
        }
        let route = ladder::route(names, delay, &target)?;
        Ok((route.exchange, route.routing_key))
    }

    /// Publishes and counts; the one place where an outcome becomes an error.
    async fn publish(&self, message: Outgoing, task_type: Option<&str>) -> Result<(), SendError> {
        let (exchange, key) = (message.exchange.clone(), message.routing_key.clone());
        let started = Instant::now();
        let outcome = self.publisher.publish(message).await;
        metrics::publish_ended(task_type, outcome.as_str(), started.elapsed());
        match outcome {
            PublishOutcome::Confirmed => Ok(()),
            PublishOutcome::Returned { .. } => Err(SendError::Unroutable { exchange, key }),
            PublishOutcome::NoExchange => Err(SendError::NoExchange(exchange)),
            PublishOutcome::Forbidden { why } => Err(SendError::Forbidden { exchange, why }),
            PublishOutcome::Invalid { why } => Err(SendError::Invalid(why)),
            PublishOutcome::Nacked => Err(SendError::Nacked),
            PublishOutcome::TimedOut { why } => Err(SendError::Unknown(why)),
        }
    }
}

fn properties(task: &Task) -> Result<BasicProperties, SendError> {
    let fit = |what: &str, value: &str| {
        short(value).ok_or_else(|| {
            SendError::Invalid(format!(
                "{what} has {} bytes; AMQP carries at most 255",
                value.len()
            ))
        })
    };
    let mut properties = BasicProperties::default()
        .with_delivery_mode(2)
        .with_content_type("application/json".into())
        .with_message_id(fit("taskId", &task.task_id)?)
        .with_type(fit("taskType", &task.task_type)?)
        .with_timestamp(u64::try_from(Utc::now().timestamp()).unwrap_or_default());
    if let Some(producer) = &task.producer {
        properties = properties.with_app_id(fit("producer", producer)?);
    }
    if let Some(trace) = &task.trace_id {
        properties = properties.with_correlation_id(fit("traceId", trace)?);
    }
    Ok(properties)
}

/// The routing key a message was first published with: from our header, else from the key it came with, which
/// after a delay carries it behind the ladder's digits.
pub fn original_key(header: Option<&str>, routing_key: &str) -> Option<String> {
    if let Some(key) = header {
        return Some(key.to_owned());
    }
    match ladder::parse_key(routing_key) {
        Some((_, Target::Key(key) | Target::HighKey(key))) => Some(key),
        Some((_, Target::Queue(_))) => None,
        None => Some(routing_key.to_owned()),
    }
}
