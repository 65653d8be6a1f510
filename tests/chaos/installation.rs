//! What one test works on: a vhost with a topology, a database with the ledger, and the programs that use them.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use lapin::{Channel, Connection, ConnectionProperties};
use sqlx::{PgPool, postgres::PgPoolOptions};
use tempfile::TempDir;
use tidegate::{
    broker::{BrokerSettings, publisher::Publisher},
    publish::TaskPublisher,
    topology::Topology,
};
use tidegate_testkit::{Database, Process, Services, Vhost};

use crate::{journal::Journal, server::Server};

pub(crate) const WORK_QUEUE: &str = "chaos.work.queue";
pub(crate) const TICK_QUEUE: &str = "chaos.tick.queue";
pub(crate) const WORK: &str = "chaos.work";
pub(crate) const TICK: &str = "chaos.tick";

/// One queue for what producers send, with a high lane, and one for what cron rows send.
pub(crate) const QUEUES: &str = r#"
[[queue]]
name = "chaos.work.queue"
bind = ["chaos.work.#", "chaos.nobody"]
owner = "test"
task_types = ["chaos.work"]
retry = { max_retries = 3, initial = "200ms", multiplier = 2.0, max = "2s", jitter = 0.2 }
high_lane = { threshold = 200 }

[[queue]]
name = "chaos.tick.queue"
bind = ["chaos.tick"]
owner = "test"
task_types = ["chaos.tick"]
retry = { max_retries = 3, initial = "200ms", multiplier = 2.0, max = "2s", jitter = 0.2 }
"#;

/// Longest wait for what takes seconds on an idle machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Installation {
    pub(crate) vhost: Vhost,
    pub(crate) database: Database,
    pub(crate) topology: Arc<Topology>,
    dir: TempDir,
}

impl Installation {
    /// Migrated and declared by the programs themselves.
    pub(crate) async fn on(services: &Services) -> Self {
        Self::with(services, QUEUES).await
    }

    /// The same with other queues.
    pub(crate) async fn with(services: &Services, queues: &str) -> Self {
        let (vhost, database) = (
            Vhost::create_on(services).await,
            Database::create_on(services).await,
        );
        let dir = TempDir::with_prefix("tidegate-chaos-").unwrap();
        std::fs::create_dir(dir.path().join("topology")).unwrap();
        std::fs::write(dir.path().join("topology/platform.toml"), "").unwrap();
        std::fs::write(dir.path().join("topology/chaos.toml"), queues).unwrap();
        let installation = Self {
            vhost,
            database,
            topology: Arc::new(topology_of(queues)),
            dir,
        };
        for arguments in [&["migrate"][..], &["topology", "apply"]] {
            let mut command = installation.tidegate(arguments);
            let ran = tokio::task::spawn_blocking(move || command.output().unwrap())
                .await
                .unwrap();
            assert!(
                ran.status.success(),
                "{arguments:?}: {}",
                String::from_utf8_lossy(&ran.stderr)
            );
        }
        installation
    }

    /// The binary with this installation's environment.
    pub(crate) fn tidegate(&self, arguments: &[&str]) -> Command {
        self.tidegate_at(self.vhost.amqp_url(), self.database.url(), arguments)
    }

    /// The same with other addresses.
    pub(crate) fn tidegate_at(&self, amqp: &str, database: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(arguments).current_dir(self.dir.path()).env_clear();
        command.env("AMQP_URL", amqp).env("DATABASE_URL", database);
        command
    }

    /// Starts `tidegate serve` on free ports.
    pub(crate) async fn serve(&self, arguments: &[&str]) -> Server {
        Server::start(self.tidegate(&Server::arguments(arguments))).await
    }

    /// Starts a worker process on both queues.
    pub(crate) fn worker(&self) -> Process {
        crate::worker::start(self.vhost.amqp_url(), &self.journal_path())
    }

    /// Starts a worker process that reaches the broker elsewhere.
    pub(crate) fn worker_at(&self, amqp: &str) -> Process {
        crate::worker::start(amqp, &self.journal_path())
    }

    /// What the worker processes did.
    pub(crate) fn journal(&self) -> Journal {
        Journal::read(&self.journal_path())
    }

    fn journal_path(&self) -> PathBuf {
        self.path().join("journal")
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn broker(&self) -> BrokerSettings {
        BrokerSettings::new(self.vhost.amqp_url().to_owned().into())
    }

    /// The project's own publisher.
    pub(crate) fn publisher(&self, settings: &BrokerSettings) -> TaskPublisher {
        TaskPublisher::new(Publisher::start(settings).unwrap(), self.topology.clone())
    }

    /// A channel of a plain AMQP client.
    pub(crate) async fn channel(&self) -> lapin::Result<(Connection, Channel)> {
        let connection = Connection::connect(self.vhost.amqp_url(), ConnectionProperties::default()).await?;
        let channel = connection.create_channel().await?;
        Ok((connection, channel))
    }

    /// SQL as any client of the database sends it; connections that a kill has broken are opened anew.
    pub(crate) fn sql(&self) -> PgPool {
        let options = PgPoolOptions::new()
            .max_connections(4)
            .acquire_timeout(Duration::from_secs(15));
        options.connect_lazy(self.database.url()).unwrap()
    }
}

pub(crate) fn topology() -> Topology {
    topology_of(QUEUES)
}

pub(crate) fn topology_of(queues: &str) -> Topology {
    Topology::parse(&[("platform.toml", ""), ("chaos.toml", queues)]).unwrap()
}
