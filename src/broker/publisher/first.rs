//! The first message of a session to an exchange, on a channel of its own.
//!
//! The broker answers a publish to an exchange that is missing, or that the user may not write to, by closing the
//! channel, and with it everybody else's confirms. So the first message to each exchange goes over a channel that
//! nobody shares; what becomes of it says whether the next ones may use the session's.

use std::{future::Future, pin::Pin, time::Duration};

use futures::FutureExt;
use lapin::{
    Channel, Confirmation, ErrorKind,
    message::BasicReturnMessage,
    options::{BasicPublishOptions, ConfirmSelectOptions},
    protocol::{AMQPErrorKind, AMQPSoftError},
};
use tokio::time::{timeout, timeout_at};

use super::{PublishOutcome, Request, key::MessageKey};

/// Longest wait for the channel to be closed in order.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);

/// What the first message to an exchange showed.
pub(super) enum Verdict {
    /// It takes messages from this user.
    Open,
    /// It refuses this user's messages, or is not there; this is what everybody is told who wanted to write to it.
    Shut(PublishOutcome),
    /// Nothing: no answer in time.
    Unknown,
}

/// The exchange and the verdict.
pub(super) type First = Pin<Box<dyn Future<Output = (String, Verdict)> + Send>>;

/// Sends `request` over `channel`, which is its own, and answers it.
pub(super) fn send(channel: Channel, key: MessageKey, request: Request) -> First {
    async move {
        let Request {
            message,
            deadline,
            reply,
        } = request;
        let published = async {
            channel.confirm_select(ConfirmSelectOptions::default()).await?;
            let options = BasicPublishOptions {
                mandatory: true,
                ..BasicPublishOptions::default()
            };
            channel
                .basic_publish(
                    key.exchange,
                    key.routing_key,
                    options,
                    &message.body,
                    message.properties,
                )
                .await?
                .await
        };
        let (outcome, verdict) = match timeout_at(deadline, published).await {
            Ok(Ok(confirmation)) => (confirmed(confirmation), Verdict::Open),
            Ok(Err(error)) => match refusal(&error) {
                Some(outcome) => (outcome.clone(), Verdict::Shut(outcome)),
                None => (unknown(&error.to_string()), Verdict::Unknown),
            },
            Err(_) => (unknown("no confirm in time"), Verdict::Unknown),
        };
        let _ = reply.send(outcome);
        if channel.status().connected() {
            let _ = timeout(CLOSE_LIMIT, channel.close(200, "done".into())).await;
        }
        (message.exchange, verdict)
    }
    .boxed()
}

fn unknown(why: &str) -> PublishOutcome {
    PublishOutcome::TimedOut { why: why.to_owned() }
}

/// It is the only message of its channel: what was returned is this one.
fn confirmed(confirmation: Confirmation) -> PublishOutcome {
    let returned = |message: BasicReturnMessage| PublishOutcome::Returned {
        code: message.reply_code,
        text: message.reply_text.to_string(),
    };
    match confirmation {
        Confirmation::Ack(None) => PublishOutcome::Confirmed,
        Confirmation::Nack(None) => PublishOutcome::Nacked,
        Confirmation::Ack(Some(message)) | Confirmation::Nack(Some(message)) => returned(message),
        Confirmation::NotRequested => unknown("the channel is not in confirm mode"),
    }
}

/// What everybody is told, if the broker closed the channel over the exchange.
fn refusal(error: &lapin::Error) -> Option<PublishOutcome> {
    let ErrorKind::ProtocolError(closed) = error.kind() else {
        return None;
    };
    match closed.kind() {
        AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND) => Some(PublishOutcome::NoExchange),
        AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED) => Some(PublishOutcome::Forbidden {
            why: closed.get_message().to_string(),
        }),
        _ => None,
    }
}
