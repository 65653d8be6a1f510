//! A platform with a ledger, types with idempotency, a table of effects, and workers as processes of their own.

use std::{process::Command, time::Duration};

use serde::Deserialize;
use sqlx::PgPool;
use tidegate::{
    broker::BrokerSettings,
    ledger::{PostgresLedger, Transaction},
    store::{Store, StoreSettings},
    topology::Topology,
    worker::{Context, TaskError, Worker, WorkerBuilder, extract::Payload},
};
use tidegate_testkit::{Database, Process, eventually};
use tokio::time::Instant;

use crate::platform::{PATIENCE, Platform};

pub(super) const QUEUE: &str = "pay.queue";
/// Keeps what it did apart from the ledger.
pub(super) const BY_KEY: &str = "pay.order.charge";
/// Does it in the ledger's transaction.
pub(super) const DATABASE: &str = "pay.points.credit";
/// The shortest there is.
pub(super) const LEASE: Duration = Duration::from_secs(3);

const TOPOLOGY: &str = r#"
[[queue]]
name = "pay.queue"
bind = ["pay.#"]
owner = "test"
retry = { max_retries = 3, initial = "100ms", multiplier = 1.0, max = "1s", jitter = 0.0 }

[[task_type]]
name = "pay.order.charge"
idempotency = "key"
idempotency_field = "/orderId"
idempotency_lease = "3s"

[[task_type]]
name = "pay.points.credit"
idempotency = "database"
idempotency_field = "/orderId"
idempotency_lease = "3s"
"#;

pub(super) struct Stage {
    pub(super) platform: Platform,
    pub(super) database: Database,
    pub(super) sql: PgPool,
}

impl Stage {
    pub(super) async fn new() -> Self {
        Self::leasing("3s").await
    }

    /// With leases of another length.
    pub(super) async fn leasing(lease: &str) -> Self {
        let topology = TOPOLOGY.replace("\"3s\"", &format!("\"{lease}\""));
        let (platform, database) = (Platform::with(&topology).await, Database::create().await);
        let url = database.url().to_owned().into();
        let store = Store::connect(&url, &StoreSettings::default()).unwrap();
        store.migrate().await.unwrap();
        let sql = PgPool::connect(database.url()).await.unwrap();
        sqlx::query("CREATE TABLE effects (task_id text, key text, step text, at timestamptz DEFAULT clock_timestamp())")
            .execute(&sql)
            .await
            .unwrap();
        store.close().await;
        Self {
            platform,
            database,
            sql,
        }
    }

    pub(super) fn ledger(&self) -> PostgresLedger {
        PostgresLedger::connect(&self.database.url().to_owned().into()).unwrap()
    }

    pub(super) fn worker(&self) -> WorkerBuilder {
        self.platform.worker().queue(QUEUE).ledger(self.ledger())
    }

    /// Publishes a task whose payload says what its handler does.
    pub(super) async fn send(&self, task_type: &str, id: &str, order: &str, more: &str) {
        let body = format!(
            r#"{{"taskId":"{id}","taskType":"{task_type}","payload":{{"orderId":"{order}"{more}}}}}"#
        );
        // A busy machine may keep a confirm back for too long; one more copy is no harm here.
        eventually(PATIENCE * 3, "a confirm", async || {
            self.platform.send(&body, Duration::ZERO).await.is_ok()
        })
        .await;
    }

    /// How often `step` was noted for a key.
    pub(super) async fn count(&self, key: &str, step: &str) -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM effects WHERE key = $1 AND step = $2")
            .bind(key)
            .bind(step)
            .fetch_one(&self.sql)
            .await
            .unwrap()
    }

    pub(super) async fn reaches(&self, key: &str, step: &str, count: i64) {
        eventually(PATIENCE * 3, &format!("{key} {step} {count} times"), async || {
            self.count(key, step).await >= count
        })
        .await;
        assert_eq!(self.count(key, step).await, count, "{key} {step}");
    }

    /// State and fence of a key.
    pub(super) async fn key(&self, key: &str) -> Option<(String, i64)> {
        sqlx::query_as("SELECT state, fence FROM tidegate.executions WHERE idempotency_key = $1")
            .bind(key)
            .fetch_optional(&self.sql)
            .await
            .unwrap()
    }

    pub(super) async fn done(&self, key: &str) {
        eventually(PATIENCE * 3, &format!("{key} to be done"), async || {
            self.key(key).await.is_some_and(|(state, _)| state == "DONE")
        })
        .await;
    }

    /// Waits until no delivery is anywhere, neither in the queue nor in the ladder, and nothing has become a dead letter.
    pub(super) async fn settled(&self) {
        let mut since: Option<Instant> = None;
        eventually(PATIENCE * 3, "every delivery to be acknowledged", async || {
            let queues = self.platform.vhost.management().queues().await;
            let is_empty = !queues.is_empty() && queues.iter().all(|queue| queue.messages == 0);
            since = is_empty.then(|| since.unwrap_or_else(Instant::now));
            // The broker counts once per second, and a message may move behind the back of one look.
            since.is_some_and(|since| since.elapsed() > Duration::from_secs(3))
        })
        .await;
    }

    /// A worker of both types as a process of its own.
    pub(super) fn process(&self) -> Process {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([
            "--exact",
            "idempotency::stage::process",
            "--ignored",
            "--nocapture",
        ]);
        command.env(AMQP, self.platform.vhost.amqp_url());
        command.env(POSTGRES, self.database.url());
        Process::start("idempotent worker", &mut command)
    }

    pub(super) async fn close(self) {
        self.sql.close().await;
        self.platform.close().await;
        self.database.close().await;
    }
}

