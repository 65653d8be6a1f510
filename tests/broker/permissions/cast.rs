//! A user for each role on a virtual host of its own, and what users may try.

use std::{path::Path, sync::Arc};

use lapin::{
    BasicProperties, Connection, ErrorKind, ExchangeKind,
    options::{
        BasicConsumeOptions, BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions,
        ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions, QueuePurgeOptions,
    },
    types::{AMQPValue, FieldTable},
};
use tidegate::{
    broker::{BrokerSettings, publisher::Publisher},
    publish::TaskPublisher,
    topology::{
        Topology,
        export::{self, Role},
    },
};
use tidegate_testkit::Vhost;

use crate::declare::{apply, connect};

pub(crate) const PASSWORD: &str = "secret";

/// The broker's answer to what a user may not do.
pub(crate) const ACCESS_REFUSED: u16 = 403;

/// A vhost with a user for each role, with the permissions that the topology gives it.
pub(crate) struct Cast {
    pub(crate) vhost: Vhost,
    pub(crate) topology: Arc<Topology>,
    users: Vec<(Role, String)>,
}

impl Cast {
    pub(crate) async fn new() -> Self {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("topology");
        let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
        // The shipped files, with retries that a test can wait for.
        let order = read("order.toml").replace("initial = \"1s\"", "initial = \"50ms\"");
        let report = read("report.toml").replace("initial = \"1s\"", "initial = \"50ms\"");
        let platform = read("platform.toml");
        let topology = Topology::parse(&[
            ("platform.toml", &platform),
            ("order.toml", &order),
            ("report.toml", &report),
        ]);
        let (vhost, topology) = (Vhost::create().await, Arc::new(topology.unwrap()));
        let mut users = Vec::new();
        for (number, granted) in export::permissions(&topology).into_iter().enumerate() {
            let user = format!("u{number}-{}", vhost.name());
            let patterns = (
                granted.configure.as_str(),
                granted.write.as_str(),
                granted.read.as_str(),
            );
            vhost.management().add_user(&user, PASSWORD, patterns).await;
            users.push((granted.role, user));
        }
        Self {
            vhost,
            topology,
            users,
        }
    }

    /// With everything declared by the operator.
    pub(crate) async fn applied() -> Self {
        let cast = Self::new().await;
        let connection = cast.connect(&Role::Operator).await;
        apply(&connection, &cast.topology.objects()).await.unwrap();
        cast
    }

    pub(crate) fn url(&self, role: &Role) -> String {
        let (_, user) = self.users.iter().find(|(known, _)| known == role).unwrap();
        self.vhost.amqp_url_as(user, PASSWORD)
    }

    pub(crate) async fn connect(&self, role: &Role) -> Connection {
        connect(&self.url(role)).await
    }

    pub(crate) fn settings(&self, role: &Role) -> BrokerSettings {
        BrokerSettings::new(self.url(role).into())
    }

    pub(crate) fn publisher(&self, role: &Role) -> TaskPublisher {
        let publisher = Publisher::start(&self.settings(role)).unwrap();
        TaskPublisher::new(publisher, self.topology.clone())
    }

    pub(crate) async fn close(self) {
        for (_, user) in &self.users {
            self.vhost.management().remove_user(user).await;
        }
        self.vhost.close().await;
    }
}

pub(crate) fn order_team() -> Role {
    Role::Worker("order-team".to_owned())
}

pub(crate) fn report_team() -> Role {
    Role::Worker("report-team".to_owned())
}

/// Something that a user may try.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Try<'a> {
    Publish(&'a str, &'a str),
    Consume(&'a str),
    Get(&'a str),
    DeclareQueue(&'a str),
    DeclareExchange(&'a str),
    Bind(&'a str, &'a str),
    Purge(&'a str),
    Delete(&'a str),
}

/// `Ok`, or the code with which the broker closed the channel.
pub(crate) async fn attempt(connection: &Connection, what: Try<'_>) -> Result<(), u16> {
    let channel = connection.create_channel().await.unwrap();
    let table = FieldTable::default;
    let result = match what {
        Try::Publish(exchange, key) => {
            async {
                channel.confirm_select(ConfirmSelectOptions::default()).await?;
                let options = BasicPublishOptions::default();
                let properties = BasicProperties::default();
                let publish = channel.basic_publish(exchange.into(), key.into(), options, b"{}", properties);
                publish.await?.await.map(drop)
            }
            .await
        }
        Try::Consume(queue) => {
            let options = BasicConsumeOptions::default();
            let consume = channel.basic_consume(queue.into(), "t".into(), options, table());
            consume.await.map(drop)
        }
        Try::Get(queue) => channel
            .basic_get(queue.into(), BasicGetOptions::default())
            .await
            .map(drop),
        Try::DeclareQueue(queue) => {
            let mut quorum = table();
            quorum.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
            let declare = channel.queue_declare(queue.into(), QueueDeclareOptions::durable(), quorum);
            declare.await.map(drop)
        }
        Try::DeclareExchange(exchange) => {
            let options = ExchangeDeclareOptions {
                durable: true,
                ..ExchangeDeclareOptions::default()
            };
            let declare = channel.exchange_declare(exchange.into(), ExchangeKind::Topic, options, table());
            declare.await
        }
        Try::Bind(queue, exchange) => {
            let options = QueueBindOptions::default();
            let bind = channel.queue_bind(queue.into(), exchange.into(), "stolen.#".into(), options, table());
            bind.await
        }
        Try::Purge(queue) => channel
            .queue_purge(queue.into(), QueuePurgeOptions::default())
            .await
            .map(drop),
        Try::Delete(queue) => channel
            .queue_delete(queue.into(), QueueDeleteOptions::default())
            .await
            .map(drop),
    };
    let result = result.map_err(|error| match error.kind() {
        ErrorKind::ProtocolError(error) => error.get_id(),
        other => panic!("{what:?}: {other:?}"),
    });
    if channel.status().connected() {
        let _ = channel.close(200, "tried".into()).await;
    }
    result
}

pub(crate) async fn assert_allowed(connection: &Connection, tries: &[Try<'_>]) {
    for what in tries {
        assert_eq!(attempt(connection, *what).await, Ok(()), "{what:?}");
    }
}

pub(crate) async fn assert_refused(connection: &Connection, tries: &[Try<'_>]) {
    for what in tries {
        assert_eq!(attempt(connection, *what).await, Err(ACCESS_REFUSED), "{what:?}");
    }
    assert!(connection.status().connected());
}

/// What nobody but the operator may do to the topology.
pub(crate) const CHANGES: &[Try<'static>] = &[
    Try::DeclareQueue("order.close.queue.mine"),
    Try::DeclareQueue("task.mine"),
    Try::DeclareQueue("mine"),
    Try::DeclareExchange("task.mine"),
    Try::Bind("order.close.queue", "task.exchange"),
    Try::Delete("order.close.queue"),
    Try::Delete("task.dead.queue"),
];
