//! A vhost whose queue is not as the topology wants it, and what moves through it.

use std::{
    collections::BTreeMap,
    process::Command,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use chrono::Utc;
use lapin::{Connection, ConnectionProperties};
use tidegate::{
    broker::{
        BrokerSettings,
        connection::Link,
        consumer::{Incoming, Prefetch, Subscription, consume},
        declare,
        management::Management,
        migrate::{Migration, Options},
        publisher::{Outgoing, Publisher},
    },
    core::{
        envelope::{Envelope, Limits},
        headers::Origin,
    },
    publish::{Task, TaskPublisher},
    telemetry::health::Health,
    topology::{Objects, Topology, Value},
};
use tidegate_testkit::{Process, Vhost, services};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The brokers of tests count once a second.
pub(crate) const SETTLE: Duration = Duration::from_secs(3);

pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The queue that is migrated.
pub(crate) const QUEUE: &str = "order.close.queue";

/// Its topology.
pub(crate) const FILES: &[(&str, &str)] = &[
    ("platform.toml", "prefix = \"task\""),
    (
        "order.toml",
        r#"
[[queue]]
name = "order.close.queue"
bind = ["order.close.#"]
owner = "test"
task_types = ["order.close.timeout"]
retry = { max_retries = 3, initial = "100ms", multiplier = 2.0, max = "1s", jitter = 0.0 }
"#,
    ),
];

pub(crate) struct Platform {
    pub(crate) vhost: Vhost,
    /// What the migrations lead to.
    pub(crate) objects: Objects,
    pub(crate) settings: BrokerSettings,
    pub(crate) publisher: Publisher,
    /// The topology as files, for the binary.
    files: tempfile::TempDir,
}

impl Platform {
    /// A vhost with `objects`, but that each of `old` is a classic queue that dead-letters elsewhere.
    pub(crate) async fn with(objects: Objects, old: &[&str]) -> Self {
        let vhost = Vhost::create().await;
        let settings = BrokerSettings::new(vhost.amqp_url().to_owned().into());
        let mut before = objects.clone();
        for queue in before
            .queues
            .iter_mut()
            .filter(|queue| old.contains(&queue.name.as_str()))
        {
            queue.arguments = classic();
        }
        let platform = Self {
            vhost,
            objects,
            publisher: Publisher::start(&settings).unwrap(),
            settings,
            files: tempfile::TempDir::new().unwrap(),
        };
        platform.declare(&before).await;
        platform
    }

    /// The same from topology files, which the program reads too.
    pub(crate) async fn from_files(files: &[(&str, &str)], old: &[&str]) -> (Self, Arc<Topology>) {
        let topology = Arc::new(Topology::parse(files).unwrap());
        let platform = Self::with(topology.objects(), old).await;
        platform.write(files);
        (platform, topology)
    }

    pub(crate) fn tasks(&self, topology: &Arc<Topology>) -> TaskPublisher {
        TaskPublisher::new(self.publisher.clone(), topology.clone())
    }

    pub(crate) fn write(&self, files: &[(&str, &str)]) {
        for (name, text) in files {
            std::fs::write(self.files.path().join(name), text).unwrap();
        }
    }

    pub(crate) async fn declare(&self, objects: &Objects) {
        let connection = Connection::connect(self.vhost.amqp_url(), ConnectionProperties::default())
            .await
            .unwrap();
        declare::apply(&connection, objects, |_| {}).await.unwrap();
        connection.close(200, "declared".into()).await.unwrap();
    }

    pub(crate) fn management(&self) -> Management {
        let url = services().management.into();
        Management::new(&url, self.vhost.name(), Duration::from_secs(30)).unwrap()
    }

    /// A migration of `queue` in this process.
    pub(crate) async fn migration(&self, queue: &str) -> Migration {
        let options = Options {
            settle: SETTLE,
            patience: PATIENCE,
            ..Options::default()
        };
        let (objects, management) = (self.objects.clone(), self.management());
        Migration::open(&self.settings, management, objects, queue, options, |_| {})
            .await
            .unwrap()
    }

    /// The real program, migrating.
    pub(crate) fn migrate(&self, arguments: &[&str]) -> Process {
        self.migrate_by(&services().management, arguments)
    }

    /// The same with the management API at `management`.
    pub(crate) fn migrate_by(&self, management: &str, arguments: &[&str]) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command
            .args(["topology", "migrate"])
            .args(arguments)
            .args(["--settle", "3s", "--dir"])
            .arg(self.files.path())
            .env("AMQP_URL", self.vhost.amqp_url())
            .env("MANAGEMENT_URL", management);
        Process::start("tidegate topology migrate", &mut command)
    }

    /// Publishes a message without an envelope, confirmed.
    pub(crate) async fn publish(&self, exchange: &str, key: &str, body: &str) {
        let properties = lapin::BasicProperties::default()
            .with_delivery_mode(2)
            .with_message_id(body.into());
        let outcome = self
            .publisher
            .publish(Outgoing {
                exchange: exchange.to_owned(),
                routing_key: key.to_owned(),
                body: body.as_bytes().to_vec().into(),
                properties,
            })
            .await;
        assert_eq!(outcome.as_str(), "confirmed", "{outcome:?}");
    }

    /// Consumes `queue` until stopped, subscribing again after every end, acknowledging everything.
    pub(crate) fn consume(&self, queue: &str) -> Consumer {
        let (sender, deliveries) = async_channel::bounded::<Incoming>(100);
        let stop = CancellationToken::new();
        let subscription = Subscription {
            queue: queue.to_owned(),
            prefetch: Prefetch::Fixed(100),
            part: queue.to_owned(),
        };
        let link = Link::new(self.settings.clone(), "consume");
        let taken = Taken::default();
        let task = tokio::spawn({
            let (taken, stop) = (taken.clone(), stop.clone());
            async move {
                let consumer = consume(link.clone(), subscription, sender, Health::default(), stop);
                let work = async {
                    while let Ok(incoming) = deliveries.recv().await {
                        taken.note(&String::from_utf8_lossy(&incoming.body), &incoming);
                        incoming.ack().unwrap();
                    }
                };
                tokio::join!(consumer, work);
                link.close().await;
            }
        });
        Consumer { taken, stop, task }
    }

    /// Nothing that a migration makes is left, and every queue is as wanted.
    pub(crate) async fn is_as_wanted(&self) {
        let live = self.management().read_live().await.unwrap();
        let names = live
            .queues
            .iter()
            .map(|q| &q.name)
            .chain(live.exchanges.iter().map(|e| &e.name));
        let left: Vec<_> = names.filter(|name| name.contains(".migrating")).collect();
        assert!(left.is_empty(), "left: {left:?}");
        let objects = &self.objects;
        for wanted in &objects.queues {
            let queue = live.queue(&wanted.name).unwrap();
            let arguments: BTreeMap<String, _> = wanted
                .arguments
                .iter()
                .map(|(name, value)| ((*name).to_owned(), value.to_json()))
                .collect();
            assert_eq!(queue.arguments, arguments, "{}", wanted.name);
        }
        for wanted in &objects.bindings {
            let there = live.bindings.iter().any(|binding| {
                binding.source == wanted.source
                    && binding.destination == wanted.destination
                    && binding.pattern == wanted.pattern
            });
            assert!(there, "{wanted}");
        }
        assert_eq!(
            live.bindings.len(),
            objects.bindings.len(),
            "no binding is left over"
        );
    }
}

