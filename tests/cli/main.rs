//! The real binary from outside: arguments, exit codes, output, secrets.

#![allow(clippy::unwrap_used, reason = "a test whose set-up fails has failed")]

mod export;
mod offline;
mod run;
mod secrets;
mod serve;
mod services;
mod task;
mod topology;
mod verify;
