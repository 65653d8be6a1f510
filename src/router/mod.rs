//! Gives every client in every language the same failure policy: what business queues dead-letter is retried or
//! dead-lettered by the same decision as in our own worker, what comes through the ingress is delayed, and what
//! no binding took is made visible.
//!
//! May import: `core`, `batcher`, `broker`, `publish`, `supervisor`, `telemetry`; the ledger only by the
//! trait [`Ledger`]. Any number of routers may run: each message is taken by one, published, confirmed, and only
//! then acknowledged.

mod failed;
mod ingress;
mod pump;
mod reports;
mod unrouted;

use std::sync::Arc;

use async_trait::async_trait;
pub use reports::Ended;
use tidegate_core::{dispose::Disposition, envelope::Limits, names::Names};
use tokio_util::sync::CancellationToken;

pub use crate::batcher::LedgerError;
use crate::{
    broker::{connection::Link, consumer::Incoming},
    publish::{
        TaskPublisher,
        resend::{Failure, Known},
        settle::{Settler, acknowledge},
    },
    telemetry::health::Health,
};

/// What the router asks of the ledger, where there is one.
#[async_trait]
pub trait Ledger: Send + Sync {
    /// Takes a task back that the broker could not route, to be published again later. `false`: the ledger does
    /// not hold it in a state to take back.
    async fn unroutable(&self, task_id: &str, why: &str) -> Result<bool, String>;

    /// Writes down what became of tasks at consumers that report nothing. Answers in their order: `false` says to tell it
    /// again later. An empty call asks only whether the ledger is there.
    async fn ended(&self, ended: &[Ended]) -> Result<Vec<bool>, LedgerError>;
}

/// What the three routes share.
#[derive(Clone)]
pub struct Router {
    link: Link,
    settler: Settler,
    limits: Limits,
    ledger: Option<Arc<dyn Ledger>>,
}

/// One run of the routes.
struct Routes<'r> {
    router: &'r Router,
    reports: reports::Desk,
}

impl std::fmt::Debug for Router {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Router")
            .field("ledger", &self.ledger.is_some())
            .finish_non_exhaustive()
    }
}

impl Router {
    /// A router that consumes by `link` and publishes by `publisher`.
    pub fn new(
        link: Link,
        publisher: TaskPublisher,
        limits: Limits,
        ledger: Option<Arc<dyn Ledger>>,
    ) -> Self {
        Self {
            link,
            settler: Settler::new(publisher, "router"),
            limits,
            ledger,
        }
    }

    /// Runs all three routes until `cancel`.
    pub async fn run(&self, health: Health, cancel: CancellationToken) {
        let names = &self.settler.publisher().topology().names;
        let pump = |exchange: String| pump::Pump {
            link: self.link.clone(),
            queue: Names::queue_of(&exchange),
            health: health.clone(),
            cancel: cancel.clone(),
        };
        let (reports, telling) = reports::desk(self.ledger.as_ref(), &health);
        let routes = Routes {
            router: self,
            reports,
        };
        let routed = async move {
            let routes = &routes;
            tokio::join!(
                pump(names.failed()).run(|incoming| routes.failed(incoming)),
                pump(names.ingress()).run(|incoming| routes.ingress(incoming)),
                pump(names.unrouted()).run(|incoming| routes.unrouted(incoming)),
            );
        };
        tokio::join!(routed, telling.run(cancel.clone()));
    }
}

impl Routes<'_> {
    /// Publishes what `disposition` asks for, leaves word of it for the ledger, and acknowledges.
    async fn settle(
        &self,
        incoming: Incoming,
        known: &Known,
        queue: &str,
        attempt: u32,
        disposition: Disposition,
        failure: &Failure,
    ) {
        let settler = &self.router.settler;
        let published = settler
            .publish(&incoming, known, queue, attempt, disposition, failure)
            .await;
        if published {
            self.reports
                .settled(&incoming, known, queue, disposition, failure);
        }
        // Stale means that the broker delivers it again.
        acknowledge(incoming, published);
    }
}
