//! `task.unrouted`: what no binding took. A task of the ledger goes back to the ledger, which publishes it again
//! later; anything else becomes a dead letter with reason `unroutable`, where it can be seen and replayed.

use tidegate_core::{
    dispose::{DeadReason, Disposition},
    headers::{self, Origin},
    ladder::{self, Target},
};

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
    pub(super) async fn unrouted(&self, incoming: Incoming) {
        let known = match read(&incoming, None, &self.limits) {
            Reading::Valid(envelope) => Known {
                queue: None,
                ..known(&envelope, "")
            },
            Reading::Invalid { known, .. } => known,
        };
        let (exchange, key) = (&incoming.exchange, &incoming.routing_key);
        let message = format!("no queue takes routing key {key:?} on exchange {exchange:?}");
        if let (Some(ledger), Some(task_id)) = (&self.ledger, &known.task_id)
            && is_first_publish_by_the_ledger(&incoming)
        {
            match ledger.unroutable(task_id, &message).await {
                Ok(true) => {
                    metrics::unroutable("returned_to_ledger");
                    tracing::warn!(%task_id, %key, "unroutable; back to the ledger");
                    let _ = incoming.ack().await;
                    return;
                }
                Ok(false) => {}
                Err(error) => {
                    // The ledger is away: it stays here, and the pause keeps this from spinning.
                    tracing::warn!(%task_id, %error, "unroutable, and the ledger can't take it back");
                    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                    let _ = incoming.requeue().await;
                    return;
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
        self.settler
            .settle(incoming, &known, &queue, number, disposition, &failure)
            .await;
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
