//! Migrations on the real broker, under load and killed: by id none lost, none doubled.

// A test whose set-up fails has failed; its futures are few and may be large.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::large_futures)]

mod away;
mod every_step;
mod ladder;
mod load;
mod no_consumers;
mod origin;
mod plain_consumer;
mod platform;
mod retreat;
