//! Whether a queue exists.
//!
//! May import: `broker`, lapin. A confirm doesn't tell: what the ladder's end or `task.exchange` can't route is kept as
//! unrouted, and confirmed. So whoever must not send into nothing looks first.

use std::time::Duration;

use lapin::{
    ErrorKind,
    options::QueueDeclareOptions,
    protocol::{AMQPErrorKind, AMQPSoftError},
    types::FieldTable,
};

use super::{
    connection::{Link, LinkError, within},
    message::short,
};

/// Longest wait for the answer.
const ANSWER: Duration = Duration::from_secs(10);

/// Whether `queue` exists. One that this user may not look at counts as existing.
///
/// # Errors
/// The broker didn't say.
pub async fn queue_exists(link: &Link, queue: &str) -> Result<bool, LinkError> {
    let Some(name) = short(queue) else {
        return Ok(false);
    };
    let channel = link.channel().await?;
    let options = QueueDeclareOptions {
        passive: true,
        ..QueueDeclareOptions::default()
    };
    let looked = within(
        ANSWER,
        channel.queue_declare(name, options, FieldTable::default()),
    )
    .await;
    match looked {
        Ok(_) => {
            // It goes with its connection otherwise.
            let _ = within(ANSWER, channel.close(200, "looked".into())).await;
            Ok(true)
        }
        // The refusal has closed the channel.
        Err(LinkError::Broker(error)) => match error.kind() {
            ErrorKind::ProtocolError(refusal) => match refusal.kind() {
                AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND) => Ok(false),
                AMQPErrorKind::Soft(_) => Ok(true),
                AMQPErrorKind::Hard(_) => Err(error.into()),
            },
            _ => Err(error.into()),
        },
        Err(error) => Err(error),
    }
}
