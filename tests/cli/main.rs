//! The real binary from outside: arguments, exit codes, output, secrets.

#![allow(clippy::unwrap_used, reason = "a test whose set-up fails has failed")]

mod bench;
mod capacity;
mod contract;
mod contract_git;
mod contract_made;
mod cron;
mod cron_refusals;
mod crontab;
mod digest;
mod dlq;
mod dlq_replay;
mod doctor;
mod export;
mod ledger;
mod offline;
mod run;
mod secrets;
mod serve;
mod services;
mod slow_management;
mod task;
mod topology;
mod verify;
