//! The topology's own proofs, without a broker: files, rendering, routing, and the broker's words.

mod conflict;
mod files;
mod objects;
mod routing;
