//! The consumer runtime: handlers are functions from a payload to an outcome; the runtime owns what goes wrong
//! around them.
//!
//! May import: `core`, `topology`, `broker`, `publish`, `telemetry`. It knows no database: a handler brings its own,
//! and the ledger is reached by a trait, [`ledger::Ledger`].
//!
//! ```no_run
//! use std::sync::Arc;
//! use tidegate::{broker::BrokerSettings, topology::Topology, worker::{Context, TaskError, Worker}};
//!
//! #[derive(serde::Deserialize)]
//! #[serde(rename_all = "camelCase")]
//! struct CloseOrder { order_id: String }
//!
//! async fn close(_ctx: Context, order: CloseOrder) -> Result<(), TaskError> {
//!     if order.order_id.is_empty() {
//!         return Err(TaskError::reject("bad_order", "no order id"));
//!     }
//!     Ok(())
//! }
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let settings = BrokerSettings::new("amqp://localhost".into());
//! let topology = Arc::new(Topology::load("topology".as_ref())?);
//! Worker::builder(settings, topology)
//!     .queue("order.close.queue")
//!     .handle("order.close.timeout", close)
//!     .build()?
//!     .run_until_signal()
//!     .await;
//! # Ok(()) }
//! ```

mod attempt;
mod builder;
mod handler;
pub mod ledger;
mod queue;

pub use builder::{BuildError, Worker, WorkerBuilder};
pub use handler::{Context, TaskError};
