//! Processes die: worker, server, broker and database are killed and come back, and everything is counted.
//!
//! The programs are the real ones: `tidegate serve` and a worker, as processes that are ended by `kill -9`. Services that are
//! killed are private to their test. Each report goes to stderr, and with it the seed that repeats the run.
//!
//! `TIDEGATE_SEED` repeats a run; `TIDEGATE_LONG=1` runs the two schedulers for two minutes, restarts the broker five times
//! under a running task, tortures for ten minutes (`./dev torture`) and soaks for as long (`./dev soak`), and lets 20,000 tasks
//! fail into the archive.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "whatever fails here fails the test that uses it"
)]

mod accounts;
mod archive;
mod blocked;
mod broker_restart;
mod chaos;
mod claimed_then_killed;
mod cluster;
mod consumer;
mod installation;
mod journal;
mod killed_relay;
mod killer;
mod late_services;
mod load;
mod outage;
mod producers;
mod schedules;
mod server;
mod soak;
mod torture;
mod turns;
mod two_schedulers;
mod worker;

/// The seed of this run: given, or new.
fn seed() -> u64 {
    match std::env::var("TIDEGATE_SEED") {
        Ok(seed) => seed.parse().expect("TIDEGATE_SEED is a number"),
        Err(_) => rand::random::<u32>().into(),
    }
}

/// Whether the long runs were asked for.
fn is_long() -> bool {
    std::env::var_os("TIDEGATE_LONG").is_some()
}
