//! Sending a message again: to the ladder for another attempt, to `task.dead`, or straight back to its queue.
//!
//! May import: as `publish`. The body is the producer's bytes; what changes travels in headers. The caller
//! acknowledges the original only after `Ok`: a crash between leaves a duplicate with the same id, never a loss.

use std::time::Duration;

use chrono::{DateTime, Utc};
use lapin::BasicProperties;
use tidegate_core::{
    dispose::DeadReason,
    headers,
    ladder::{self, Target},
};

use super::{SendError, TaskPublisher, original_key};
use crate::broker::{
    consumer::Incoming,
    message::{self, Headers, short},
    publisher::Outgoing,
};

/// What is known of the message beyond its properties.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// `taskId`, where the body has a valid one.
    pub task_id: Option<String>,
    /// `taskType`, where the body has a valid one.
    pub task_type: Option<String>,
    /// The business queue whose attempt failed.
    pub queue: Option<String>,
    /// The routing key in the broker's record, where the message came through a dead-letter exchange.
    pub recorded_key: Option<String>,
    /// How many worker processes died with it: what its header says from now on.
    pub deaths: Option<u32>,
    /// How often the limits of its type have put it off, likewise.
    pub waits: Option<u32>,
}

/// Why the last attempt failed; both texts are cut before they travel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Low-cardinality kind.
    pub kind: String,
    /// Text.
    pub message: String,
}

impl Failure {
    /// What the ledger keeps of it: reason of the dead letter if it is one, kind and text, bounded as in headers. `None`: there
    /// is nothing to say.
    pub fn line(&self, reason: Option<DeadReason>) -> Option<String> {
        let parts: Vec<&str> = [reason.map_or("", DeadReason::as_str), &self.kind, &self.message]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect();
        (!parts.is_empty()).then(|| headers::cut_error(&parts.join(": ")))
    }
}

impl TaskPublisher {
    /// Sends `incoming` to the ladder: attempt `attempt` starts in `queue` after `delay`.
    pub async fn retry(
        &self,
        incoming: &Incoming,
        known: &Known,
        queue: &str,
        delay: Duration,
        attempt: u32,
        failure: &Failure,
    ) -> Result<(), SendError> {
        let now = Utc::now();
        let (properties, headers) = again(incoming, known, now);
        let headers = failed(headers, known, failure, now)
            .integer(headers::ATTEMPT, attempt.into())
            .instant(
                headers::DUE_AT,
                now + chrono::Duration::from_std(delay).unwrap_or_default(),
            );
        self.to_queue(incoming, known, queue, delay, properties, headers)
            .await
    }

    /// Sends `incoming` back to `queue` at once, as the same attempt and no less suspect than it was.
    ///
    /// It is published anew rather than requeued, because brokers before 4.3 count every requeue as a failed
    /// delivery, and a shutdown is none.
    pub async fn give_back(&self, incoming: &Incoming, known: &Known, queue: &str) -> Result<(), SendError> {
        let (properties, headers) = again(incoming, known, Utc::now());
        let headers = suspected(headers, known, Some(incoming));
        self.to_queue(incoming, known, queue, Duration::ZERO, properties, headers)
            .await
    }

    /// Sends `incoming` back to `queue` after `delay`, as the same attempt: it can't start now.
    pub async fn defer(
        &self,
        incoming: &Incoming,
        known: &Known,
        queue: &str,
        delay: Duration,
    ) -> Result<(), SendError> {
        let now = Utc::now();
        let (properties, headers) = again(incoming, known, now);
        let due = now + chrono::Duration::from_std(delay).unwrap_or_default();
        let headers = suspected(headers, known, Some(incoming)).instant(headers::DUE_AT, due);
        let headers = match known.waits {
            Some(waits) => headers.integer(headers::WAITS, waits.into()),
            None => headers,
        };
        self.to_queue(incoming, known, queue, delay, properties, headers)
            .await
    }

    /// Sends `incoming` on from `task.ingress`: to its own routing key after `delay`.
    pub async fn forward(
        &self,
        incoming: &Incoming,
        known: &Known,
        priority: u8,
        delay: Duration,
    ) -> Result<(), SendError> {
        let now = Utc::now();
        let (properties, headers) = again(incoming, known, now);
        let due = now + chrono::Duration::from_std(delay).unwrap_or_default();
        let headers = headers
            .text_if_absent(headers::ORIGIN, headers::Origin::Amqp.as_str())
            .instant(headers::DUE_AT, due);
        let (exchange, routing_key) = self.route(&incoming.routing_key, priority, delay)?;
        self.republish(incoming, known, exchange, routing_key, properties, headers)
            .await
    }

