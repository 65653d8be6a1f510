//! Tidegate: a task platform on RabbitMQ and Postgres with one set of task semantics for every language.
//!
//! This library is what the `tidegate` binary is made of, and what a Rust service uses to publish tasks
//! ([`publish`]) and to run them ([`worker`]). `ARCHITECTURE.md` has the map.

pub mod api;
pub mod broker;
pub mod cli;
pub mod config;
pub mod ledger;
pub mod publish;
pub mod router;
pub mod scheduler;
pub mod store;
pub mod supervisor;
pub mod telemetry;
pub mod topology;
pub mod worker;

pub use tidegate_core as core;
