//! A platform with a ledger: tables, a relay, workers that ask.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use secrecy::SecretString;
use sqlx::PgPool;
use tidegate::{
    ledger::PostgresLedger,
    scheduler::relay::{self, RelaySettings},
    store::{
        Store, StoreSettings,
        tasks::{NewTask, TaskRecord},
    },
    telemetry::health::Health,
    worker::{
        WorkerBuilder,
        ledger::{Ask, Effect, Grant, Kept, KeyVerdict, Ledger, LedgerError, Report, Verdict, Wanted},
    },
};
use tidegate_core::headers::Origin;
use tidegate_testkit::{Database, eventually};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::platform::{PATIENCE, Platform, envelope};

pub(super) const QUEUE: &str = "order.close.queue";
pub(super) const TASK: &str = "order.close.timeout";

pub(super) struct Installation {
    pub(super) platform: Platform,
    pub(super) database: Database,
    pub(super) store: Store,
    /// For the test's own statements.
    pub(super) sql: PgPool,
    stop: CancellationToken,
    relay: Option<JoinHandle<()>>,
}

impl Installation {
    /// With a running relay.
    pub(super) async fn new() -> Self {
        let mut installation = Self::without_relay().await;
        installation.store.migrate().await.unwrap();
        installation.start_relay();
        installation
    }

    /// Without tables and without a relay.
    pub(super) async fn without_relay() -> Self {
        let (platform, database) = (Platform::new().await, Database::create().await);
        let url = SecretString::from(database.url().to_owned());
        Self {
            store: Store::connect(&url, &StoreSettings::default()).unwrap(),
            sql: PgPool::connect(database.url()).await.unwrap(),
            platform,
            database,
            stop: CancellationToken::new(),
            relay: None,
        }
    }

    pub(super) fn start_relay(&mut self) {
        let (store, tasks, stop) = (self.store.clone(), self.platform.tasks.clone(), self.stop.clone());
        self.relay = Some(tokio::spawn(async move {
            // It ends with an error while the database is away.
            while !stop.is_cancelled() {
                let settings = RelaySettings::default();
                let _ = relay::run(
                    store.clone(),
                    tasks.clone(),
                    settings,
                    Health::default(),
                    stop.clone(),
                )
                .await;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }));
    }

    pub(super) fn ledger(&self) -> PostgresLedger {
        PostgresLedger::connect(&self.database.url().to_owned().into()).unwrap()
    }

    /// A worker of [`QUEUE`] with the ledger.
    pub(super) fn worker(&self) -> WorkerBuilder {
        self.platform.worker().queue(QUEUE).ledger(self.ledger())
    }

    /// Inserts tasks that are due now.
    pub(super) async fn insert(&self, ids: &[&str]) {
        let tasks: Vec<NewTask> = ids.iter().map(|id| due_now(id)).collect();
        self.store.tasks().insert(&tasks).await.unwrap();
    }

    /// Publishes a message as the relay does.
    pub(super) async fn publish(&self, id: &str) {
        let mut task = crate::platform::task(&envelope(id, TASK, ""));
        task.origin = Origin::Sql;
        self.platform.tasks.send(task, Duration::ZERO).await.unwrap();
    }

    pub(super) async fn row(&self, id: &str) -> TaskRecord {
        self.store.tasks().get(id).await.unwrap().unwrap()
    }

    /// Waits until the task is in `state`.
    pub(super) async fn reaches(&self, id: &str, state: &str) -> TaskRecord {
        eventually(PATIENCE, &format!("{id} to be {state}"), async || {
            Some(self.row(id).await).filter(|row| row.state == state)
        })
        .await
    }

    pub(super) async fn all_reach(&self, state: &str, count: i64) {
        eventually(PATIENCE, &format!("{count} tasks to be {state}"), async || {
            let counts = self.store.tasks().counts().await.unwrap();
            counts.iter().any(|(s, n)| s == state && *n == count)
        })
        .await;
    }

    pub(super) async fn close(self) {
        self.stop.cancel();
        if let Some(relay) = self.relay {
            relay.await.unwrap();
        }
        self.platform.close().await;
        self.database.close().await;
    }
}

pub(super) fn due_now(id: &str) -> NewTask {
    NewTask {
        task_id: id.to_owned(),
        task_type: TASK.to_owned(),
        exchange: None,
        routing_key: None,
        envelope: envelope(id, TASK, ""),
        priority: 100,
        producer: None,
        trace_id: None,
        origin: Origin::Sql,
        // The database's clock decides what is due; an instant that has passed by any clock.
        due_at: chrono::Utc::now() - chrono::Duration::minutes(1),
    }
}

/// The ledger, with a count of what goes through.
#[derive(Clone)]
pub(crate) struct Counting {
    ledger: Arc<dyn Ledger>,
    counts: Arc<Counts>,
}

#[derive(Default)]
pub(crate) struct Counts {
    pub(super) starts: AtomicUsize,
    pub(super) started: AtomicUsize,
    pub(super) reports: AtomicUsize,
    pub(super) reported: AtomicUsize,
    pub(crate) claims: AtomicUsize,
    pub(crate) claimed: AtomicUsize,
    pub(crate) completes: AtomicUsize,
    pub(crate) completed: AtomicUsize,
    pub(crate) renews: AtomicUsize,
    pub(crate) renewed: AtomicUsize,
    pub(super) polls: AtomicUsize,
    pub(crate) largest: AtomicUsize,
    /// Whether asking for a handler's transaction panics: outside of the handler, where nobody catches it for one task.
    pub(crate) panics: AtomicBool,
}

impl Counting {
    pub(crate) fn new(ledger: PostgresLedger) -> (Self, Arc<Counts>) {
        let counts = Arc::new(Counts::default());
        let counting = Self {
            ledger: Arc::new(ledger),
            counts: counts.clone(),
        };
        (counting, counts)
    }

