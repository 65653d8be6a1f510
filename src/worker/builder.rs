//! Putting a worker together, running and stopping it.

use std::{collections::HashMap, future::Future, sync::Arc, time::Duration};

use serde::de::DeserializeOwned;
use tidegate_core::{envelope::Limits, names::Names, task::TaskType};
use tokio::task::JoinSet;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    attempt::Station,
    handler::{Context, Handlers, TaskError, erase},
    ledger::{
        Ledger,
        client::{Loops, client},
    },
    queue::{Lane, QueueLoop},
};
use crate::{
    broker::{BrokerSettings, connection::Link, publisher::Publisher},
    publish::{TaskPublisher, settle::Settler},
    telemetry::{health::Health, metrics},
    topology::{BusinessQueue, Topology},
};

/// How long giving back may take after the grace period, before the process ends without it.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Why a worker can't be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The topology has no such queue.
    #[error("queue {0:?} is not in the topology; its queues are: {1}")]
    UnknownQueue(String, String),
    /// No queue was named.
    #[error("a worker needs at least one queue: call `queue`")]
    NoQueue,
    /// Two handlers for one type.
    #[error("task type {0:?} has two handlers")]
    TwoHandlers(String),
    /// Not a task type.
    #[error("{0:?}: {1}")]
    BadTaskType(String, tidegate_core::task::InvalidName),
    /// A number out of its range.
    #[error("{name} is {value}; use {allowed}")]
    OutOfRange {
        /// Which setting.
        name: &'static str,
        /// What was given.
        value: u64,
        /// What is allowed.
        allowed: &'static str,
    },
    /// The publish pool could not be made.
    #[error("publish connections: {0}")]
    Pool(String),
}

/// Collects queues, handlers and settings.
pub struct WorkerBuilder {
    settings: BrokerSettings,
    topology: Arc<Topology>,
    queues: Vec<String>,
    handlers: Handlers,
    problem: Option<BuildError>,
    concurrency: usize,
    prefetch: Option<u16>,
    default_timeout: Duration,
    grace: Duration,
    limits: Limits,
    health: Health,
    ledger: Option<Arc<dyn Ledger>>,
}

impl std::fmt::Debug for WorkerBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let types: Vec<_> = self.handlers.keys().collect();
        f.debug_struct("WorkerBuilder")
            .field("queues", &self.queues)
            .field("types", &types)
            .finish_non_exhaustive()
    }
}

impl WorkerBuilder {
    /// Consumes `queue` and, where the topology gives it one, its high lane.
    #[must_use]
    pub fn queue(mut self, queue: &str) -> Self {
        if !self.queues.iter().any(|q| q == queue) {
            self.queues.push(queue.to_owned());
        }
        self
    }

    /// Handles tasks of `task_type` with `handler`, whose payload type is deserialised from the payload's text.
    #[must_use]
    pub fn handle<P, F, Fut>(mut self, task_type: &str, handler: F) -> Self
    where
        P: DeserializeOwned,
        F: Fn(Context, P) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), TaskError>> + Send + 'static,
    {
        match TaskType::parse(task_type) {
            Err(error) => self.problem = Some(BuildError::BadTaskType(task_type.to_owned(), error)),
            Ok(_) if self.handlers.contains_key(task_type) => {
                self.problem = Some(BuildError::TwoHandlers(task_type.to_owned()));
            }
            Ok(_) => {
                self.handlers.insert(task_type.to_owned(), erase(handler));
            }
        }
        self
    }

    /// Most handlers running at once per queue, 1 to 10,000; default 10.
    #[must_use]
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency;
        self
    }

    /// Most deliveries held per lane, 1 to 65,535; default twice the concurrency.
    #[must_use]
    pub fn prefetch(mut self, prefetch: u16) -> Self {
        self.prefetch = Some(prefetch);
        self
    }

    /// How long a handler may run where the envelope has no `timeoutMs`; default 5 minutes.
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

    /// Checks everything; connects to nothing yet. Must be called inside a tokio runtime.
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
        let twice = u16::try_from(self.concurrency.saturating_mul(2)).unwrap_or(u16::MAX);
        let prefetch = self.prefetch.unwrap_or(twice);
        if prefetch == 0 {
            // Zero means "no limit" to the broker: one worker would take the whole queue into its memory.
            return Err(BuildError::OutOfRange {
                name: "prefetch",
                value: 0,
                allowed: "1 to 65,535",
            });
        }
        let publisher = Publisher::start(&self.settings).map_err(|e| BuildError::Pool(e.to_string()))?;
        let settler = Settler::new(TaskPublisher::new(publisher, self.topology.clone()), "worker");
        let (shutdown, hurry) = (CancellationToken::new(), CancellationToken::new());
        let link = Link::new(self.settings, "consume");
        for task_type in self.handlers.keys() {
            metrics::know_task_type(task_type);
        }
        let (ledger, following) = self
            .ledger
            .map(|ledger| client(ledger, &self.health, hurry.clone()))
            .unzip();
        let station = |queue: &str, described: &BusinessQueue| {
            Arc::new(Station {
                queue: queue.into(),
                business: described.name.as_str().into(),
                policy: described.retry,
                limits: self.limits,
                default_timeout: self.default_timeout,
                handlers: self.handlers.clone(),
                settler: settler.clone(),
                ledger: ledger.clone(),
                shutdown: shutdown.clone(),
                hurry: hurry.clone(),
            })
        };
        let mut loops = Vec::new();
        for queue in &self.queues {
            let Some((described, _)) = self.topology.queue(queue) else {
                let all: Vec<_> = self.topology.queues.iter().map(|q| q.name.as_str()).collect();
                return Err(BuildError::UnknownQueue(queue.clone(), all.join(", ")));
            };
            let high = described.high_lane.is_some() && described.name == *queue;
            loops.push(QueueLoop {
                link: link.clone(),
                normal: Lane {
                    station: station(queue, described),
                },
                high: high.then(|| Lane {
                    station: station(&Names::high_lane(queue), described),
                }),
                prefetch,
                concurrency: self.concurrency,
                health: self.health.clone(),
                shutdown: shutdown.clone(),
            });
        }
        Ok(Worker {
            loops,
            link,
            shutdown,
            hurry,
            grace: self.grace,
            following,
        })
    }
}

