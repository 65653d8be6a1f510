//! Gives every client in every language the same failure policy: what business queues dead-letter is retried or
//! dead-lettered by the same decision as in our own worker, what comes through the ingress is delayed, and what
//! no binding took is made visible.
//!
//! May import: `core`, `broker`, `publish`, `supervisor`, `telemetry`; the ledger only by the
//! trait [`Ledger`]. Any number of routers may run: each message is taken by one, published, confirmed, and only
//! then acknowledged.

mod failed;
mod ingress;
mod pump;
mod unrouted;

use std::sync::Arc;

use async_trait::async_trait;
use tidegate_core::{envelope::Limits, names::Names};
use tokio_util::sync::CancellationToken;

use crate::{
    broker::connection::Link,
    publish::{TaskPublisher, settle::Settler},
    telemetry::health::Health,
};

/// What the router asks of the ledger, where there is one.
#[async_trait]
pub trait Ledger: Send + Sync {
    /// Takes a task back that the broker could not route, to be published again later. `false`: the ledger does
    /// not hold it in a state to take back.
    async fn unroutable(&self, task_id: &str, why: &str) -> Result<bool, String>;
}

/// What the three routes share.
#[derive(Clone)]
pub struct Router {
    link: Link,
    settler: Settler,
    limits: Limits,
    ledger: Option<Arc<dyn Ledger>>,
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
        tokio::join!(
            pump(names.failed()).run(|incoming| self.failed(incoming)),
            pump(names.ingress()).run(|incoming| self.ingress(incoming)),
            pump(names.unrouted()).run(|incoming| self.unrouted(incoming)),
        );
    }
}