const AMQP: &str = "TIDEGATE_IDEMPOTENT_WORKER_AMQP_URL";
const POSTGRES: &str = "TIDEGATE_IDEMPOTENT_WORKER_DATABASE_URL";

/// What a handler is to do.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Order {
    #[serde(rename = "orderId")]
    order_id: String,
    /// Waits so long after it began.
    #[serde(default)]
    ms: u64,
    /// Fails so many attempts, after the effect.
    #[serde(default)]
    fails: u32,
    /// Blocks its thread instead of waiting.
    #[serde(default)]
    blocks: bool,
    /// Ends the process by itself after the effect, if no run has begun before this one.
    #[serde(default)]
    dies: bool,
}

impl Order {
    /// Notes the start, waits, does what it does by `connection`, fails or succeeds.
    async fn begin(&self, sql: &PgPool, context: &Context) -> Result<(), TaskError> {
        note(sql, context, &self.order_id, "start").await?;
        if self.blocks {
            std::thread::sleep(Duration::from_millis(self.ms));
        } else {
            tokio::time::sleep(Duration::from_millis(self.ms)).await;
        }
        Ok(())
    }

    async fn end(&self, sql: &PgPool, context: &Context) -> Result<(), TaskError> {
        let starts: i64 =
            sqlx::query_scalar("SELECT count(*) FROM effects WHERE key = $1 AND step = 'start'")
                .bind(&self.order_id)
                .fetch_one(sql)
                .await?;
        if self.dies && starts == 1 {
            std::process::abort();
        }
        if context.attempt <= self.fails {
            return Err(TaskError::retry("fails", "as the payload says"));
        }
        Ok(())
    }
}

async fn note<'e>(
    on: impl sqlx::PgExecutor<'e>,
    context: &Context,
    key: &str,
    step: &str,
) -> Result<(), sqlx::Error> {
    sqlx::query("INSERT INTO effects (task_id, key, step) VALUES ($1, $2, $3)")
        .bind(context.envelope.task_id.as_str())
        .bind(key)
        .bind(step)
        .execute(on)
        .await?;
    Ok(())
}

/// The handlers of both types, which note in `sql` what they do.
pub(super) fn handling(worker: WorkerBuilder, sql: &PgPool) -> WorkerBuilder {
    let (by_key, database) = (sql.clone(), sql.clone());
    worker
        .handle(BY_KEY, move |context: Context, Payload(order): Payload<Order>| {
            let sql = by_key.clone();
            async move {
                order.begin(&sql, &context).await?;
                note(&sql, &context, &order.order_id, "effect").await?;
                order.end(&sql, &context).await
            }
        })
        .handle(
            DATABASE,
            move |context: Context, Payload(order): Payload<Order>| {
                let sql = database.clone();
                async move {
                    order.begin(&sql, &context).await?;
                    let mut transaction = Transaction::of(&context).await?;
                    note(&mut *transaction, &context, &order.order_id, "effect").await?;
                    order.end(&sql, &context).await
                }
            },
        )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the worker process that the other tests start"]
async fn process() {
    let Ok(url) = std::env::var(AMQP) else { return };
    tracing_subscriber::fmt().with_ansi(false).init();
    let database = std::env::var(POSTGRES).unwrap();
    let topology =
        Topology::parse(&[("platform.toml", "prefix = \"task\""), ("test.toml", TOPOLOGY)]).unwrap();
    let worker = Worker::builder(BrokerSettings::new(url.into()), std::sync::Arc::new(topology))
        .queue(QUEUE)
        .concurrency(4)
        .ledger(PostgresLedger::connect(&database.clone().into()).unwrap());
    let sql = PgPool::connect(&database).await.unwrap();
    handling(worker, &sql).build().unwrap().run_until_signal().await;
}
