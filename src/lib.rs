//! Tidegate: a task platform on RabbitMQ and Postgres with one set of task semantics for every language.
//!
//! This library is what the `tidegate` binary is made of, and what a Rust service uses to publish tasks
//! (`publish`) and to run them (`worker`). `ARCHITECTURE.md` has the map.
//!
//! Features: `publish`, `worker`, `ledger` (a worker with the ledger in Postgres) and `server` (everything, and the
//! default). A service names what it takes with `default-features = false`; `docs/worker.md` says what each brings.

#[cfg(feature = "server")]
pub mod api;
#[cfg(feature = "worker")]
mod batcher;
#[cfg(feature = "server")]
pub mod bench;
#[cfg(feature = "publish")]
pub mod broker;
#[cfg(feature = "server")]
pub mod cli;
#[cfg(feature = "server")]
pub mod config;
#[cfg(feature = "server")]
pub mod contract;
#[cfg(feature = "server")]
pub mod deadletter;
#[cfg(feature = "server")]
pub mod doctor;
#[cfg(feature = "ledger")]
pub mod ledger;
#[cfg(feature = "publish")]
pub mod publish;
#[cfg(feature = "server")]
pub mod router;
#[cfg(feature = "server")]
pub mod scheduler;
#[cfg(feature = "ledger")]
pub mod store;
#[cfg(feature = "publish")]
pub mod supervisor;
#[cfg(feature = "publish")]
pub mod telemetry;
#[cfg(feature = "publish")]
pub mod topology;
#[cfg(feature = "worker")]
pub mod worker;

pub use tidegate_core as core;

/// Compiles the examples of `docs/worker.md`.
#[cfg(all(doctest, feature = "worker"))]
#[doc = include_str!("../docs/worker.md")]
pub struct WorkerGuide;
