//! The ledger on a real Postgres: migrations, cron rows, occurrences, outbox, relay.
//! The services come from the environment, as `./dev test` sets it.

// Helpers of tests fail as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

mod broker;
mod claim;
mod cron_rows;
mod migrations;
mod misfire;
mod outage;
mod outbox;
mod relay;
mod scheduler;
mod support;
