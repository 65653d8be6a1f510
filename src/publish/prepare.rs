//! From what somebody wants to publish to tasks that can be sent: checks, a task id where there is none, and the
//! delay.
//!
//! May import: `core`, `publish`. Pure: the caller hands in `now`, and random ids come from `uuid`. The bytes are
//! sent as they were given, except that a missing `taskId` is added at the front of the object; this is the only
//! place that does so.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::value::RawValue;
use tidegate_core::{
    envelope::{Envelope, EnvelopeError, Limits, Rule, unpack},
    headers::Origin,
    ladder,
};
use uuid::Uuid;

use super::Task;

/// When a task is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At the envelope's `scheduleTime` if that lies ahead, else now.
    AsWritten,
    /// After a delay.
    After(Duration),
    /// At an instant; one in the past is now.
    At(DateTime<Utc>),
}

/// Where the due time of a task is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DueFrom {
    /// Nothing asks for a delay.
    Now,
    /// The caller.
    Caller,
    /// The envelope's `scheduleTime`.
    ScheduleTime,
}

/// A task that may be sent.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The task.
    pub task: Task,
    /// How long the broker holds it.
    pub delay: Duration,
    /// When it is due.
    pub due: DateTime<Utc>,
    /// Where `due` is from.
    pub due_from: DueFrom,
    /// Whether its id was made here.
    pub id_added: bool,
}

/// Why a task may not be sent; it never may.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrepareError {
    /// The envelope breaks rules of the wire format.
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
    /// Longer than may be scheduled ahead.
    #[error(
        "the delay of {} is over the limit of {} (limits.max_schedule_ahead; the broker's delay ladder ends at {})",
        shown(*.asked), shown(*.limit), shown(ladder::MAX_DELAY)
    )]
    TooFarAhead {
        /// What was asked for.
        asked: Duration,
        /// The limit.
        limit: Duration,
    },
    /// The payload is no JSON.
    #[error("the payload is not JSON: {0}")]
    Payload(String),
}

/// An envelope in parts, as flags give it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// `taskId`; one is made where absent.
    pub task_id: Option<String>,
    /// `taskType`.
    pub task_type: String,
    /// `payload`, as JSON text.
    pub payload: String,
    /// `priority`.
    pub priority: Option<u8>,
    /// `traceId`.
    pub trace_id: Option<String>,
}

impl Draft {
    /// The envelope as bytes. What the parts hold is checked when they are prepared.
    pub fn into_bytes(self) -> Result<Vec<u8>, PrepareError> {
        #[derive(serde::Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Written {
            #[serde(skip_serializing_if = "Option::is_none")]
            task_id: Option<String>,
            task_type: String,
            payload: Box<RawValue>,
            #[serde(skip_serializing_if = "Option::is_none")]
            priority: Option<u8>,
            #[serde(skip_serializing_if = "Option::is_none")]
            trace_id: Option<String>,
        }
        let not_json = |why: serde_json::Error| PrepareError::Payload(why.to_string());
        let written = Written {
            task_id: self.task_id,
            task_type: self.task_type,
            payload: RawValue::from_string(self.payload).map_err(not_json)?,
            priority: self.priority,
            trace_id: self.trace_id,
        };
        serde_json::to_vec(&written).map_err(not_json)
    }
}

/// Checks `body` and makes a task of it, to run `when`.
pub fn prepare(
    body: Vec<u8>,
    when: When,
    limits: &Limits,
    now: DateTime<Utc>,
) -> Result<Prepared, PrepareError> {
    let plain = unpack(&body, None, limits)?;
    let (body, envelope, id_added) = match Envelope::parse(&plain, limits, now) {
        Ok(envelope) => (body, envelope, false),
        Err(error) if lacks_id(&error) => match with_id(&plain) {
            Some(body) => {
                let envelope = Envelope::parse(&body, limits, now)?;
                (body, envelope, true)
            }
            None => return Err(error.into()),
        },
        Err(error) => return Err(error.into()),
    };
    let (due, due_from) = match (when, envelope.schedule_time) {
        (When::After(delay), _) => (checked_due(now, delay, limits)?, DueFrom::Caller),
        (When::At(at), _) => (at, DueFrom::Caller),
        (When::AsWritten, Some(at)) if at > now => (at.to_utc(), DueFrom::ScheduleTime),
        (When::AsWritten, _) => (now, DueFrom::Now),
    };
    // An instant that has passed is now.
    let delay = (due - now).to_std().unwrap_or_default();
    check(delay, limits)?;
    let task = Task::new(body, &envelope, Origin::Amqp);
    Ok(Prepared {
        task,
        delay,
        due: due.max(now),
        due_from,
        id_added,
    })
}