    /// Sends `incoming` to `task.dead` with its reason and its exact bytes. `id` names this death, a UUID of version 7: sent
    /// twice with the same one, it is one dead letter.
    pub async fn dead(
        &self,
        incoming: &Incoming,
        known: &Known,
        reason: DeadReason,
        failure: &Failure,
        id: uuid::Uuid,
    ) -> Result<(), SendError> {
        let now = Utc::now();
        let (properties, headers) = again(incoming, known, now);
        let headers = failed(headers, known, failure, now)
            .text(headers::FAILED_QUEUE, &showed_in(incoming, known))
            .text(headers::DEAD_REASON, reason.as_str())
            .text(headers::DEAD_LETTER_ID, &id.hyphenated().to_string());
        let headers = suspected(headers, known, None);
        let exchange = self.topology.names.dead();
        let key = known
            .queue
            .clone()
            .unwrap_or_else(|| incoming.routing_key.clone());
        self.republish(incoming, known, exchange, key, properties, headers)
            .await
    }

    async fn to_queue(
        &self,
        incoming: &Incoming,
        known: &Known,
        queue: &str,
        delay: Duration,
        properties: BasicProperties,
        headers: Headers,
    ) -> Result<(), SendError> {
        let route = ladder::route(&self.topology.names, delay, &Target::Queue(queue.to_owned()))?;
        self.republish(
            incoming,
            known,
            route.exchange,
            route.routing_key,
            properties,
            headers,
        )
        .await
    }

    async fn republish(
        &self,
        incoming: &Incoming,
        known: &Known,
        exchange: String,
        routing_key: String,
        properties: BasicProperties,
        headers: Headers,
    ) -> Result<(), SendError> {
        let properties = properties.with_headers(headers.into_table());
        let body = incoming.body.clone();
        let message = Outgoing {
            exchange,
            routing_key,
            body,
            properties,
        };
        self.publish(message, known.task_type.as_deref()).await
    }
}

/// Carried properties with a message id (a returned message is recognised by it) and what describes the task, but no
/// suspicion: whoever goes on suspecting it says so.
fn again(incoming: &Incoming, known: &Known, now: DateTime<Utc>) -> (BasicProperties, Headers) {
    let (mut properties, mut headers) = message::carried(&incoming.properties);
    for name in [headers::CRASHES, headers::WAITS] {
        if headers.has(name) {
            headers = headers.without(name);
        }
    }
    if properties.message_id().is_none() {
        let id = known
            .task_id
            .clone()
            .unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
        properties = properties.with_message_id(short(&id).unwrap_or_default());
    }
    if properties.timestamp().is_none() {
        properties = properties.with_timestamp(u64::try_from(now.timestamp()).unwrap_or_default());
    }
    if let Some(task_type) = &known.task_type {
        headers = headers.text_if_absent(headers::TASK_TYPE, task_type);
        if let (None, Some(kind)) = (properties.kind(), short(task_type)) {
            properties = properties.with_type(kind);
        }
    }
    let header = message::text(&incoming.properties, headers::ROUTING_KEY);
    let arrived_with = known.recorded_key.as_deref().unwrap_or(&incoming.routing_key);
    if let Some(key) = original_key(header, arrived_with) {
        headers = headers.text_if_absent(headers::ROUTING_KEY, &key);
    }
    (properties, headers)
}

/// The queue that failed. Of what failed in none: the one that a retry could not find back to, or else the platform queue
/// where it showed. Never what the message says of itself.
fn showed_in(incoming: &Incoming, known: &Known) -> String {
    match (&known.queue, ladder::parse_key(&incoming.routing_key)) {
        (Some(queue), _) => queue.clone(),
        (None, Some((_, Target::Queue(queue)))) => queue,
        (None, _) => incoming.queue.to_string(),
    }
}

/// The deaths that are known, or that the message came with.
fn suspected(headers: Headers, known: &Known, carried: Option<&Incoming>) -> Headers {
    let carried = || message::integer(&carried?.properties, headers::CRASHES).filter(|deaths| *deaths > 0);
    match known.deaths.map(i64::from).or_else(carried) {
        Some(deaths) => headers.integer(headers::CRASHES, deaths),
        None => headers,
    }
}

fn failed(headers: Headers, known: &Known, failure: &Failure, now: DateTime<Utc>) -> Headers {
    let headers = match headers.has(headers::FIRST_FAILED_AT) {
        true => headers,
        false => headers.instant(headers::FIRST_FAILED_AT, now),
    };
    let headers = match &known.queue {
        Some(queue) => headers.text(headers::FAILED_QUEUE, queue),
        None => headers,
    };
    headers
        .text(headers::ERROR_KIND, &headers::cut_kind(&failure.kind))
        .text(headers::ERROR, &headers::cut_error(&failure.message))
}
