//! What must exist on the broker, as data: files → model → objects.
//!
//! A directory holds `platform.toml` and one file per team. [`Topology::load`] reads it and reports everything
//! wrong with it at once, [`Topology::objects`] says which exchanges, queues, bindings and policies follow, and
//! `broker::declare` performs that. Publishing and consuming ask the same model where a key leads.
//!
//! May import: `core`. Knows no lapin and no broker: everything here but reading the files is pure.

mod conflict;
mod display;
mod errors;
pub mod export;
mod files;
mod ladder;
pub mod live;
pub mod migration;
mod model;
mod objects;
mod overlap;
pub mod plan;
mod policies;
mod reader;
mod resolve;
pub mod verify;

pub use conflict::{Conflict, Setting};
pub use display::counted;
pub use errors::{FileError, FileWarning, Place, TopologyErrors};
pub use model::{BusinessQueue, FixedDelay, Lane, Topology};
pub use objects::{
    Binding, Exchange, ExchangeKind, Object, ObjectKind, ObjectName, Objects, Policy, Queue, Value,
};

#[cfg(test)]
mod tests;
