//! What the process shows of itself: metrics, health, logs.
//!
//! May import: `core`. Nothing here knows a broker or a database.

pub mod health;
pub mod metrics;