fn check(delay: Duration, limits: &Limits) -> Result<(), PrepareError> {
    let limit = limits.max_schedule_ahead.min(ladder::MAX_DELAY);
    if delay > limit {
        Err(PrepareError::TooFarAhead { asked: delay, limit })
    } else {
        Ok(())
    }
}

/// The check comes first: a delay that large can't be added to an instant.
fn checked_due(now: DateTime<Utc>, delay: Duration, limits: &Limits) -> Result<DateTime<Utc>, PrepareError> {
    check(delay, limits)?;
    Ok(now + chrono::Duration::from_std(delay).unwrap_or_default())
}

/// In days and hours: months, as a calendar-minded formatter would write, have no fixed length.
fn shown(span: Duration) -> String {
    let (days, rest) = (
        span.as_secs() / 86_400,
        Duration::new(span.as_secs() % 86_400, span.subsec_nanos()),
    );
    match (days, rest.is_zero()) {
        (0, _) => humantime::format_duration(rest).to_string(),
        (_, true) => format!("{days} days"),
        (_, false) => format!("{days} days {}", humantime::format_duration(rest)),
    }
}

fn lacks_id(error: &EnvelopeError) -> bool {
    error
        .violations
        .iter()
        .any(|v| v.rule == Rule::MissingField && v.pointer == "/taskId")
}

