//! The consumer runtime: handlers are functions from a payload to an outcome; the runtime owns what goes wrong
//! around them.
//!
//! May import: `core`, `topology`, `broker`, `publish`, `telemetry`. It knows no database: a handler brings its own,
//! and the ledger is reached by a trait, [`ledger::Ledger`].
//!
//! ```no_run
//! use std::sync::Arc;
//! use tidegate::{broker::BrokerSettings, topology::Topology, worker::{TaskError, Worker, extract::Payload}};
//!
//! #[derive(serde::Deserialize)]
//! #[serde(rename_all = "camelCase")]
//! struct CloseOrder { order_id: String }
//!
//! async fn close(Payload(order): Payload<CloseOrder>) -> Result<(), TaskError> {
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

mod admission;
mod blocking;
mod build_error;
mod builder;
mod claim;
mod delivery;
pub mod extract;
mod feeds;
mod handled;
mod handler;
mod idempotency;
mod isolation;
pub mod ledger;
mod life;
mod place;
mod prefetch;
mod queue;
mod repeats;
mod request;
mod run;
mod service;
mod suspicion;
mod task_error;
mod timeouts;

pub use blocking::Fence;
pub use build_error::BuildError;
pub use builder::WorkerBuilder;
pub use handler::{Handler, IntoOutcome, Running};
pub use life::Worker;
pub use request::{Context, Extensions, TaskRequest};
pub use service::TaskService;
pub use task_error::{BoxError, TaskError};
