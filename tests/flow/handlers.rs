//! Handlers by extractors and what goes around them, on a real broker.

mod blocking;
mod extractors;
mod failures;
mod layers;
mod quick;
mod timeouts;
