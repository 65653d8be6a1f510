//! The AMQP adapter against a real broker.

mod declare;
