//! The ledger on a real Postgres: migrations, cron rows, occurrences, outbox, relay.
//! The services come from the environment, as `./dev test` sets it.

// Helpers of tests fail as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

mod accounts;
mod broker;
mod calendar;
mod cancel;
mod cancel_races;
mod claim;
mod clocks;
mod cron_admin;
mod cron_rows;
mod dead_letter_days;
mod dead_letter_filter;
mod dead_letters;
mod dead_letters_cost;
mod dead_letters_discard;
mod dead_letters_export;
mod dead_letters_look;
mod digests;
mod edits;
mod enqueue;
mod enqueue_keys;
mod executions;
mod frozen;
mod guards;
mod isolation;
mod letters;
mod life;
mod life_cost;
mod migrations;
mod misfire;
mod outage;
mod outbox;
mod plans_cron;
mod plans_dead_letters;
mod plans_executions;
mod plans_tasks;
mod poison_rows;
mod relay;
mod replays;
mod retention;
mod scheduler;
mod support;
mod tasks_list;
mod unwritten;
