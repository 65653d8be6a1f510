//! Tasks from publish to outcome, through the real broker: worker, ladder, router, dead letters.
//!
//! `TIDEGATE_LONG=1` also runs what waits for a minute or more: limits of the broker that can't be shorter.

// A test whose set-up fails has failed; its futures are few and may be large.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::large_futures)]

mod acknowledgement;
mod admission;
mod archive;
mod consumer_timeout;
mod crashes;
mod crashing_worker;
mod delays;
mod destination_gone;
mod handlers;
mod idempotency;
mod ledger_worker;
mod outcomes;
mod plain_clients;
mod platform;
mod poison;
mod prefetch;
mod raw_amqp;
mod recovery;
mod router;
mod samples;
mod shutdown;
mod silence;
mod sql_producers;

/// Whether the long runs were asked for.
fn is_long() -> bool {
    std::env::var_os("TIDEGATE_LONG").is_some()
}
