//! The ledger on a real Postgres: migrations, cron rows, occurrences, outbox, relay.
//! The services come from the environment, as `./dev test` sets it.

// Helpers of tests fail as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

mod broker;
mod claim;
mod cron_rows;
mod life;
mod life_cost;
mod migrations;
mod misfire;
mod outbox;
mod relay;
mod retention;
mod scheduler;
mod support;
