//! The AMQP adapter against a real broker.

// A failed expectation here is a failed test.
#![allow(clippy::expect_used)]

mod declare;
mod publisher;
