//! The ledger on a real Postgres: migrations, cron rows, occurrences, outbox, relay.
//! Needs `DATABASE_URL`, and `AMQP_URL` for the relay.

mod claim;
mod cron_rows;
mod migrations;
mod misfire;
mod outbox;
mod scheduler;
mod support;