/// A worker ready to run.
pub struct Worker {
    loops: Vec<QueueLoop>,
    link: Link,
    shutdown: CancellationToken,
    hurry: CancellationToken,
    grace: Duration,
    following: Option<Loops>,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker")
            .field("queues", &self.loops.len())
            .finish_non_exhaustive()
    }
}

impl Worker {
    /// Starts describing a worker on the broker of `settings`.
    pub fn builder(settings: BrokerSettings, topology: Arc<Topology>) -> WorkerBuilder {
        WorkerBuilder {
            settings,
            topology,
            queues: Vec::new(),
            handlers: HashMap::new(),
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

    /// Runs until `stop` is cancelled, then shuts down: nothing new starts, what has not started is given back,
    /// what runs may finish within the grace period and is interrupted and given back after it.
    pub async fn run(self, stop: CancellationToken) {
        let following = self
            .following
            .map(|following| AbortOnDropHandle::new(tokio::spawn(following.run())));
        let mut loops = JoinSet::new();
        for queue in self.loops {
            loops.spawn(queue.run_on());
        }
        stop.cancelled().await;
        tracing::info!(grace = ?self.grace, "worker stops: finishing what runs");
        self.shutdown.cancel();
        let drained = async { while loops.join_next().await.is_some() {} };
        tokio::pin!(drained);
        tokio::select! {
            () = &mut drained => {}
            () = tokio::time::sleep(self.grace) => {
                tracing::warn!("grace period over: interrupting what still runs");
                self.hurry.cancel();
                if tokio::time::timeout(LAST_WORDS, &mut drained).await.is_err() {
                    // Unacknowledged: the broker has it back as soon as the connection is gone.
                    tracing::warn!("the broker does not take back what was interrupted; leaving it unacknowledged");
                }
            }
        }
        // It ends by itself once every result is written.
        if let Some(following) = following
            && tokio::time::timeout(LAST_WORDS, following).await.is_err()
        {
            tracing::warn!(
                "the ledger doesn't take the last results; it goes on showing those tasks as they were"
            );
        }
        // Against a broker that hangs the link may be busy connecting for longer than anybody waits for us.
        let _ = tokio::time::timeout(LAST_WORDS, self.link.close()).await;
    }

    /// As [`run`](Self::run), until SIGTERM or SIGINT. A second signal ends the grace period at once.
    pub async fn run_until_signal(self) {
        let (stop, hurry) = (CancellationToken::new(), self.hurry.clone());
        let signals = tokio::spawn({
            let stop = stop.clone();
            async move {
                crate::supervisor::signal().await;
                stop.cancel();
                crate::supervisor::signal().await;
                hurry.cancel();
            }
        });
        self.run(stop).await;
        signals.abort();
    }
}
