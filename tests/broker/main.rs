//! The AMQP adapter against a real broker.

// A failed expectation here is a failed test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod consumer;
mod declare;
mod export;
mod management;
mod permissions;
mod publisher;
mod verify;
