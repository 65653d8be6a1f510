//! The shop: its database, its handlers, and the worker that runs them.
//!
//! Imports `journal` and `narrator` of the example and `tidegate::worker`. Each file beside this one is one service's
//! handlers; a handler is an async function from a context and a payload to `Result<(), TaskError>`, and what it
//! returns is all that Tidegate asks of it.

pub(crate) mod members;
pub(crate) mod orders;
pub(crate) mod reports;

use std::sync::Arc;

use chrono::Utc;
use serde::de::DeserializeOwned;
use sqlx::PgPool;
use tidegate::{
    broker::BrokerSettings,
    topology::Topology,
    worker::{BuildError, Context, TaskError, Worker},
};

use crate::{
    journal::{Ended, Journal, Run},
    narrator::Narrator,
};

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
            .queue("order.close.queue")
            .queue("member.points.queue")
            .queue("marketing.recall.queue")
            .queue("report.generate.queue")
            .handle("order.close.timeout", self.on(orders::close))
            .handle("order.close_timeout", self.on(orders::close)) // an older producer's spelling
            .handle("member.points.add", self.on(members::add_points))
            .handle("marketing.recall.push", self.on(members::recall))
            .handle("report.generate.daily", self.on(reports::build))
            .concurrency(8)
            .build()
    }

    /// `handler` with the shop handed in, and its runs written to the journal that the table at the end is made of.
    /// Outside a demonstration a handler is passed to `handle` as it is, or in a closure with what it needs.
    fn on<P, F, Fut>(
        &self,
        handler: F,
    ) -> impl Fn(Context, P) -> futures::future::BoxFuture<'static, Result<(), TaskError>>
    + Send
    + Sync
    + use<P, F, Fut>
    where
        P: DeserializeOwned + Send + 'static,
        F: Fn(Shop, Context, P) -> Fut + Copy + Send + Sync + 'static,
        Fut: Future<Output = Result<(), TaskError>> + Send + 'static,
    {
        let shop = self.clone();
        move |context, payload| {
            let (shop, started) = (shop.clone(), Utc::now());
            Box::pin(async move {
                let key = context.envelope.task_id.to_string();
                let attempt = context.attempt;
                let result = handler(shop.clone(), context, payload).await;
                let ended = match &result {
                    Ok(()) => Ended::Done,
                    // Nothing here is cancelled while it runs.
                    Err(TaskError::Retry { .. } | TaskError::Canceled) => Ended::Failed,
                    Err(TaskError::Reject { .. }) => Ended::Rejected,
                };
                shop.journal.ran(Run {
                    key,
                    attempt,
                    started,
                    ended,
                });
                result
            })
        }
    }
}
