//! What the process shows of itself: metrics, health, logs.
//!
//! May import: `core`. Nothing here knows a broker or a database.

pub mod catalogue;
pub mod dead_letters;
#[cfg(test)]
pub(crate) mod docs;
#[cfg(feature = "server")]
pub mod exporter;
pub mod health;
#[cfg(feature = "server")]
pub mod logs;
pub mod metrics;
#[cfg(feature = "server")]
pub mod scrape;
pub mod successes;
