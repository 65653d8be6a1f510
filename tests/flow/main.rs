//! Tasks from publish to outcome, through the real broker: worker, ladder, router, dead letters.

mod delays;
mod outcomes;
mod platform;
mod poison;
mod raw_amqp;
mod recovery;
mod router;
mod samples;
mod shutdown;
