//! `task.failed`: whatever a business queue dead-lettered, by whichever client, gets the queue's own policy.

use tidegate_core::dispose::{Attempt, DeadReason, Disposition, Outcome, dispose};

use super::Router;
use crate::{
    broker::{consumer::Incoming, message},
    publish::{
        reading::{Reading, known, read},
        resend::{Failure, Known},
    },
    telemetry::metrics,
};

impl Router {
    pub(super) async fn failed(&self, incoming: Incoming) {
        // The queue wrote its own name as the routing key; no client can forge that without publishing here.
        let queue = incoming.routing_key.clone();
        let death = message::last_death(&incoming.properties);
        let number = message::attempt(&incoming.properties);
        let topology = self.settler.publisher().topology();
        let (mut known, max_retries, outcome, failure) = match read(&incoming, Some(&queue), &self.limits) {
            Reading::Valid(envelope) => {
                let (outcome, failure) = judge(death.as_ref().map(|d| d.reason.as_str()), &queue);
                (known(&envelope, &queue), envelope.max_retries, outcome, failure)
            }
            Reading::Invalid {
                known,
                outcome,
                failure,
            } => (known, None, outcome, failure),
        };
        known.recorded_key = death.and_then(|d| d.routing_key);
        let Some((described, _)) = topology.queue(&queue) else {
            return self.homeless(incoming, &known, number, &queue).await;
        };
        metrics::attempt_ended(
            known.task_type.as_deref(),
            outcome.as_str(),
            std::time::Duration::ZERO,
        );
        let attempt = Attempt {
            number,
            max_retries,
            jitter: rand::random(),
        };
        let disposition = dispose(&attempt, &described.retry, outcome);
        self.settler
            .settle(incoming, &known, &queue, number, disposition, &failure)
            .await;
    }

    /// A queue that no topology file names has no policy, and a retry could not find back to it.
    async fn homeless(&self, incoming: Incoming, known: &Known, number: u32, queue: &str) {
        let failure = Failure {
            kind: "unknown_queue".to_owned(),
            message: format!("queue {queue:?} dead-letters into the platform, but no topology file names it"),
        };
        let disposition = Disposition::Dead {
            reason: DeadReason::Unroutable,
        };
        self.settler
            .settle(incoming, known, queue, number, disposition, &failure)
            .await;
    }
}

/// What the broker's record of the death means.
fn judge(reason: Option<&str>, queue: &str) -> (Outcome, Failure) {
    let (outcome, kind, message) = match reason {
        Some("expired") => (
            Outcome::Expired,
            "expired",
            format!("its own TTL ended in {queue}"),
        ),
        Some("delivery_limit") => (
            Outcome::DeliveryLimit,
            "delivery_limit",
            format!("{queue} took it back more often than its delivery limit allows"),
        ),
        Some("rejected") => (
            Outcome::Refused,
            "refused",
            format!("a consumer of {queue} refused it"),
        ),
        // No record, or one that a later broker words anew: the consumer did not want it.
        _ => (
            Outcome::Refused,
            "dead_lettered",
            format!("{queue} dead-lettered it"),
        ),
    };
    (
        outcome,
        Failure {
            kind: kind.to_owned(),
            message,
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_brokers_reasons_become_outcomes() {
        let outcomes: Vec<_> = [
            Some("rejected"),
            Some("expired"),
            Some("delivery_limit"),
            Some("maxlen"),
            None,
        ]
        .into_iter()
        .map(|reason| judge(reason, "q").0)
        .collect();
        let expected = [
            Outcome::Refused,
            Outcome::Expired,
            Outcome::DeliveryLimit,
            Outcome::Refused,
            Outcome::Refused,
        ];
        assert_eq!(outcomes, expected);
    }
}
