//! Tasks from publish to outcome, through the real broker: worker, ladder, router, dead letters.

// A test whose set-up fails has failed; its futures are few and may be large.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::large_futures)]

mod delays;
mod destination_gone;
mod ledger_worker;
mod outcomes;
mod platform;
mod poison;
mod raw_amqp;
mod recovery;
mod router;
mod samples;
mod shutdown;
mod sql_producers;
