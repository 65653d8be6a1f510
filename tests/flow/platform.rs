//! A platform of its own for each test: a vhost with the test's topology, publishers, workers, a router.

use std::{
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use chrono::{DateTime, Utc};
use futures::StreamExt;
use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties,
    options::{BasicConsumeOptions, BasicGetOptions, BasicNackOptions, BasicPublishOptions, BasicQosOptions},
    types::FieldTable,
};
use tidegate::{
    broker::{BrokerSettings, connection::Link, declare, message, publisher::Publisher},
    core::{
        envelope::{Envelope, Limits},
        headers::Origin,
    },
    publish::{SendError, Task, TaskPublisher},
    router::{self, Router},
    telemetry::{exporter::Exporter, health::Health},
    topology::Topology,
    worker::{Context, Worker, WorkerBuilder},
};
use tidegate_testkit::{Vhost, eventually};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A queue with quick retries, and one that sees the same keys to catch what should not reach it.
pub(crate) const TOPOLOGY: &str = r#"
[[queue]]
name = "order.close.queue"
bind = ["order.close.#"]
owner = "test"
task_types = ["order.close.timeout"]
retry = { max_retries = 3, initial = "100ms", multiplier = 2.0, max = "1s", jitter = 0.0 }

[[queue]]
name = "order.audit.queue"
bind = ["order.#"]
owner = "test"
"#;

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Platform {
    pub(crate) vhost: Vhost,
    pub(crate) topology: Arc<Topology>,
    pub(crate) settings: BrokerSettings,
    pub(crate) tasks: TaskPublisher,
    connection: Connection,
    stop: CancellationToken,
    running: Mutex<Vec<JoinHandle<()>>>,
}

/// A dead letter as `task.dead.queue` holds it.
pub(crate) struct DeadLetter {
    pub(crate) body: Vec<u8>,
    pub(crate) properties: BasicProperties,
}

impl DeadLetter {
    pub(crate) fn header(&self, name: &str) -> String {
        message::text(&self.properties, name)
            .unwrap_or_default()
            .to_owned()
    }

    pub(crate) fn reason(&self) -> String {
        self.header(tidegate::core::headers::DEAD_REASON)
    }
}

impl Platform {
    pub(crate) async fn new() -> Self {
        Self::with(TOPOLOGY).await
    }

    pub(crate) async fn with(topology: &str) -> Self {
        Self::on(Vhost::create().await, topology).await
    }

    pub(crate) async fn on(vhost: Vhost, topology: &str) -> Self {
        let topology = Arc::new(
            Topology::parse(&[("platform.toml", "prefix = \"task\""), ("test.toml", topology)]).unwrap(),
        );
        let settings = BrokerSettings::new(vhost.amqp_url().to_owned().into());
        let connection = Connection::connect(vhost.amqp_url(), ConnectionProperties::default())
            .await
            .unwrap();
        declare::apply(&connection, &topology.objects(), |_| {})
            .await
            .unwrap();
        let publisher = Publisher::start(&settings).unwrap();
        let tasks = TaskPublisher::new(publisher, topology.clone());
        Self {
            vhost,
            topology,
            settings,
            tasks,
            connection,
            stop: CancellationToken::new(),
            running: Mutex::default(),
        }
    }

    /// Declares again what should be there.
    pub(crate) async fn apply(&self) {
        declare::apply(&self.connection, &self.topology.objects(), |_| {})
            .await
            .unwrap();
    }

    pub(crate) fn worker(&self) -> WorkerBuilder {
        Worker::builder(self.settings.clone(), self.topology.clone())
    }