    fn count(&self, statements: &AtomicUsize, tasks: &AtomicUsize, batch: usize) {
        if batch > 0 {
            statements.fetch_add(1, Ordering::SeqCst);
            tasks.fetch_add(batch, Ordering::SeqCst);
            self.counts.largest.fetch_max(batch, Ordering::SeqCst);
        }
    }
}

#[async_trait]
impl Ledger for Counting {
    async fn start(&self, asked: &[Ask]) -> Result<Vec<Option<Verdict>>, LedgerError> {
        self.count(&self.counts.starts, &self.counts.started, asked.len());
        self.ledger.start(asked).await
    }

    async fn report(&self, reports: &[Report]) -> Result<Vec<bool>, LedgerError> {
        self.count(&self.counts.reports, &self.counts.reported, reports.len());
        self.ledger.report(reports).await
    }

    async fn cancel_requested(&self, task_ids: &[String]) -> Result<Vec<String>, LedgerError> {
        self.counts.polls.fetch_add(1, Ordering::SeqCst);
        self.ledger.cancel_requested(task_ids).await
    }

    async fn claim(&self, wanted: &[Wanted]) -> Result<Vec<Option<KeyVerdict>>, LedgerError> {
        self.count(&self.counts.claims, &self.counts.claimed, wanted.len());
        self.ledger.claim(wanted).await
    }

    async fn complete(&self, grants: &[Grant]) -> Result<Vec<Option<Kept>>, LedgerError> {
        self.count(&self.counts.completes, &self.counts.completed, grants.len());
        self.ledger.complete(grants).await
    }

    async fn release(&self, grants: &[Grant]) -> Result<Vec<Option<Kept>>, LedgerError> {
        self.ledger.release(grants).await
    }

    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Option<Kept>>, LedgerError> {
        self.count(&self.counts.renews, &self.counts.renewed, grants.len());
        self.ledger.renew(grants).await
    }

    fn apart(&self) -> Arc<dyn Ledger> {
        Arc::new(Self {
            ledger: self.ledger.apart(),
            counts: self.counts.clone(),
        })
    }

    fn effect(&self) -> Option<Box<dyn Effect>> {
        assert!(!self.counts.panics.load(Ordering::SeqCst), "as the test wants");
        self.ledger.effect()
    }
}
