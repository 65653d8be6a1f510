//! The shop: its database, its handlers, and the worker that runs them.
//!
//! Imports `journal` and `narrator` of the example, `tidegate::worker` and tower. Each file beside this one is one
//! service's handlers; a handler is an async function of what it needs, such as the shop and the payload, to
//! `Result<(), TaskError>`, and what it returns is all that Tidegate asks of it.

mod journaled;
pub(crate) mod members;
pub(crate) mod orders;
pub(crate) mod reports;

use std::sync::Arc;

use sqlx::PgPool;
use tidegate::{
    broker::BrokerSettings,
    topology::Topology,
    worker::{BuildError, Worker},
};

use self::journaled::Journaled;
use crate::{journal::Journal, narrator::Narrator};

/// What every handler of the shop shares; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Shop {
    pub(crate) pool: PgPool,
    pub(crate) journal: Journal,
    pub(crate) narrator: Narrator,
}

impl Shop {
    /// Makes the shop's tables and first rows.
    pub(crate) async fn open(&self) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(include_str!("shop.sql"))
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// The worker: which queues it serves, and which function handles which task type.
    ///
    /// `notify.push.queue` is not among them: a Python program without any SDK serves that one.
    pub(crate) fn worker(
        &self,
        broker: BrokerSettings,
        topology: Arc<Topology>,
    ) -> Result<Worker, BuildError> {
        Worker::builder(broker, topology)
            .state(self.clone())
            .queue("order.close.queue")
            .queue("member.points.queue")
            .queue("marketing.recall.queue")
            .queue("report.generate.queue")
            .handle("order.close.timeout", orders::close)
            .handle("order.close_timeout", orders::close) // an older producer's spelling
            .handle("member.points.add", members::add_points)
            .handle("marketing.recall.push", members::recall)
            .handle("report.generate.daily", reports::build)
            .layer(Journaled(self.journal.clone()))
            .concurrency(8)
            .build()
    }
}
