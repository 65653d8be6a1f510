//! `task.ingress`: producers with no SDK that want a delay, by the `x-delay` header (milliseconds, as with the
//! retired delayed-message plugin) or by the envelope's `scheduleTime`. Where both are given the later one holds.

use std::time::Duration;

use chrono::Utc;
use tidegate_core::{
    dispose::{DeadReason, Disposition},
    envelope::Envelope,
    ladder,
};

use super::Routes;
use crate::{
    broker::{consumer::Incoming, message},
    publish::{
        reading::{Reading, known, read},
        resend::Failure,
    },
};

impl Routes<'_> {
    pub(super) async fn ingress(&self, mut incoming: Incoming) {
        let envelope = match read(&incoming, None, &self.router.limits) {
            Reading::Valid(envelope) => envelope,
            Reading::Invalid {
                known,
                outcome,
                failure,
            } => {
                let reason = match outcome {
                    tidegate_core::dispose::Outcome::TooLarge => DeadReason::TooLarge,
                    _ => DeadReason::InvalidEnvelope,
                };
                let disposition = Disposition::Dead { reason };
                let queue = incoming.queue.clone();
                self.settle(incoming, &known, &queue, 1, disposition, &failure)
                    .await;
                return;
            }
        };
        if incoming.routing_key.is_empty() {
            incoming.routing_key = envelope.task_type.to_string();
        }
        let mut known = known(&envelope, &incoming.queue);
        known.queue = None;
        match delay(&incoming, &envelope) {
            Ok(delay) => {
                self.router
                    .settler
                    .forward(incoming, &known, envelope.priority, delay)
                    .await;
            }
            Err(message) => {
                let failure = Failure {
                    kind: "bad_delay".to_owned(),
                    message,
                };
                let disposition = Disposition::Dead {
                    reason: DeadReason::InvalidEnvelope,
                };
                let queue = incoming.queue.clone();
                self.settle(incoming, &known, &queue, 1, disposition, &failure)
                    .await;
            }
        }
    }
}

/// How long from now until the task is due. An error says what is wrong with header or key and what the limit is.
fn delay(incoming: &Incoming, envelope: &Envelope) -> Result<Duration, String> {
    let by_header = match message::delay_header(&incoming.properties) {
        Some(text) => ladder::parse_delay_ms(&text).map_err(|error| error.to_string())?,
        None => Duration::ZERO,
    };
    let by_time = envelope
        .schedule_time
        .map(|at| (at.to_utc() - Utc::now()).to_std().unwrap_or_default());
    let delay = by_header.max(by_time.unwrap_or_default());
    let (bytes, most) = (incoming.routing_key.len(), ladder::max_high_key_bytes());
    // Refused here, because a publish that can never succeed would send it back to this queue for ever.
    if !delay.is_zero() && bytes > most {
        return Err(format!(
            "a routing key of {bytes} bytes can't be delayed: use at most {most} bytes, or publish to the exchange without delay"
        ));
    }
    Ok(delay)
}