    /// Runs `worker` until the platform stops, or until the returned token is cancelled.
    pub(crate) fn run<S: Send + Sync + 'static>(&self, worker: WorkerBuilder<S>) -> CancellationToken {
        let stop = self.stop.child_token();
        let worker = worker.build().unwrap();
        self.running
            .lock()
            .unwrap()
            .push(tokio::spawn(worker.run(stop.clone())));
        stop
    }

    pub(crate) fn run_router(&self) {
        self.run_router_with(None);
    }

    /// A router that tells `ledger` what becomes of its tasks.
    pub(crate) fn run_router_with(&self, ledger: Option<Arc<dyn router::Ledger>>) {
        let link = Link::new(self.settings.clone(), "consume");
        let router = Router::new(link, self.tasks.clone(), Limits::standard(), ledger);
        let (health, stop) = (Health::default(), self.stop.clone());
        self.running
            .lock()
            .unwrap()
            .push(tokio::spawn(async move { router.run(health, stop).await }));
    }

    /// Runs a worker of `order.close.queue` that notes each start and succeeds.
    pub(crate) fn listening(&self) -> Seen {
        let seen = Seen::default();
        self.run(
            self.worker()
                .queue("order.close.queue")
                .handle("order.close.timeout", noting(&seen)),
        );
        seen
    }

    /// Consumes `order.close.queue` as a client with no SDK does.
    pub(crate) async fn plain_consumer(&self) -> lapin::Consumer {
        self.plain_consumer_of("order.close.queue").await
    }

    async fn plain_consumer_of(&self, queue: &str) -> lapin::Consumer {
        let channel = self.channel().await;
        channel.basic_qos(10, BasicQosOptions::default()).await.unwrap();
        let options = BasicConsumeOptions::default();
        let consume = channel.basic_consume(queue.into(), "plain".into(), options, FieldTable::default());
        consume.await.unwrap()
    }

    /// Lets a client with no SDK refuse whatever comes by `queue`, until the test ends: all of it takes the way through
    /// the router.
    pub(crate) async fn nacking(&self, queue: &str) {
        let mut deliveries = self.plain_consumer_of(queue).await;
        // It ends with its connection.
        tokio::spawn(async move {
            while let Some(Ok(delivery)) = deliveries.next().await {
                let _ = delivery.acker.nack(BasicNackOptions::default()).await;
            }
        });
    }

    /// The same, noting what comes.
    pub(crate) async fn refusing(&self, queue: &str) -> Seen {
        let (seen, noted) = (Seen::default(), queue.to_owned());
        let mut deliveries = self.plain_consumer_of(queue).await;
        let notes = seen.clone();
        tokio::spawn(async move {
            while let Some(Ok(delivery)) = deliveries.next().await {
                notes.note_plain(&delivery, &noted);
                let _ = delivery.acker.nack(BasicNackOptions::default()).await;
            }
        });
        seen
    }

    pub(crate) async fn channel(&self) -> Channel {
        self.connection.create_channel().await.unwrap()
    }

    /// Publishes as any AMQP client would: no headers, no confirm asked for.
    pub(crate) async fn publish_plain(&self, exchange: &str, key: &str, body: &[u8]) {
        self.publish_with(
            exchange,
            key,
            body,
            BasicProperties::default().with_delivery_mode(2),
        )
        .await;
    }

    pub(crate) async fn publish_with(
        &self,
        exchange: &str,
        key: &str,
        body: &[u8],
        properties: BasicProperties,
    ) {
        let channel = self.channel().await;
        channel
            .basic_publish(
                exchange.into(),
                key.into(),
                BasicPublishOptions::default(),
                body,
                properties,
            )
            .await
            .unwrap();
        channel.close(200, "published".into()).await.unwrap();
    }

    pub(crate) async fn send(&self, body: &str, delay: Duration) -> Result<(), SendError> {
        self.tasks.send(task(body), delay).await
    }

    /// Takes `count` messages from `queue`, waiting for them, and makes sure that there are no more.
    pub(crate) async fn take(&self, queue: &str, count: usize) -> Vec<DeadLetter> {
        self.take_while(queue, count, PATIENCE, || {}).await
    }

    /// The same, doing something else again and again meanwhile.
    pub(crate) async fn take_while(
        &self,
        queue: &str,
        count: usize,
        patience: Duration,
        mut meanwhile: impl FnMut(),
    ) -> Vec<DeadLetter> {
        let channel = self.channel().await;
        let mut taken = Vec::new();
        eventually(patience, &format!("{count} messages in {queue}"), async || {
            meanwhile();
            while let Some(got) = channel
                .basic_get(queue.into(), BasicGetOptions { no_ack: true })
                .await
                .unwrap()
            {
                let delivery = got.delivery;
                taken.push(DeadLetter {
                    body: delivery.data,
                    properties: delivery.properties,
                });
            }
            taken.len() >= count
        })
        .await;
        assert_eq!(taken.len(), count, "messages in {queue}");
        taken
    }

    pub(crate) async fn dead_letters(&self, count: usize) -> Vec<DeadLetter> {
        self.take("task.dead.queue", count).await
    }

    /// Waits until `queue` holds nothing, ready or unacknowledged.
    pub(crate) async fn drained(&self, queue: &str) {
        eventually(PATIENCE, &format!("{queue} to be empty"), async || {
            self.vhost
                .management()
                .queue(queue)
                .await
                .is_some_and(|q| q.messages == 0)
        })
        .await;
    }

    pub(crate) async fn close(self) {
        self.stop.cancel();
        let running = std::mem::take(&mut *self.running.lock().unwrap());
        for task in running {
            tokio::time::timeout(PATIENCE, task)
                .await
                .expect("stops in time")
                .unwrap();
        }
        self.vhost.close().await;
    }
}

