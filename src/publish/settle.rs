//! Makes a decision durable: publish, wait for the confirm, acknowledge. In that order, always.
//!
//! Worker and router share it. If the process dies after the confirm and before the acknowledgement, the broker
//! delivers the original again: a duplicate with the same id, never a loss. If nothing can be published, the
//! message goes back to its queue.

use std::time::Duration;

use tidegate_core::dispose::Disposition;
use tokio::time::Instant;

use super::{
    SendError, TaskPublisher,
    resend::{Failure, Known},
};
use crate::{broker::consumer::Incoming, supervisor::backoff, telemetry::metrics};

/// How long to go on trying to publish before the message is put back on its queue.
const PATIENCE: Duration = Duration::from_secs(60);

/// Pause before a message goes back that can't be published at all.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// As decided: published where it had to be, and its acknowledgement is on its way.
    AsDecided,
    /// It could not be published or acknowledged: the broker delivers it again.
    Redelivered,
}

/// Carries out dispositions for one role.
#[derive(Clone, Debug)]
pub struct Settler {
    publisher: TaskPublisher,
    role: &'static str,
}

impl Settler {
    /// A settler that publishes by `publisher`; `role` labels its metrics.
    pub fn new(publisher: TaskPublisher, role: &'static str) -> Self {
        Self { publisher, role }
    }

    /// The task publisher it uses.
    pub fn publisher(&self) -> &TaskPublisher {
        &self.publisher
    }

    /// Carries out `disposition` for attempt `attempt` of `incoming` in `queue`.
    pub async fn settle(
        &self,
        incoming: Incoming,
        known: &Known,
        queue: &str,
        attempt: u32,
        disposition: Disposition,
        failure: &Failure,
    ) -> Settled {
        let published = self
            .publish(&incoming, known, queue, attempt, disposition, failure)
            .await;
        acknowledge(incoming, published)
    }

    /// The first half of [`settle`](Self::settle), for a caller that has something to write down before
    /// [`acknowledge`]: publishes what `disposition` asks for. Returns whether that is confirmed.
    pub async fn publish(
        &self,
        incoming: &Incoming,
        known: &Known,
        queue: &str,
        attempt: u32,
        disposition: Disposition,
        failure: &Failure,
    ) -> bool {
        if disposition == Disposition::Ack {
            return true;
        }
        // Boxed, so that a success doesn't carry the room for a failure about.
        Box::pin(self.publish_what_failed(incoming, known, queue, attempt, disposition, failure)).await
    }

    async fn publish_what_failed(
        &self,
        incoming: &Incoming,
        known: &Known,
        queue: &str,
        attempt: u32,
        disposition: Disposition,
        failure: &Failure,
    ) -> bool {
        let task_type = known.task_type.as_deref();
        let publisher = &self.publisher;
        match disposition {
            Disposition::Ack => true,
            Disposition::Retry { delay } => {
                let next = attempt.saturating_add(1);
                let sent = self
                    .persist(|| publisher.retry(incoming, known, queue, delay, next, failure))
                    .await;
                if sent {
                    metrics::retried(task_type, self.role);
                }
                sent
            }
            Disposition::Dead { reason } => {
                // Made here, so that a publish repeated after a lost confirm names the same death.
                let id = uuid::Uuid::now_v7();
                let sent = self
                    .persist(|| publisher.dead(incoming, known, reason, failure, id))
                    .await;
                if sent {
                    metrics::dead_lettered(task_type, reason.as_str(), self.role);
                    tracing::warn!(
                        task_id = known.task_id.as_deref(), task_type, queue, attempt,
                        reason = reason.as_str(), error_kind = %failure.kind, "dead letter"
                    );
                }
                sent
            }
            Disposition::PutOff { delay } => {
                self.persist(|| publisher.defer(incoming, known, queue, delay))
                    .await
            }
            Disposition::GiveBack => self.persist(|| publisher.give_back(incoming, known, queue)).await,
        }
    }

    /// Sends `incoming`, which came before its time, back to `queue` after `delay`, as the same attempt.
    pub async fn defer(&self, incoming: Incoming, known: &Known, queue: &str, delay: Duration) -> Settled {
        let sent = self
            .persist(|| self.publisher.defer(&incoming, known, queue, delay))
            .await;
        acknowledge(incoming, sent)
    }

    /// Sends `incoming` on from the ingress to its own routing key after `delay`.
    pub async fn forward(&self, incoming: Incoming, known: &Known, priority: u8, delay: Duration) -> Settled {
        let sent = self
            .persist(|| self.publisher.forward(&incoming, known, priority, delay))
            .await;
        acknowledge(incoming, sent)
    }

    /// Publishes until it is confirmed or patience ends. Sending again after an unknown outcome can duplicate.
    async fn persist<F, Fut>(&self, send: F) -> bool
    where
        F: Fn() -> Fut,
        Fut: Future<Output = Result<(), SendError>>,
    {
        let started = Instant::now();
        let mut waits = backoff();
        loop {
            let error = match send().await {
                Ok(()) => return true,
                Err(error) => error,
            };
            let hopeless = matches!(error, SendError::Refused(_) | SendError::Invalid(_));
            tracing::warn!(role = self.role, %error, "could not publish; the message stays with the broker");
            // What never can be published goes back too, but not in a loop that spins.
            let pause = if hopeless {
                LONGEST_PAUSE
            } else {
                waits.next().unwrap_or_default()
            };
            tokio::time::sleep(pause).await;
            if hopeless || started.elapsed() > PATIENCE {
                return false;
            }
        }
    }
}

/// Acknowledges what is `published`, and puts back what could not be.
pub fn acknowledge(incoming: Incoming, published: bool) -> Settled {
    let settled = if published {
        incoming.ack()
    } else {
        incoming.requeue()
    };
    match (settled, published) {
        (Ok(()), true) => Settled::AsDecided,
        (Ok(()), false) | (Err(_), _) => Settled::Redelivered,
    }
}
