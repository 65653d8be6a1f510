//! The real binary from outside: arguments, exit codes, output, secrets.

mod offline;
mod run;
mod secrets;
mod serve;
mod services;