pub(crate) fn envelope(id: &str, task_type: &str, more: &str) -> String {
    format!(r#"{{"taskId":"{id}","taskType":"{task_type}","payload":{{"n":1}}{more}}}"#)
}

pub(crate) fn task(body: &str) -> Task {
    let envelope = Envelope::parse(body.as_bytes(), &Limits::standard(), Utc::now()).unwrap();
    Task::new(body.to_owned(), &envelope, Origin::Amqp)
}

/// What handlers saw, in the order they saw it.
#[derive(Clone, Default)]
pub(crate) struct Seen(Arc<Mutex<Vec<Start>>>);

#[derive(Clone, Debug)]
pub(crate) struct Start {
    pub(crate) task_id: String,
    pub(crate) attempt: u32,
    pub(crate) at: DateTime<Utc>,
    pub(crate) queue: String,
}

impl Seen {
    pub(crate) fn note(&self, context: &Context) {
        self.0.lock().unwrap().push(Start {
            task_id: context.envelope.task_id.to_string(),
            attempt: context.attempt,
            at: Utc::now(),
            queue: context.queue.to_string(),
        });
    }

    /// Notes a delivery that a client without an SDK got.
    pub(crate) fn note_plain(&self, delivery: &lapin::message::Delivery, queue: &str) {
        let body: Json = serde_json::from_slice(&delivery.data).unwrap();
        self.0.lock().unwrap().push(Start {
            task_id: body["taskId"].as_str().unwrap().to_owned(),
            attempt: message::attempt(&delivery.properties),
            at: Utc::now(),
            queue: queue.to_owned(),
        });
    }

    pub(crate) fn all(&self) -> Vec<Start> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn ids(&self) -> Vec<String> {
        self.all().into_iter().map(|s| s.task_id).collect()
    }

    pub(crate) async fn wait(&self, count: usize) -> Vec<Start> {
        eventually(PATIENCE, &format!("{count} starts"), async || {
            self.0.lock().unwrap().len() >= count
        })
        .await;
        self.all()
    }
}

/// The metrics of this process, recorded from the first call on.
pub(crate) fn metrics() -> &'static Exporter {
    static EXPORTER: OnceLock<Exporter> = OnceLock::new();
    EXPORTER.get_or_init(|| Exporter::install().unwrap())
}

/// A handler that notes each start and succeeds.
pub(crate) fn noting(seen: &Seen) -> impl Fn(Context) -> std::future::Ready<()> + Send + Sync + 'static {
    let seen = seen.clone();
    move |context| {
        seen.note(&context);
        std::future::ready(())
    }
}

/// A value that a handler reads from the payload.
pub(crate) type Json = serde_json::Value;
