//! What is measured on: a database with the ledger, a virtual host with one queue, the server as a process.

use std::{path::Path, process::Command, sync::Arc, time::Duration};

use lapin::{Connection, ConnectionProperties, options::QueuePurgeOptions};
use secrecy::SecretString;
use sqlx::PgPool;
use tempfile::TempDir;
use tidegate::{
    broker::{BrokerSettings, declare, publisher::Publisher},
    publish::TaskPublisher,
    store::{Store, StoreSettings},
    topology::Topology,
};
use tidegate_testkit::{Process, Vhost, eventually};

/// Task type and routing key.
pub(crate) const TASK_TYPE: &str = "bench.work";
pub(crate) const QUEUE: &str = "bench.work.queue";

/// Size of an envelope, in bytes.
pub(crate) const BYTES: usize = 1_000;

const TOPOLOGY: &str = r#"
[[queue]]
name = "bench.work.queue"
bind = ["bench.work"]
owner = "bench"
task_types = ["bench.work"]
"#;

const PATIENCE: Duration = Duration::from_secs(60);

/// A database with the tables in it.
pub(crate) struct Database {
    pub(crate) sql: PgPool,
    pub(crate) store: Store,
    database: tidegate_testkit::Database,
}

impl Database {
    pub(crate) async fn create() -> Self {
        let database = tidegate_testkit::Database::create().await;
        let store = store(database.url());
        store.migrate().await.unwrap();
        Self {
            sql: PgPool::connect(database.url()).await.unwrap(),
            store,
            database,
        }
    }

    pub(crate) fn url(&self) -> &str {
        self.database.url()
    }

    pub(crate) async fn execute(&self, statement: &'static str) {
        sqlx::query(statement).execute(&self.sql).await.unwrap();
    }

    /// Fresh statistics and nothing left for autovacuum to do in the middle of a run.
    pub(crate) async fn settle(&self) {
        self.execute("VACUUM (ANALYZE) tidegate.cron_tasks").await;
        self.execute("VACUUM (ANALYZE) tidegate.tasks").await;
        self.execute("CHECKPOINT").await;
    }

    pub(crate) async fn close(self) {
        self.sql.close().await;
        self.store.close().await;
        self.database.close().await;
    }
}

/// A store as a process has it.
pub(crate) fn store(url: &str) -> Store {
    Store::connect(&SecretString::from(url.to_owned()), &StoreSettings::default()).unwrap()
}

/// A virtual host with the platform and one queue.
pub(crate) struct Broker {
    pub(crate) vhost: Vhost,
    pub(crate) publisher: TaskPublisher,
}

impl Broker {
    /// Empties the queue, which must hold at least so many.
    pub(crate) async fn emptied(&self, at_least: u32) {
        let connection = Connection::connect(self.vhost.amqp_url(), ConnectionProperties::default())
            .await
            .unwrap();
        let channel = connection.create_channel().await.unwrap();
        let count = channel
            .queue_purge(QUEUE.into(), QueuePurgeOptions::default())
            .await
            .unwrap();
        assert!(
            count >= at_least,
            "{count} messages of {at_least} were on the queue"
        );
        connection.close(200, "done".into()).await.unwrap();
    }

    pub(crate) async fn create() -> Self {
        let vhost = Vhost::create().await;
        let topology = Arc::new(Topology::parse(&[("platform.toml", ""), ("bench.toml", TOPOLOGY)]).unwrap());
        let connection = Connection::connect(vhost.amqp_url(), ConnectionProperties::default())
            .await
            .unwrap();
        declare::apply(&connection, &topology.objects(), |_| {})
            .await
            .unwrap();
        connection.close(200, "declared".into()).await.unwrap();
        let settings = BrokerSettings::new(vhost.amqp_url().to_owned().into());
        let publisher = TaskPublisher::new(Publisher::start(&settings).unwrap(), topology);
        Self { vhost, publisher }
    }
}

/// `tidegate serve` with scheduler and relay.
pub(crate) struct Server {
    pub(crate) process: Process,
    // Its working directory.
    _files: TempDir,
}

impl Server {
    pub(crate) async fn start(vhost: &Vhost, database: &Database) -> Self {
        let files = TempDir::with_prefix("tidegate-bench-").unwrap();
        let topology = files.path().join("topology");
        std::fs::create_dir(&topology).unwrap();
        std::fs::write(topology.join("platform.toml"), "").unwrap();
        std::fs::write(topology.join("bench.toml"), TOPOLOGY).unwrap();
        let mut command = serve(files.path());
        command
            .env("AMQP_URL", vhost.amqp_url())
            .env("DATABASE_URL", database.url());
        let process = Process::start("serve", &mut command);
        let address = eventually(PATIENCE, "serve to listen", async || {
            let log = process.output();
            let lines = log
                .lines()
                .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
            let line = lines.into_iter().find(|line| line["setting"] == "http.listen")?;
            line["address"].as_str().map(ToOwned::to_owned)
        })
        .await;
        let url = format!("http://{address}/readyz");
        eventually(PATIENCE, "serve to be ready", async || {
            reqwest::get(&url)
                .await
                .is_ok_and(|answer| answer.status().is_success())
        })
        .await;
        Self {
            process,
            _files: files,
        }
    }

    /// User and system time so far.
    pub(crate) fn cpu(&self) -> Duration {
        self.process.cpu()
    }
}

fn serve(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["serve", "--roles", "scheduler,relay"]);
    command.args(["--http-listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"]);
    command
        .current_dir(directory)
        .env_clear()
        .env("TIDEGATE_LOG_FORMAT", "json");
    command
}

/// The envelope of task `n`.
pub(crate) fn body(n: u32) -> String {
    let start = format!(r#"{{"taskId":"bench-{n:08}","taskType":"{TASK_TYPE}","payload":{{"pad":""#);
    let pad = BYTES - start.len() - 3;
    format!("{start}{}\"}}}}", "x".repeat(pad))
}
