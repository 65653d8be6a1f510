//! A message on `task.dead` as a row of the archive. Pure.
//!
//! May import: `core`, `broker` (what a message is), `store` (the row). Bytes, properties and headers go in as they came. What the
//! row is found by is read from body, headers or the broker's record, without trust: cut to what its column holds, and
//! without NUL, which no text of Postgres has.

#[cfg(test)]
mod tests;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use tidegate_core::{
    dead_letter::{DeadLetterId, identify},
    dispose::DeadReason,
    envelope::{Limits, Peek, peek, unpack},
    fingerprint::Fingerprint,
    headers,
    task::{TaskId, TaskType},
};

use crate::{
    broker::{
        death,
        message::{self, Properties},
        record,
    },
    store::dead_letters::archive::NewDeadLetter,
};

/// Longest name of a queue and longest routing key, in bytes.
const MAX_NAME_BYTES: usize = 255;

/// A message as it came.
#[derive(Clone, Copy, Debug)]
pub struct Arrived<'a> {
    /// The queue it was read from.
    pub queue: &'a str,
    /// The key it came with.
    pub routing_key: &'a str,
    /// Properties and headers.
    pub properties: &'a Properties,
    /// The bytes.
    pub body: &'a Bytes,
}

/// The row of `arrived`, by a clock that says `now`; `fresh` is a new id for one that brings none. A body is unpacked within
/// `limits` to see what it says of itself.
pub fn read(
    arrived: &Arrived<'_>,
    limits: &Limits,
    fresh: DeadLetterId,
    now: DateTime<Utc>,
) -> NewDeadLetter {
    let properties = arrived.properties;
    let header = |name| message::text(properties, name);
    // A name on what the broker dead-lettered here is that of an earlier death.
    let named = header(headers::DEAD_LETTER_ID).filter(|_| death::last_death(properties).is_none());
    let identity = identify(named, arrived.routing_key, arrived.body, fresh, now);
    let peeked = look_into(arrived, limits);
    let task_type = peeked.task_type.or_else(|| {
        let kind = || properties.kind().as_ref().map(|kind| kind.as_str());
        [header(headers::TASK_TYPE), kind()]
            .into_iter()
            .flatten()
            .find_map(|text| TaskType::parse(text).ok())
    });
    let message_id = || properties.message_id().as_ref().map(|id| id.as_str());
    let task_id = peeked
        .task_id
        .clone()
        .or_else(|| TaskId::parse(message_id()?).ok());
    let cause = cause(arrived);
    let task_type = task_type.as_ref().map(TaskType::as_str);
    NewDeadLetter {
        id: identity.id,
        died_at: identity.died_at,
        first_failed_at: message::instant(properties, headers::FIRST_FAILED_AT),
        task_id: task_id.map(|id| id.to_string()),
        task_type: task_type.map(ToOwned::to_owned),
        routing_key: header(headers::ROUTING_KEY)
            .or(cause.recorded_key.as_deref())
            .or(Some(arrived.routing_key))
            .filter(|key| !key.is_empty())
            .map(name),
        fingerprint: Fingerprint::of(task_type, cause.reason, &cause.kind, &cause.error),
        queue: cause.queue,
        reason: cause.reason,
        error_kind: cause.kind,
        error: cause.error,
        attempts: message::attempt(properties),
        body: arrived.body.clone(),
        properties: record::record(properties),
        replay_of: header(headers::REPLAY_OF).map(ToOwned::to_owned),
        body_task_id: peeked.task_id,
    }
}

/// What the body says of itself, unpacked where it can be.
fn look_into(arrived: &Arrived<'_>, limits: &Limits) -> Peek {
    match unpack(arrived.body, message::encoding(arrived.properties), limits) {
        Ok(body) => peek(&body),
        Err(_) => peek(arrived.body),
    }
}

/// Why it is here.
struct Cause {
    queue: String,
    /// The key that it had in that queue, by the broker's record.
    recorded_key: Option<String>,
    reason: DeadReason,
    kind: String,
    error: String,
}

fn cause(arrived: &Arrived<'_>) -> Cause {
    let properties = arrived.properties;
    // What Tidegate sends has no record of the broker's: it came here by a dead-letter exchange, and our headers on it, if any,
    // are those of an earlier failure.
    if let Some(death) = death::last_death(properties) {
        let queue = death.queue.as_deref().unwrap_or(arrived.queue);
        let reason = match death.reason.as_str() {
            "expired" => DeadReason::Expired,
            "delivery_limit" => DeadReason::DeliveryLimit,
            _ => DeadReason::Rejected,
        };
        return Cause {
            queue: name(queue),
            recorded_key: death.routing_key.clone(),
            reason,
            kind: headers::cut_kind(&death.reason),
            error: headers::cut_error(&format!(
                "{queue} dead-letters into the archive: {}",
                death.reason
            )),
        };
    }
    let header = |name| message::lossy_text(properties, name);
    let queue = header(headers::FAILED_QUEUE)
        .filter(|queue| !queue.is_empty())
        .unwrap_or_else(|| arrived.queue.into());
    let reason = header(headers::DEAD_REASON).and_then(|reason| DeadReason::parse(&reason));
    let (kind, error) = (header(headers::ERROR_KIND), header(headers::ERROR));
    Cause {
        queue: name(&queue),
        recorded_key: None,
        reason: reason.unwrap_or(DeadReason::Rejected),
        kind: headers::cut_kind(kind.as_deref().unwrap_or(match reason {
            Some(reason) => reason.as_str(),
            None => "no_reason",
        })),
        error: headers::cut_error(
            error
                .as_deref()
                .unwrap_or("published to the dead letters without saying why"),
        ),
    }
}

/// A name as its column holds it.
fn name(text: &str) -> String {
    let clean = text.replace('\0', "\u{fffd}");
    let mut end = clean.len().min(MAX_NAME_BYTES);
    while !clean.is_char_boundary(end) {
        end -= 1;
    }
    clean[..end].to_owned()
}
