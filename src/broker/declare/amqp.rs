//! One channel that declares, looks and survives refusals. The only part of this module that speaks AMQP.

use std::time::Duration;

use lapin::{
    Channel, Connection, ErrorKind, ExchangeKind,
    options::{ExchangeDeclareOptions, QueueDeclareOptions},
    protocol::{AMQPErrorKind, AMQPSoftError},
    types::{AMQPValue, FieldTable, ShortString},
};
use tidegate_core::names::MAX_SHORT_STRING;

use super::DeclareError;
use crate::broker::bind::bind;
use crate::topology::{self, Exchange, Object, Queue, Value};

/// What the broker said.
#[derive(Debug)]
pub(super) enum Outcome {
    /// Exists now, with these arguments (or exists, if only looked for).
    Declared,
    /// 404, in the broker's words.
    Missing(String),
    /// Any other refusal that leaves the connection alive, in the broker's words.
    Refused(String),
}

/// A channel, opened when needed and again after each refusal, because a refusal closes it.
pub(super) struct Lane<'c> {
    conn: &'c Connection,
    channel: Option<Channel>,
    answer: Duration,
}

impl<'c> Lane<'c> {
    pub(super) fn new(conn: &'c Connection, answer: Duration) -> Self {
        Self {
            conn,
            channel: None,
            answer,
        }
    }

    /// Declares or binds `object`.
    pub(super) async fn declare(&mut self, object: Object<'_>) -> Result<Outcome, DeclareError> {
        if let Some(refusal) = too_long(object) {
            return Ok(refusal);
        }
        let channel = self.channel(object).await?;
        let sent = async {
            match object {
                Object::Exchange(exchange) => exchange_declare(&channel, exchange, false).await,
                Object::Queue(queue) => queue_declare(&channel, queue, false).await,
                Object::Binding(b) => {
                    bind(
                        &channel,
                        &b.source,
                        &b.destination,
                        &b.pattern,
                        FieldTable::default(),
                    )
                    .await
                }
            }
        };
        let answer = tokio::time::timeout(self.answer, sent).await;
        self.outcome(channel, object, answer)
    }

    /// Looks whether an exchange or queue exists; bindings can't be looked for.
    pub(super) async fn look(&mut self, object: Object<'_>) -> Result<Outcome, DeclareError> {
        if let Some(refusal) = too_long(object) {
            return Ok(refusal);
        }
        let channel = self.channel(object).await?;
        let sent = async {
            match object {
                Object::Exchange(exchange) => exchange_declare(&channel, exchange, true).await,
                Object::Queue(queue) => queue_declare(&channel, queue, true).await,
                Object::Binding(_) => Ok(()),
            }
        };
        let answer = tokio::time::timeout(self.answer, sent).await;
        self.outcome(channel, object, answer)
    }

    /// Gives the channel back. One that can't be closed goes with its connection, which is no failure of the run.
    pub(super) async fn close(self) -> Result<(), DeclareError> {
        if let Some(channel) = self.channel {
            let closing = channel.close(200, ShortString::from("done"));
            if !matches!(tokio::time::timeout(self.answer, closing).await, Ok(Ok(()))) {
                tracing::debug!("a channel of the topology run did not close in order");
            }
        }
        Ok(())
    }

    async fn channel(&mut self, object: Object<'_>) -> Result<Channel, DeclareError> {
        if let Some(channel) = self.channel.take() {
            return Ok(channel);
        }
        match tokio::time::timeout(self.answer, self.conn.create_channel()).await {
            Ok(Ok(channel)) => Ok(channel),
            Ok(Err(e)) => Err(unavailable(object, e.to_string())),
            Err(_) => Err(self.silent(object)),
        }
    }

    fn outcome(
        &mut self,
        channel: Channel,
        object: Object<'_>,
        answer: Result<lapin::Result<()>, tokio::time::error::Elapsed>,
    ) -> Result<Outcome, DeclareError> {
        let error = match answer {
            Ok(Ok(())) => {
                self.channel = Some(channel);
                return Ok(Outcome::Declared);
            }
            Ok(Err(error)) => error,
            Err(_) => return Err(self.silent(object)),
        };
        match error.kind() {
            ErrorKind::ProtocolError(e) => {
                let text = e.get_message().to_string();
                match e.kind() {
                    AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND) => Ok(Outcome::Missing(text)),
                    AMQPErrorKind::Soft(_) => Ok(Outcome::Refused(text)),
                    // A hard error has closed the connection.
                    AMQPErrorKind::Hard(_) => Err(unavailable(object, text)),
                }
            }
            _ => Err(unavailable(object, error.to_string())),
        }
    }

    fn silent(&self, object: Object<'_>) -> DeclareError {
        unavailable(object, format!("no answer within {:?}", self.answer))
    }
}

pub(in crate::broker) async fn exchange_declare(
    channel: &Channel,
    exchange: &Exchange,
    passive: bool,
) -> lapin::Result<()> {
    let kind = match exchange.kind {
        topology::ExchangeKind::Topic => ExchangeKind::Topic,
        topology::ExchangeKind::Fanout => ExchangeKind::Fanout,
    };
    let mut arguments = FieldTable::default();
    if let Some(alternate) = &exchange.alternate {
        arguments.insert(
            "alternate-exchange".into(),
            AMQPValue::LongString(alternate.as_str().into()),
        );
    }
    let options = ExchangeDeclareOptions {
        durable: true,
        passive,
        ..ExchangeDeclareOptions::default()
    };
    channel
        .exchange_declare(exchange.name.as_str().into(), kind, options, arguments)
        .await
}

pub(in crate::broker) async fn queue_declare(
    channel: &Channel,
    queue: &Queue,
    passive: bool,
) -> lapin::Result<()> {
    let mut arguments = FieldTable::default();
    for (key, value) in &queue.arguments {
        let value = match value {
            Value::Text(text) => AMQPValue::LongString(text.as_str().into()),
            Value::Int(number) => AMQPValue::LongLongInt(*number),
            Value::Bool(yes) => AMQPValue::Boolean(*yes),
        };
        arguments.insert((*key).into(), value);
    }
    let options = QueueDeclareOptions {
        durable: true,
        passive,
        ..QueueDeclareOptions::default()
    };
    channel
        .queue_declare(queue.name.as_str().into(), options, arguments)
        .await
        .map(drop)
}

/// AMQP can't carry longer names, and lapin panics on them. Files with such names are refused when they are read;
/// this holds for models that were built otherwise.
fn too_long(object: Object<'_>) -> Option<Outcome> {
    let texts = match object {
        Object::Exchange(exchange) => vec![exchange.name.as_str()],
        Object::Queue(queue) => vec![queue.name.as_str()],
        Object::Binding(b) => vec![b.source.as_str(), b.destination_name(), b.pattern.as_str()],
    };
    let longest = texts
        .iter()
        .map(|text| text.len())
        .max()
        .filter(|bytes| *bytes > MAX_SHORT_STRING)?;
    Some(Outcome::Refused(format!(
        "{longest} bytes in a name or pattern; AMQP allows {MAX_SHORT_STRING}: shorten it"
    )))
}

fn unavailable(object: Object<'_>, reason: String) -> DeclareError {
    DeclareError::Unavailable {
        doing: format!("declaring {}", object.name()),
        reason,
    }
}
