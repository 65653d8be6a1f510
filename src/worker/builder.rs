//! Putting a worker together.
//!
//! May import: `broker`, `publish`, `telemetry`, `topology`. Nothing is connected before the worker runs.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
    time::Duration,
};

use tidegate_core::{envelope::Limits, names::Names, policy::RetryPolicy, task::TaskType};
use tokio_util::sync::CancellationToken;
use tower::{Layer, Service};

use super::{
    admission::{Gate, Gates},
    build_error::BuildError,
    delivery::Station,
    handled::{Handled, Handlers},
    handler::{Handler, erase},
    idempotency::Keyring,
    isolation::Isolation,
    ledger::{Ledger, client::client},
    life::{self, Worker},
    queue::QueueLoop,
    repeats::Repeats,
    request::TaskRequest,
    service::{self, AnyLayer, TaskService},
    task_error::BoxError,
    timeouts,
};
use crate::{
    broker::{BrokerSettings, connection::Link, publisher::Publisher},
    publish::{TaskPublisher, settle::Settler},
    telemetry::{health::Health, metrics},
    topology::{BusinessQueue, TaskTypePolicy, Topology},
};

/// Collects queues, handlers and settings. `S` is the state that handlers take by
/// [`State`](super::extract::State), `()` where there is none.
pub struct WorkerBuilder<S = ()> {
    settings: BrokerSettings,
    topology: Arc<Topology>,
    state: Arc<S>,
    queues: Vec<String>,
    handlers: BTreeMap<String, TaskService>,
    layers: Vec<AnyLayer>,
    problem: Option<BuildError>,
    concurrency: usize,
    prefetch: Option<u16>,
    default_timeout: Duration,
    grace: Duration,
    limits: Limits,
    health: Health,
    ledger: Option<Arc<dyn Ledger>>,
}

impl<S> fmt::Debug for WorkerBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let types: Vec<_> = self.handlers.keys().collect();
        f.debug_struct("WorkerBuilder")
            .field("queues", &self.queues)
            .field("types", &types)
            .finish_non_exhaustive()
    }
}

impl Worker {
    /// Starts describing a worker on the broker of `settings`. It consumes on one connection and publishes what fails on
    /// another, whatever `publish_connections` says.
    pub fn builder(settings: BrokerSettings, topology: Arc<Topology>) -> WorkerBuilder {
        WorkerBuilder {
            settings,
            topology,
            state: Arc::new(()),
            queues: Vec::new(),
            handlers: BTreeMap::new(),
            layers: Vec::new(),
            problem: None,
            concurrency: 10,
            prefetch: None,
            default_timeout: Duration::from_secs(300),
            grace: Duration::from_secs(25),
            limits: Limits::standard(),
            health: Health::default(),
            ledger: None,
        }
    }
}