/// `body` with a UUIDv7 as its first field; every other byte stays.
fn with_id(body: &[u8]) -> Option<Vec<u8>> {
    let brace = body
        .iter()
        .position(|byte| !byte.is_ascii_whitespace())
        .filter(|at| body[*at] == b'{')?;
    let (before, after) = body.split_at(brace + 1);
    let id = format!("\"taskId\":\"{}\",", Uuid::now_v7());
    Some([before, id.as_bytes(), after].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &str = " {\"taskType\": \"order.close\", \"payload\": {\"orderId\": \"1\"}}";

    fn prepared(body: &str, when: When) -> Result<Prepared, PrepareError> {
        prepare(body.as_bytes().to_vec(), when, &Limits::standard(), now())
    }

    fn now() -> DateTime<Utc> {
        "2026-11-29T12:00:00Z".parse().unwrap()
    }

    #[test]
    fn a_missing_id_is_added_and_nothing_else_changes() {
        let prepared = prepared(BODY, When::AsWritten).unwrap();
        assert!(prepared.id_added);
        let sent = String::from_utf8(prepared.task.body.to_vec()).unwrap();
        let added = format!("\"taskId\":\"{}\",", prepared.task.task_id);
        assert_eq!(sent.replacen(&added, "", 1), BODY);
        assert_eq!(
            Uuid::parse_str(&prepared.task.task_id).unwrap().get_version_num(),
            7
        );
    }

    #[test]
    fn an_envelope_with_an_id_is_sent_as_it_is() {
        for sample in [
            "{\"taskId\":\"a\",  \"taskType\":\"order.close\",\"payload\":{}}\n",
            "{\"task_id\":\"a\",\"task_type\":\"order.close\",\"payload\":{\"n\":1.50}}",
        ] {
            let prepared = prepared(sample, When::AsWritten).unwrap();
            assert!(!prepared.id_added);
            assert_eq!(prepared.task.body, sample.as_bytes());
        }
    }

    #[test]
    fn without_an_id_the_other_rules_still_hold() {
        let Err(PrepareError::Envelope(error)) =
            prepared("{\"taskType\":\"Order\",\"payload\":[]}", When::AsWritten)
        else {
            panic!("accepted")
        };
        let pointers: Vec<_> = error.violations.iter().map(|v| v.pointer.as_str()).collect();
        assert_eq!(pointers, ["/taskType", "/payload"]);
        assert!(prepared("{}", When::AsWritten).is_err());
        assert!(prepared("[]", When::AsWritten).is_err());
        assert!(prepared("", When::AsWritten).is_err());
    }

    #[test]
    fn the_schedule_time_counts_unless_the_caller_says_otherwise() {
        let at = |time: &str| {
            format!("{{\"taskId\":\"a\",\"taskType\":\"a.b\",\"payload\":{{}},\"scheduleTime\":\"{time}\"}}")
        };
        let ahead = at("2026-11-29T13:00:30+01:00");
        let prepared_ahead = prepared(&ahead, When::AsWritten).unwrap();
        assert_eq!(
            (prepared_ahead.delay, prepared_ahead.due_from),
            (Duration::from_secs(30), DueFrom::ScheduleTime)
        );
        let over = prepared(&ahead, When::After(Duration::from_secs(5))).unwrap();
        assert_eq!(
            (over.delay, over.due_from),
            (Duration::from_secs(5), DueFrom::Caller)
        );
        let past = prepared(&at("2020-01-01T00:00:00Z"), When::AsWritten).unwrap();
        assert_eq!(
            (past.delay, past.due_from, past.due),
            (Duration::ZERO, DueFrom::Now, now())
        );
        let past = prepared(
            &at("2020-01-01T00:00:00Z"),
            When::At("2020-01-01T00:00:00Z".parse().unwrap()),
        )
        .unwrap();
        assert_eq!(
            (past.delay, past.due),
            (Duration::ZERO, now()),
            "an instant that has passed is now"
        );
    }

    #[test]
    fn delays_beyond_32_bits_are_exact_and_beyond_the_limit_are_refused() {
        for millis in [
            2_147_483_647,
            2_147_483_648,
            4_294_967_295,
            4_294_967_296,
            7_776_000_000,
        ] {
            let delay = Duration::from_millis(millis);
            let prepared = prepared(BODY, When::After(delay)).unwrap();
            assert_eq!(prepared.delay, delay);
            assert_eq!(
                prepared.due,
                now() + chrono::Duration::milliseconds(millis as i64)
            );
        }
        for delay in [
            Duration::from_millis(7_776_000_001),
            Duration::from_secs(31_536_000),
            Duration::MAX,
        ] {
            let error = prepared(BODY, When::After(delay)).unwrap_err();
            assert!(matches!(error, PrepareError::TooFarAhead { .. }));
            assert!(
                error
                    .to_string()
                    .contains("over the limit of 90 days (limits.max_schedule_ahead"),
                "{error}"
            );
        }
        let far = When::At(DateTime::<Utc>::MAX_UTC);
        assert!(matches!(
            prepared(BODY, far),
            Err(PrepareError::TooFarAhead { .. })
        ));
    }

    #[test]
    fn a_draft_keeps_its_payload_as_written_and_lets_nothing_else_in() {
        let draft = |payload: &str| Draft {
            task_id: None,
            task_type: "order.close".to_owned(),
            payload: payload.to_owned(),
            priority: Some(200),
            trace_id: Some("t-1".to_owned()),
        };
        let body = String::from_utf8(draft("{\"amount\": 1.50}").into_bytes().unwrap()).unwrap();
        assert_eq!(
            body,
            "{\"taskType\":\"order.close\",\"payload\":{\"amount\": 1.50},\"priority\":200,\"traceId\":\"t-1\"}"
        );
        assert_eq!(prepared(&body, When::AsWritten).unwrap().task.priority, 200);
        for not_json in ["", "{", "{},\"taskId\":\"x\"", "order"] {
            assert!(
                matches!(draft(not_json).into_bytes(), Err(PrepareError::Payload(_))),
                "{not_json}"
            );
        }
    }
}
