//! What Tidegate's tests share: a vhost and a database each, private services to kill, polls with deadlines.
//!
//! Services are real and come from the environment (`AMQP_URL`, `DATABASE_URL`, `MANAGEMENT_URL`), which
//! `./dev test` sets. A missing service fails the test.

#![allow(
    clippy::expect_used,
    reason = "whatever fails here fails the test that uses it"
)]

mod clock;
mod database;
mod eventually;
pub mod figures;
mod management;
pub mod plain;
mod private;
mod process;
mod proxy;
mod python;
mod replica;
mod report;
mod services;
mod sweep;
mod tls;
mod vhost;

pub use clock::set_clock;
pub use database::Database;
pub use eventually::{Poll, eventually};
pub use management::{Management, Message, Queue};
pub use private::{PrivateCluster, PrivateServices};
pub use process::{Process, cpu};
pub use proxy::Proxy;
pub use python::python;
pub use replica::Replica;
pub use report::report;
pub use services::{Services, services};
pub use tls::TlsProxy;
pub use vhost::Vhost;
