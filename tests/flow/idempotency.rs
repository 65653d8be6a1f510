//! One idempotency key runs to success once, whatever happens to whoever runs it.

mod attempts;
mod away;
mod batches;
mod database;
mod duplicates;
mod panics;
mod processes;
mod stage;
