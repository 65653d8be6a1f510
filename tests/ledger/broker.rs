//! A vhost of its own for each test, and relay loops that tests start, stop and kill.

use std::{sync::Arc, time::Duration};

use lapin::{Channel, Connection, ConnectionProperties, message::Delivery, options::BasicGetOptions};
use secrecy::SecretString;
use tidegate::{
    broker::{BrokerSettings, declare, publisher::Publisher},
    publish::TaskPublisher,
    scheduler::{
        SchedulerError,
        relay::{self, RelaySettings},
    },
    store::Store,
    telemetry::health::Health,
    topology::Topology,
};
use tidegate_testkit::Vhost;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const TOPOLOGY: &str = r#"
[[queue]]
name = "order.close.queue"
bind = ["order.close.#"]
owner = "test"
"#;

/// The one business queue.
pub(crate) const QUEUE: &str = "order.close.queue";

/// A broker with one business queue.
pub(crate) struct Broker {
    pub(crate) settings: BrokerSettings,
    pub(crate) topology: Arc<Topology>,
    pub(crate) tasks: TaskPublisher,
    pub(crate) channel: Channel,
    _connection: Connection,
    pub(crate) vhost: Vhost,
}

impl Broker {
    pub(crate) async fn create() -> Self {
        let vhost = Vhost::create().await;
        let topology = Arc::new(
            Topology::parse(&[("platform.toml", "prefix = \"task\""), ("test.toml", TOPOLOGY)]).unwrap(),
        );
        let settings = BrokerSettings::new(vhost.amqp_url().to_owned().into());
        let connection = Connection::connect(vhost.amqp_url(), ConnectionProperties::default())
            .await
            .unwrap();
        declare::apply(&connection, &topology.objects(), |_| {})
            .await
            .unwrap();
        let tasks = TaskPublisher::new(Publisher::start(&settings).unwrap(), Arc::clone(&topology));
        let channel = connection.create_channel().await.unwrap();
        Self {
            settings,
            topology,
            tasks,
            channel,
            _connection: connection,
            vhost,
        }
    }

    /// Takes what is in the business queue now.
    pub(crate) async fn take(&self) -> Vec<Delivery> {
        let mut taken = Vec::new();
        while let Some(got) = self
            .channel
            .basic_get(QUEUE.into(), BasicGetOptions { no_ack: true })
            .await
            .unwrap()
        {
            taken.push(got.delivery);
        }
        taken
    }
}

/// A publisher whose broker never answers.
pub(crate) fn publisher_without_broker(topology: &Arc<Topology>) -> TaskPublisher {
    let settings = BrokerSettings::new(SecretString::from("amqp://127.0.0.1:1/none".to_owned()));
    TaskPublisher::new(Publisher::start(&settings).unwrap(), Arc::clone(topology))
}

/// A running relay; dropped, it is killed where it stands.
pub(crate) struct RelayLoop {
    pub(crate) health: Health,
    task: JoinHandle<Result<(), SchedulerError>>,
    cancel: CancellationToken,
}

impl RelayLoop {
    pub(crate) fn start(store: &Store, tasks: &TaskPublisher) -> Self {
        Self::start_with(store, tasks, RelaySettings::default())
    }

    pub(crate) fn start_with(store: &Store, tasks: &TaskPublisher, settings: RelaySettings) -> Self {
        let (cancel, health) = (CancellationToken::new(), Health::default());
        let running = relay::run(
            store.clone(),
            tasks.clone(),
            settings,
            health.clone(),
            cancel.clone(),
        );
        Self {
            task: tokio::spawn(running),
            cancel,
            health,
        }
    }

    /// Stops it as a shutdown does.
    pub(crate) async fn stop(mut self) {
        self.cancel.cancel();
        tokio::time::timeout(Duration::from_secs(5), &mut self.task)
            .await
            .expect("it stops")
            .unwrap()
            .unwrap();
    }
}

impl Drop for RelayLoop {
    fn drop(&mut self) {
        self.task.abort();
    }
}