/// Arguments that no topology of ours makes.
pub(crate) fn classic() -> BTreeMap<&'static str, Value> {
    BTreeMap::from([
        ("x-queue-type", Value::Text("classic".to_owned())),
        ("x-dead-letter-exchange", Value::Text("task.dead".to_owned())),
    ])
}

pub(crate) fn task(body: &str) -> Task {
    let envelope = Envelope::parse(body.as_bytes(), &Limits::standard(), Utc::now()).unwrap();
    Task::new(body.to_owned(), &envelope, Origin::Amqp)
}

/// What a consumer took: how often each text, which keys, and when.
#[derive(Clone, Default)]
pub(crate) struct Taken(Arc<Mutex<Vec<(String, String, Instant)>>>);

impl Taken {
    pub(crate) fn note(&self, text: &str, incoming: &Incoming) {
        let entry = (text.to_owned(), incoming.routing_key.clone(), Instant::now());
        self.0.lock().unwrap().push(entry);
    }

    pub(crate) fn push(&self, text: String) {
        self.0.lock().unwrap().push((text, String::new(), Instant::now()));
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    pub(crate) fn keys(&self) -> std::collections::BTreeSet<String> {
        self.0
            .lock()
            .unwrap()
            .iter()
            .map(|(_, key, _)| key.clone())
            .collect()
    }

    /// How often each text was seen.
    pub(crate) fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for (text, ..) in self.0.lock().unwrap().iter() {
            *counts.entry(text.clone()).or_default() += 1;
        }
        counts
    }

    /// The longest time without anything.
    pub(crate) fn longest_gap(&self) -> Duration {
        let seen = self.0.lock().unwrap();
        let gaps = seen.windows(2).map(|pair| pair[1].2.duration_since(pair[0].2));
        gaps.max().unwrap_or_default()
    }
}

pub(crate) struct Consumer {
    pub(crate) taken: Taken,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Consumer {
    pub(crate) async fn stop(self) -> Taken {
        self.stop.cancel();
        self.task.await.unwrap();
        self.taken
    }
}
