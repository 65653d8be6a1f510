//! What the process shows of itself: metrics, health, logs.
//!
//! May import: `core`. Nothing here knows a broker or a database.

pub mod catalogue;
#[cfg(test)]
pub(crate) mod docs;
pub mod exporter;
pub mod health;
pub mod logs;
pub mod metrics;
