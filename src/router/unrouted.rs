//! `task.unrouted`: what no binding took. A task of the ledger goes back to the ledger, which publishes it again
//! later; anything else becomes a dead letter with reason `unroutable`, where it can be seen and replayed.

use std::time::Duration;

use tidegate_core::{
    dispose::{DeadReason, Disposition},
    headers::{self, Origin},
    ladder::{self, Target},
};

use tokio::time::Instant;

use super::{Ledger, Routes};
use crate::{
    broker::{consumer::Incoming, message},
    publish::{
        reading::{Reading, known, read},
        resend::{Failure, Known},
    },
    supervisor::backoff,
    telemetry::metrics,
};

/// How long a ledger that is away is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

impl Routes<'_> {
    pub(super) async fn unrouted(&self, incoming: Incoming) {
        let known = match read(&incoming, None, &self.router.limits) {
            Reading::Valid(envelope) => Known {
                queue: None,
                ..known(&envelope, "")
            },
            Reading::Invalid { known, .. } => known,
        };
        let (exchange, key) = (&incoming.exchange, &incoming.routing_key);
        let message = format!("no queue takes routing key {key:?} on exchange {exchange:?}");
        if let (Some(ledger), Some(task_id)) = (&self.router.ledger, &known.task_id)
            && is_first_publish_by_the_ledger(&incoming)
        {
            match take_back(ledger.as_ref(), task_id, &message).await {
                Ok(true) => {
                    metrics::unroutable("returned_to_ledger");
                    tracing::warn!(%task_id, %key, "unroutable; back to the ledger");
                    let _ = incoming.ack();
                    return;
                }
                Ok(false) => {}
                // Visible as a dead letter is better than held here for as long as the ledger is away.
                Err(error) => {
                    tracing::warn!(%task_id, %error, "unroutable, and the ledger can't take it back")
                }
            }
        }
        metrics::unroutable("dead_lettered");
        let failure = Failure {
            kind: "unroutable".to_owned(),
            message,
        };
        let disposition = Disposition::Dead {
            reason: DeadReason::Unroutable,
        };
        let number = message::attempt(&incoming.properties);
        let queue = incoming.queue.clone();
        self.settle(incoming, &known, &queue, number, disposition, &failure)
            .await;
    }
}

/// Asks the ledger to take the task back, again and again while it is away, for at most [`PATIENCE`].
async fn take_back(ledger: &dyn Ledger, task_id: &str, why: &str) -> Result<bool, String> {
    let started = Instant::now();
    let mut waits = backoff();
    loop {
        match ledger.unroutable(task_id, why).await {
            Err(_) if started.elapsed() < PATIENCE => {
                tokio::time::sleep(waits.next().unwrap_or_default()).await;
            }
            answer => return answer,
        }
    }
}

/// A retry that lost its queue must not go through the ledger: it would be published to all subscribers of its key.
fn is_first_publish_by_the_ledger(incoming: &Incoming) -> bool {
    let origin = message::text(&incoming.properties, headers::ORIGIN).and_then(Origin::parse);
    let from_ledger = matches!(origin, Some(Origin::Http | Origin::Sql | Origin::Cron));
    let to_one_queue = matches!(
        ladder::parse_key(&incoming.routing_key),
        Some((_, Target::Queue(_)))
    );
    from_ledger && !to_one_queue && message::attempt(&incoming.properties) == 1
}
