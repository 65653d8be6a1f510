//! `task.failed`: whatever a business queue dead-lettered, by whichever client, gets the queue's own policy.

use tidegate_core::{
    dispose::{Attempt, DeadReason, Disposition, Outcome, dispose},
    headers,
};

use super::Routes;
use crate::{
    broker::{consumer::Incoming, death, message},
    publish::{
        reading::{Reading, known, read},
        resend::{Failure, Known},
    },
    telemetry::metrics,
};

impl Routes<'_> {
    pub(super) async fn failed(&self, incoming: Incoming) {
        // The queue wrote its own name as the routing key; no client can forge that without publishing here.
        let queue = incoming.routing_key.clone();
        let death = death::last_death(&incoming.properties);
        let number = message::attempt(&incoming.properties);
        let waits = message::integer(&incoming.properties, headers::WAITS);
        let times = waits
            .and_then(|n| u32::try_from(n).ok())
            .unwrap_or_default()
            .saturating_add(1);
        let topology = self.router.settler.publisher().topology();
        let (mut known, max_retries, outcome, failure) =
            match read(&incoming, Some(&queue), &self.router.limits) {
                Reading::Valid(envelope) => {
                    let (outcome, failure) = judge(death.as_ref().map(|d| d.reason.as_str()), &queue, times);
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
        match outcome {
            Outcome::Overflowed { times } => {
                known.waits = Some(times);
                metrics::deferred(known.task_type.as_deref(), "overflow");
            }
            _ => metrics::attempt_ended(known.task_type.as_deref(), outcome.as_str(), None),
        }
        let attempt = Attempt {
            number,
            max_retries,
            jitter: rand::random(),
        };
        let policy = topology.retry(described, known.task_type.as_deref());
        let disposition = dispose(&attempt, &policy, outcome);
        self.settle(incoming, &known, &queue, number, disposition, &failure)
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
        self.settle(incoming, known, queue, number, disposition, &failure)
            .await;
    }
}

/// What the broker's record of the death means; `times` counts the queues' overflows in a row, with this one.
fn judge(reason: Option<&str>, queue: &str, times: u32) -> (Outcome, Failure) {
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
        // A policy has made the queue drop instead of refuse; the lint of `topology plan` warns of it.
        Some("maxlen") => (
            Outcome::Overflowed { times },
            "overflow",
            format!("{queue} was full and let it go"),
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
        .map(|reason| judge(reason, "q", 3).0)
        .collect();
        let expected = [
            Outcome::Refused,
            Outcome::Expired,
            Outcome::DeliveryLimit,
            Outcome::Overflowed { times: 3 },
            Outcome::Refused,
        ];
        assert_eq!(outcomes, expected);
    }
}
