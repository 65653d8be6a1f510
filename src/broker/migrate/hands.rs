//! The changes themselves, over one connection. Imports lapin.
//!
//! All of a migration goes over this connection, which also owns the exclusive queue that keeps others out: whoever
//! has lost the connection can change nothing any more.

use std::time::Duration;

use lapin::{
    Channel, Connection, ErrorKind,
    options::{
        ExchangeBindOptions, ExchangeDeleteOptions, ExchangeUnbindOptions, QueueBindOptions,
        QueueDeclareOptions, QueueDeleteOptions,
    },
    protocol::{AMQPErrorKind, AMQPSoftError},
    types::{AMQPValue, FieldTable},
};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use super::MigrateError;
use crate::{
    broker::{
        BrokerSettings, connection,
        declare::{exchange_declare, queue_declare},
        management::{Management, encode},
        message::short,
    },
    topology::{
        Queue,
        migration::{Link, Made, Temporary},
    },
};

/// Longest wait for one answer.
const ANSWER: Duration = Duration::from_secs(30);
/// How long the broker may take to notice that the last run is dead.
const LOCK_WAIT: Duration = Duration::from_secs(15);

/// What a binding of the migration leads to.
#[derive(Clone, Copy, Debug)]
pub(super) enum To<'a> {
    Queue(&'a str),
    Exchange(&'a str),
}

/// What a queue says of itself when asked for by name; current, unlike counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) ready: u64,
    pub(super) consumers: u64,
}

/// The connection and a channel for changes, opened again after each refusal.
#[derive(Debug)]
pub(super) struct Hands {
    conn: Connection,
    channel: Option<Channel>,
    management: Management,
}

impl Hands {
    pub(super) async fn connect(
        settings: &BrokerSettings,
        management: Management,
    ) -> Result<Self, MigrateError> {
        let conn = connection::connect(settings, "migrate").await?;
        Ok(Self {
            conn,
            channel: None,
            management,
        })
    }

    /// Whether the connection is up, as far as is known.
    pub(super) fn is_connected(&self) -> bool {
        self.conn.status().connected()
    }

    /// Closes the connection, and with it lets others in.
    pub(super) async fn hang_up(&self) {
        let _ = timeout(ANSWER, self.conn.close(200, "done".into())).await;
    }

    /// A channel for consuming or publishing.
    pub(super) async fn channel(&self) -> Result<Channel, MigrateError> {
        answer("opening a channel", self.conn.create_channel()).await
    }

