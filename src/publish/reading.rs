//! What an incoming body is: a valid envelope, or what can still be told of one that isn't.
//!
//! May import: `core`, `broker`. Worker and router read bodies here, so that both refuse the same ones.

use std::sync::Arc;

use chrono::Utc;
use tidegate_core::{
    dispose::Outcome,
    envelope::{self, Envelope, EnvelopeError, Limits},
};

use super::resend::{Failure, Known};
use crate::broker::{consumer::Incoming, message};

/// A body read as far as it can be.
#[derive(Debug)]
pub enum Reading {
    /// A task.
    Valid(Arc<Envelope>),
    /// No task.
    Invalid {
        /// What a bounded look found.
        known: Known,
        /// What to dispose of it as.
        outcome: Outcome,
        /// The broken rules.
        failure: Failure,
    },
}

/// Reads the envelope of `incoming`; `queue` is the business queue it belongs to.
pub fn read(incoming: &Incoming, queue: Option<&str>, limits: &Limits) -> Reading {
    let encoding = message::encoding(&incoming.properties);
    let parsed = envelope::unpack(&incoming.body, encoding, limits)
        .and_then(|body| Envelope::parse(&body, limits, Utc::now()));
    match parsed {
        Ok(envelope) => Reading::Valid(Arc::new(envelope)),
        Err(error) => {
            let peek = envelope::peek(&incoming.body);
            let known = Known {
                task_id: peek.task_id.map(|id| id.to_string()),
                task_type: peek.task_type.map(|t| t.to_string()),
                queue: queue.map(ToOwned::to_owned),
                recorded_key: None,
                deaths: None,
                waits: None,
            };
            let (outcome, kind) = refusal(&error);
            let failure = Failure {
                kind: kind.to_owned(),
                message: error.to_string(),
            };
            Reading::Invalid {
                known,
                outcome,
                failure,
            }
        }
    }
}

fn refusal(error: &EnvelopeError) -> (Outcome, &'static str) {
    if error.is_too_large() {
        (Outcome::TooLarge, "too_large")
    } else {
        (
            Outcome::InvalidEnvelope,
            error.violations.first().map_or("invalid", |v| v.rule.as_str()),
        )
    }
}

/// What is known of a task with a valid envelope.
pub fn known(envelope: &Envelope, queue: &str) -> Known {
    Known {
        task_id: Some(envelope.task_id.to_string()),
        task_type: Some(envelope.task_type.to_string()),
        queue: Some(queue.to_owned()),
        recorded_key: None,
        deaths: None,
        waits: None,
    }
}
