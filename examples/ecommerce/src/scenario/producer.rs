//! The shop's producers: one with the library, one that is just an AMQP client.
//!
//! Imports `problem`, and `tidegate::publish`.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties,
    options::{BasicPublishOptions, ConfirmSelectOptions},
    types::{AMQPValue, FieldTable},
};
use tidegate::{
    broker::{BrokerSettings, publisher::Publisher},
    publish::{SendError, Task, TaskPublisher},
    topology::Topology,
};
use tidegate_core::{
    envelope::{Envelope, Limits},
    headers::Origin,
};

use super::{Message, Way};
use crate::problem::Problem;

/// Sends messages in each of the three ways.
pub(crate) struct Producer {
    library: TaskPublisher,
    /// Kept because its channels die with it.
    _connection: Connection,
    plain: Channel,
    confirming: Channel,
}

impl Producer {
    pub(crate) async fn connect(
        broker: BrokerSettings,
        url: &str,
        topology: Arc<Topology>,
    ) -> Result<Self, Problem> {
        let publisher = Publisher::start(&broker).map_err(|why| Problem::Missing(why.to_string()))?;
        let properties = ConnectionProperties::default().with_connection_name("plain producer".into());
        let connection = Connection::connect(url, properties).await?;
        let confirming = connection.create_channel().await?;
        confirming.confirm_select(ConfirmSelectOptions::default()).await?;
        let plain = connection.create_channel().await?;
        Ok(Self {
            library: TaskPublisher::new(publisher, topology),
            _connection: connection,
            plain,
            confirming,
        })
    }

    /// Sends `message` and says when it should start.
    pub(crate) async fn send(&self, message: &Message) -> Result<DateTime<Utc>, Problem> {
        let planned = Utc::now() + TimeDelta::from_std(message.delay).unwrap_or_default();
        match message.way {
            Way::Library => self.by_library(message.body.clone(), message.delay).await?,
            Way::Plain => self.plainly(message.key, &message.body).await?,
            Way::Ingress => self.by_ingress(message.key, &message.body, message.delay).await?,
        }
        Ok(planned)
    }

    /// `Ok` means confirmed by a durable queue. The routing key is the task type.
    async fn by_library(&self, body: Vec<u8>, delay: Duration) -> Result<(), SendError> {
        let envelope = Envelope::parse(&body, &Limits::standard(), Utc::now())
            .map_err(|broken| SendError::Invalid(broken.to_string()))?;
        self.library
            .send(Task::new(body, &envelope, Origin::Amqp), delay)
            .await
    }

    /// What a short program in any language does: not mandatory, no confirm, no header.
    async fn plainly(&self, key: &str, body: &[u8]) -> Result<(), Problem> {
        let properties = BasicProperties::default()
            .with_content_type("application/json".into())
            .with_delivery_mode(2);
        self.plain
            .basic_publish(
                "task.exchange".into(),
                key.into(),
                BasicPublishOptions::default(),
                body,
                properties,
            )
            .await?;
        Ok(())
    }

    /// The same with a delay, and with the confirm that every producer should wait for.
    async fn by_ingress(&self, key: &str, body: &[u8], delay: Duration) -> Result<(), Problem> {
        let mut headers = FieldTable::default();
        headers.insert(
            "x-delay".into(),
            AMQPValue::LongLongInt(i64::try_from(delay.as_millis()).unwrap_or(i64::MAX)),
        );
        let properties = BasicProperties::default()
            .with_delivery_mode(2)
            .with_headers(headers);
        let options = BasicPublishOptions {
            mandatory: true,
            ..BasicPublishOptions::default()
        };
        let confirm = self
            .confirming
            .basic_publish("task.ingress".into(), key.into(), options, body, properties)
            .await?
            .await?;
        match confirm {
            lapin::Confirmation::Ack(None) => Ok(()),
            refused => Err(Problem::Missing(format!(
                "task.ingress did not take the message: {refused:?}"
            ))),
        }
    }
}
