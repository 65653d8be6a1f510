//! What a returned message is recognised by.
//!
//! May import: lapin's types.

use lapin::{message::BasicReturnMessage, types::ShortString};

use super::Outgoing;

/// Identifies a publish among those in flight, as a returned message shows it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct MessageKey {
    pub(super) message_id: ShortString,
    pub(super) exchange: ShortString,
    pub(super) routing_key: ShortString,
}

/// The key of `message`, unless AMQP can't carry its names.
pub(super) fn key_of(message: &Outgoing) -> Result<MessageKey, String> {
    let short = |what: &str, text: &str| {
        ShortString::try_new(text)
            .map_err(|_| format!("{what} has {} bytes; AMQP carries at most 255", text.len()))
    };
    Ok(MessageKey {
        message_id: message.properties.message_id().clone().ok_or("no message id")?,
        exchange: short("exchange", &message.exchange)?,
        routing_key: short("routing key", &message.routing_key)?,
    })
}

/// The key of a message that came back.
pub(super) fn key_of_returned(message: &BasicReturnMessage) -> MessageKey {
    let delivery = &message.delivery;
    MessageKey {
        message_id: delivery.properties.message_id().clone().unwrap_or_default(),
        exchange: delivery.exchange.clone(),
        routing_key: delivery.routing_key.clone(),
    }
}
