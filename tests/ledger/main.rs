//! The ledger on a real Postgres: migrations, cron rows, occurrences, outbox, relay.
//! The services come from the environment, as `./dev test` sets it.

mod broker;
mod claim;
mod cron_rows;
mod migrations;
mod misfire;
mod outbox;
mod relay;
mod scheduler;
mod support;
