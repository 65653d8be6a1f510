//! What Tidegate's tests share: a vhost and a database each, private services to kill, polls with deadlines.
//!
//! Services are real and come from the environment (`AMQP_URL`, `DATABASE_URL`, `MANAGEMENT_URL`), which
//! `./dev test` sets. A missing service fails the test.

mod database;
mod eventually;
mod management;
mod services;
mod vhost;

pub use database::Database;
pub use eventually::{Poll, eventually};
pub use management::{Management, Queue};
pub use services::{Services, services};
pub use vhost::Vhost;
