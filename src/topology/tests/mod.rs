//! The topology's own proofs, without a broker: files, rendering, routing, and the broker's words.

mod conflict;
mod export;
mod files;
mod generations;
mod lengths;
mod migration;
mod missing;
mod objects;
mod overlap;
mod plan;
mod routing;
mod timeouts;
mod types;
