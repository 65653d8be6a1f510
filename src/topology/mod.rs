//! What must exist on the broker, as data: files → model → objects.
//!
//! A directory holds `platform.toml` and one file per team. [`Topology::load`] reads it and reports everything
//! wrong with it at once, [`Topology::objects`] says which exchanges, queues, bindings and policies follow, and
//! `broker::declare` performs that. Publishing and consuming ask the same model where a key leads.
//!
//! May import: `core`. Knows no lapin and no broker: everything here but reading the files is pure.

#[cfg(feature = "server")]
mod conflict;
#[cfg(feature = "server")]
mod display;
mod errors;
#[cfg(feature = "server")]
pub mod export;
mod files;
#[cfg(feature = "server")]
mod ladder;
#[cfg(feature = "server")]
pub mod live;
#[cfg(feature = "server")]
pub mod migration;
mod model;
#[cfg(feature = "server")]
mod objects;
mod overlap;
#[cfg(feature = "server")]
pub mod plan;
#[cfg(feature = "server")]
mod policies;
mod reader;
mod resolve;
mod task_type;
mod type_reader;
#[cfg(feature = "server")]
pub mod verify;

#[cfg(feature = "server")]
pub use conflict::{Conflict, Setting};
#[cfg(feature = "server")]
pub use display::counted;
pub use errors::{FileError, FileWarning, Place, TopologyErrors};
pub use model::{BusinessQueue, FixedDelay, Lane, Topology};
#[cfg(feature = "server")]
pub use objects::{
    Binding, Exchange, ExchangeKind, Object, ObjectKind, ObjectName, Objects, Policy, Queue, Value,
};
pub use task_type::{Idempotency, KeyRule, MOST_QUICK_RETRIES, Rate, RetryChange, TaskTypePolicy};

#[cfg(test)]
mod tests;