impl<S: Send + Sync + 'static> WorkerBuilder<S> {
    /// Gives `state` to the handlers that are declared after this; those before keep what they have.
    #[must_use]
    pub fn state<T: Send + Sync + 'static>(self, state: T) -> WorkerBuilder<T> {
        WorkerBuilder {
            state: Arc::new(state),
            settings: self.settings,
            topology: self.topology,
            queues: self.queues,
            handlers: self.handlers,
            layers: self.layers,
            problem: self.problem,
            concurrency: self.concurrency,
            prefetch: self.prefetch,
            default_timeout: self.default_timeout,
            grace: self.grace,
            limits: self.limits,
            health: self.health,
            ledger: self.ledger,
        }
    }

    /// Consumes `queue` and, where the topology gives it one, its high lane.
    #[must_use]
    pub fn queue(mut self, queue: &str) -> Self {
        if !self.queues.iter().any(|q| q == queue) {
            self.queues.push(queue.to_owned());
        }
        self
    }

    /// Handles tasks of `task_type` with `handler`: an async function of up to eight
    /// [extractors](super::extract) that answers `()` or `Result<(), E>` with `E: Into<TaskError>`.
    #[must_use]
    pub fn handle<H, T>(mut self, task_type: &str, handler: H) -> Self
    where
        H: Handler<T, S>,
        T: 'static,
    {
        match TaskType::parse(task_type) {
            Err(error) => self.problem = Some(BuildError::BadTaskType(task_type.to_owned(), error)),
            Ok(_) if self.handlers.contains_key(task_type) => {
                self.problem = Some(BuildError::TwoHandlers(task_type.to_owned()));
            }
            Ok(_) => {
                let service = TaskService::new(erase(handler, self.state.clone()));
                self.handlers.insert(task_type.to_owned(), service);
            }
        }
        self
    }

    /// Puts `layer` around every handler of this worker, whether declared before it or after it. The layer added last is
    /// the outermost, as in axum; a `tower::ServiceBuilder` is one layer whose first part is the outermost.
    ///
    /// A layer sees each try of a task, quick retries too, within the task's timeout and behind the panic boundary. What
    /// it answers in the handler's place is the outcome: a [`TaskError`](super::TaskError) as it stands, any other error
    /// as a retry.
    #[must_use]
    pub fn layer<L>(mut self, layer: L) -> Self
    where
        L: Layer<TaskService> + Send + Sync + 'static,
        L::Service: Service<TaskRequest, Response = ()> + Clone + Send + Sync + 'static,
        <L::Service as Service<TaskRequest>>::Error: Into<BoxError>,
        <L::Service as Service<TaskRequest>>::Future: Send + 'static,
    {
        self.layers.push(service::erase(layer));
        self
    }

    /// Most handlers running at once per queue, 1 to 10,000; default 10.
    #[must_use]
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency;
        self
    }

    /// Most deliveries held per lane, 1 to 65,535. Unset it follows what is measured: little more than the concurrency where
    /// handlers are slow, up to 500 more where they are fast.
    #[must_use]
    pub fn prefetch(mut self, prefetch: u16) -> Self {
        self.prefetch = Some(prefetch);
        self
    }

    /// How long a handler may run where neither the envelope (`timeoutMs`) nor its type in the topology (`timeout`) says;
    /// default 5 minutes.
    #[must_use]
    pub fn default_timeout(mut self, timeout: Duration) -> Self {
        self.default_timeout = timeout;
        self
    }

    /// How long running handlers may go on after shutdown begins; default 25 s.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Limits on what comes from outside; the standard ones unless set. Use those of `limits` in the server's settings.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Where the worker reports its consumers' states.
    #[must_use]
    pub fn health(mut self, health: Health) -> Self {
        self.health = health;
        self
    }

    /// Asks `ledger` before a task is started that came from it, and tells it how each ended. Without one, such tasks
    /// run all the same, and nobody can cancel them once they are handed over.
    #[must_use]
    pub fn ledger(mut self, ledger: impl Ledger + 'static) -> Self {
        self.ledger = Some(Arc::new(ledger));
        self
    }

    /// Checks everything, and begins to connect: nothing is consumed before [`Worker::run`]. Until it consumes, health is red. Must be
    /// called inside a tokio runtime.
    pub fn build(self) -> Result<Worker, BuildError> {
        if let Some(problem) = self.problem {
            return Err(problem);
        }
        if self.queues.is_empty() {
            return Err(BuildError::NoQueue);
        }
        if !(1..=10_000).contains(&self.concurrency) {
            let value = self.concurrency as u64;
            return Err(BuildError::OutOfRange {
                name: "concurrency",
                value,
                allowed: "1 to 10,000",
            });
        }
        if self.prefetch == Some(0) {
            // Zero means "no limit" to the broker: one worker would take the whole queue into its memory.
            return Err(BuildError::OutOfRange {
                name: "prefetch",
                value: 0,
                allowed: "1 to 65,535",
            });
        }
        if self.default_timeout < Duration::from_millis(1) {
            return Err(BuildError::OutOfRange {
                name: "default_timeout (ms)",
                value: 0,
                allowed: "1 ms or more",
            });
        }
        let mut consumed = Vec::new();
        for queue in &self.queues {
            let Some((described, _)) = self.topology.queue(queue) else {
                let all: Vec<_> = self.topology.queues.iter().map(|q| q.name.as_str()).collect();
                return Err(BuildError::UnknownQueue(queue.clone(), all.join(", ")));
            };
            consumed.push(described);
        }
        let handled = self.handlers.into_iter().map(|(task_type, handler)| {
            let service = self.layers.iter().fold(handler, |inner, layer| layer(inner));
            let handled = Handled::new(service, self.topology.types.get(&task_type), self.default_timeout);
            (task_type, handled)
        });
        let handlers: Handlers = Arc::new(handled.collect());
        timeouts::check(&self.topology, &consumed, &handlers)?;
        for task_type in handlers.keys() {
            if !consumed.iter().any(|queue| queue.takes(task_type)) {
                tracing::warn!(
                    task_type,
                    "none of this worker's queues takes tasks of this type, unless they come by another routing key"
                );
            }
        }
        if handlers.is_empty() {
            return Err(BuildError::NoHandler);
        }
        let (shutdown, hurry) = (CancellationToken::new(), CancellationToken::new());
        for task_type in handlers.keys() {
            metrics::know_task_type(task_type);
        }
        let (keyring, keeping) = Keyring::new(
            &handlers,
            &self.topology,
            self.ledger.as_ref(),
            &self.health,
            &hurry,
        )?
        .unzip();
        // Last of what can fail, since it begins to connect. It publishes what fails, for which one connection is plenty; each
        // takes 8 MiB of lapin's buffers.
        let publishing = BrokerSettings {
            publish_connections: 1,
            ..self.settings.clone()
        };
        let publisher = Publisher::start(&publishing).map_err(|e| BuildError::Broker(e.to_string()))?;
        let settler = Settler::new(TaskPublisher::new(publisher, self.topology.clone()), "worker");
        let link = Link::new(self.settings, "consume");
        let (ledger, following) = self
            .ledger
            .map(|ledger| client(ledger, &self.health, hurry.clone()))
            .unzip();
        let isolation = Isolation::new(shutdown.clone());
        let gates: Arc<Gates> = Arc::new(
            handlers
                .keys()
                .map(|name| (name.clone(), Arc::new(gate(&self.topology, name))))
                .collect(),
        );
        let station = |queue: &str, described: &BusinessQueue| {
            Arc::new(Station {
                queue: queue.into(),
                business: described.name.as_str().into(),
                policy: described.retry,
                policies: policies(&self.topology, described),
                gates: gates.clone(),
                limits: self.limits,
                broker_limit: timeouts::broker_limit(described),
                handlers: handlers.clone(),
                successes: handlers
                    .keys()
                    .map(|name| (name.clone(), Default::default()))
                    .collect(),
                settler: settler.clone(),
                ledger: ledger.clone(),
                keyring: keyring.clone(),
                repeats: Repeats::default(),
                shutdown: shutdown.clone(),
                hurry: hurry.clone(),
            })
        };
        let mut loops = Vec::new();
        for (queue, described) in self.queues.iter().zip(&consumed) {
            let high = described.high_lane.is_some() && described.name == *queue;
            loops.push(QueueLoop {
                link: link.clone(),
                normal: station(queue, described),
                high: high.then(|| station(&Names::high_lane(queue), described)),
                prefetch: self.prefetch,
                concurrency: self.concurrency,
                health: self.health.clone(),
                isolation: isolation.clone(),
                shutdown: shutdown.clone(),
            });
        }
        self.health.expect(life::PART);
        loops.iter().for_each(QueueLoop::expect);
        Ok(Worker {
            loops,
            link,
            shutdown,
            hurry,
            grace: self.grace,
            health: self.health,
            following,
            keeping,
        })
    }
}

fn gate(topology: &Topology, name: &str) -> Gate {
    let own = topology.types.get(name);
    own.map_or_else(|| Gate::new(&TaskTypePolicy::standard(name)), Gate::new)
}

/// The retry policies in `queue` of the types that have one of their own.
fn policies(topology: &Topology, queue: &BusinessQueue) -> HashMap<String, RetryPolicy> {
    let policy = |name: &String| (name.clone(), topology.retry(queue, Some(name)));
    topology.types.keys().map(policy).collect()
}