    /// Keeps every other migration of `queue` out for as long as the connection lives.
    pub(super) async fn lock(&mut self, queue: &str) -> Result<(), MigrateError> {
        let name = Temporary::lock(queue);
        let options = QueueDeclareOptions {
            exclusive: true,
            ..QueueDeclareOptions::default()
        };
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), AMQPValue::LongString("classic".into()));
        let started = Instant::now();
        loop {
            let channel = self.channel().await?;
            let declare = channel.queue_declare(name_of(&name)?, options, arguments.clone());
            match timeout(ANSWER, declare).await {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(error)) if is(&error, AMQPSoftError::RESOURCELOCKED) => {
                    if started.elapsed() > LOCK_WAIT {
                        return Err(MigrateError::Locked(queue.to_owned()));
                    }
                    sleep(Duration::from_millis(500)).await;
                }
                other => answer(&format!("locking {queue}"), async {
                    other.unwrap_or_else(|_| Err(silent()))
                })
                .await
                .map(drop)?,
            }
        }
    }

    /// Ready messages and consumers of `queue`, and none if it doesn't exist.
    pub(super) async fn look(&mut self, queue: &str) -> Result<Option<Look>, MigrateError> {
        let channel = self.work().await?;
        let options = QueueDeclareOptions::durable().passive();
        let declare = channel.queue_declare(name_of(queue)?, options, FieldTable::default());
        match timeout(ANSWER, declare).await {
            Ok(Err(error)) if is(&error, AMQPSoftError::NOTFOUND) => Ok(None),
            Ok(Ok(found)) => {
                self.channel = Some(channel);
                Ok(Some(Look {
                    ready: found.message_count().into(),
                    consumers: found.consumer_count().into(),
                }))
            }
            other => {
                answer(&format!("looking at {queue}"), async {
                    other.unwrap_or_else(|_| Err(silent()))
                })
                .await?;
                Ok(None)
            }
        }
    }

    pub(super) async fn make(&mut self, made: &Made) -> Result<(), MigrateError> {
        match made {
            Made::Queue(queue) => self.declare(queue).await,
            Made::Exchange(exchange) => {
                let channel = self.work().await?;
                let declared = exchange_declare(&channel, exchange, false);
                answer(&format!("declaring {}", exchange.name), declared).await?;
                self.keep(channel)
            }
        }
    }

    pub(super) async fn declare(&mut self, queue: &Queue) -> Result<(), MigrateError> {
        let channel = self.work().await?;
        let declared = queue_declare(&channel, queue, false);
        answer(&format!("declaring {}", queue.name), declared).await?;
        self.keep(channel)
    }

    /// Deletes a queue and answers how many ready messages it held; 0 if it is gone already. A classic queue is deleted
    /// only if it has none; a quorum queue knows no such condition.
    pub(super) async fn delete_queue(&mut self, queue: &str, classic: bool) -> Result<u64, MigrateError> {
        let channel = self.work().await?;
        let options = QueueDeleteOptions {
            if_empty: classic,
            ..QueueDeleteOptions::default()
        };
        let deleted = channel.queue_delete(name_of(queue)?, options);
        let held = answer(&format!("deleting {queue}"), deleted).await?;
        self.keep(channel)?;
        Ok(held.into())
    }

    pub(super) async fn delete_exchange(&mut self, exchange: &str) -> Result<(), MigrateError> {
        let channel = self.work().await?;
        let deleted = channel.exchange_delete(name_of(exchange)?, ExchangeDeleteOptions::default());
        answer(&format!("deleting {exchange}"), deleted).await?;
        self.keep(channel)
    }

    /// Binds by AMQP; a binding with arguments by the management API, which alone can name it again.
    pub(super) async fn bind(&mut self, link: &Link, to: To<'_>) -> Result<(), MigrateError> {
        if !link.arguments.is_empty() {
            let body = json!({"routing_key": link.pattern, "arguments": link.arguments});
            self.management.post(&self.path(link, to), &body).await?;
            return Ok(());
        }
        let channel = self.work().await?;
        let (source, pattern, none) = (
            name_of(&link.source)?,
            name_of(&link.pattern)?,
            FieldTable::default(),
        );
        let doing = format!("binding {link}");
        match to {
            To::Queue(name) => {
                let bound =
                    channel.queue_bind(name_of(name)?, source, pattern, QueueBindOptions::default(), none);
                answer(&doing, bound).await?;
            }
            To::Exchange(name) => {
                let options = ExchangeBindOptions::default();
                let bound = channel.exchange_bind(name_of(name)?, source, pattern, options, none);
                answer(&doing, bound).await?;
            }
        }
        self.keep(channel)
    }

    pub(super) async fn unbind(&mut self, link: &Link, to: To<'_>) -> Result<(), MigrateError> {
        if !link.arguments.is_empty() {
            return self.unbind_with_arguments(link, to).await;
        }
        let channel = self.work().await?;
        let (source, pattern, none) = (
            name_of(&link.source)?,
            name_of(&link.pattern)?,
            FieldTable::default(),
        );
        let doing = format!("unbinding {link}");
        match to {
            To::Queue(name) => {
                answer(
                    &doing,
                    channel.queue_unbind(name_of(name)?, source, pattern, none),
                )
                .await?
            }
            To::Exchange(name) => {
                let options = ExchangeUnbindOptions::default();
                let unbound = channel.exchange_unbind(name_of(name)?, source, pattern, options, none);
                answer(&doing, unbound).await?;
            }
        }
        self.keep(channel)
    }

    async fn unbind_with_arguments(&self, link: &Link, to: To<'_>) -> Result<(), MigrateError> {
        #[derive(serde::Deserialize)]
        struct Row {
            routing_key: String,
            #[serde(default)]
            arguments: serde_json::Value,
            properties_key: String,
        }
        let path = self.path(link, to);
        let rows: Vec<Row> = self.management.get(&path).await?;
        for row in rows {
            if row.routing_key == link.pattern && row.arguments == json!(link.arguments) {
                let one = format!("{path}/{}", encode(&row.properties_key));
                self.management.delete(&one).await?;
            }
        }
        Ok(())
    }

    fn path(&self, link: &Link, to: To<'_>) -> String {
        let (kind, name) = match to {
            To::Queue(name) => ("q", name),
            To::Exchange(name) => ("e", name),
        };
        let (v, source) = (self.management.v(), encode(&link.source));
        format!("bindings/{v}/e/{source}/{kind}/{}", encode(name))
    }

    async fn work(&mut self) -> Result<Channel, MigrateError> {
        match self.channel.take() {
            Some(channel) => Ok(channel),
            None => self.channel().await,
        }
    }

    fn keep(&mut self, channel: Channel) -> Result<(), MigrateError> {
        self.channel = Some(channel);
        Ok(())
    }
}

/// `future` within the time that the broker has for an answer, its refusals told apart from its silence.
pub(super) async fn answer<T>(
    doing: &str,
    future: impl Future<Output = lapin::Result<T>>,
) -> Result<T, MigrateError> {
    let error = match timeout(ANSWER, future).await {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(error)) => error,
        Err(_) => silent(),
    };
    let doing = doing.to_owned();
    match error.kind() {
        ErrorKind::ProtocolError(e) if matches!(e.kind(), AMQPErrorKind::Soft(_)) => {
            Err(MigrateError::Refusal {
                doing,
                reason: e.get_message().to_string(),
            })
        }
        _ => Err(MigrateError::Unavailable {
            doing,
            reason: error.to_string(),
        }),
    }
}

/// What a broker that doesn't answer is told as.
fn silent() -> lapin::Error {
    std::io::Error::from(std::io::ErrorKind::TimedOut).into()
}

fn is(error: &lapin::Error, what: AMQPSoftError) -> bool {
    matches!(error.kind(), ErrorKind::ProtocolError(e) if *e.kind() == AMQPErrorKind::Soft(what))
}

pub(super) fn name_of(name: &str) -> Result<lapin::types::ShortString, MigrateError> {
    short(name).ok_or_else(|| MigrateError::Refusal {
        doing: format!("using the name {name:?}"),
        reason: "AMQP allows 255 bytes".to_owned(),
    })
}
