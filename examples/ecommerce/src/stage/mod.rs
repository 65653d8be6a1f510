//! The stage: everything the example makes for itself and takes away again.
//!
//! A vhost, a database, a temporary directory, the real `tidegate` binary as a child process, the Python consumer as
//! another, and the shop's worker in this process. [`Stage::strike`] removes whatever of it was made, however far the
//! making got. Killed with -9 in between, what was made stays: a vhost and a database named `tidegate_demo_…`.

mod child;
mod database;
mod python;
mod tidegate_binary;
mod vhost;

use std::{path::PathBuf, sync::Arc, time::Duration};

use secrecy::SecretString;
use sqlx::PgPool;
use tidegate::{broker::BrokerSettings, topology::Topology};
use tokio::{task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;

use self::{child::Child, database::Database, vhost::Vhost};
use crate::{narrator::Narrator, problem::Problem, shop::Shop};

/// See the module.
pub(crate) struct Stage {
    narrator: Narrator,
    vhost: Vhost,
    database: Database,
    dir: tempfile::TempDir,
    server: Option<Child>,
    python: Option<Child>,
    pool: Option<PgPool>,
    worker: Option<JoinHandle<()>>,
    stop: CancellationToken,
    /// Where the server answers `/livez` and `/readyz`.
    pub(crate) health_url: String,
    /// Where the server answers `/metrics`.
    pub(crate) metrics_url: String,
}

impl Stage {
    /// Reads the environment and chooses names; makes nothing yet.
    pub(crate) fn plan(narrator: Narrator) -> Result<Self, Problem> {
        let name = format!(
            "tidegate_demo_{}",
            &uuid::Uuid::new_v4().simple().to_string()[..8]
        );
        let (health, metrics) = (free_port()?, free_port()?);
        Ok(Self {
            narrator,
            vhost: Vhost::plan(&name)?,
            database: Database::plan(&name)?,
            dir: tempfile::Builder::new().prefix(&name).tempdir()?,
            server: None,
            python: None,
            pool: None,
            worker: None,
            stop: CancellationToken::new(),
            health_url: format!("http://127.0.0.1:{health}"),
            metrics_url: format!("http://127.0.0.1:{metrics}"),
        })
    }

    /// Makes vhost and database, and runs the server on them until it is ready.
    pub(crate) async fn set(&mut self) -> Result<(), Problem> {
        self.narrator.say(
            "stage",
            format_args!("making vhost and database {}", self.vhost.name),
        );
        self.vhost.make().await?;
        self.pool = Some(self.database.make().await?);
        self.serve().await
    }

    /// A pool on the fresh database.
    pub(crate) fn pool(&self) -> Result<PgPool, Problem> {
        self.pool
            .clone()
            .ok_or_else(|| Problem::Missing("the stage is not set yet".to_owned()))
    }

    /// The broker as a client of the library sees it.
    pub(crate) fn broker(&self) -> BrokerSettings {
        let url = SecretString::from(self.vhost.amqp_url.as_str());
        BrokerSettings {
            name: "tidegate-ecommerce".to_owned(),
            ..BrokerSettings::new(url)
        }
    }

    /// The broker's URL, for clients that are none of the library's.
    pub(crate) fn amqp_url(&self) -> &str {
        &self.vhost.amqp_url
    }

    /// The name of vhost and database.
    pub(crate) fn name(&self) -> &str {
        &self.vhost.name
    }

    /// The management pages of the vhost, without credentials, and the user to log in as.
    pub(crate) fn management(&self) -> (String, String) {
        self.vhost.pages()
    }

    /// The directory of the topology files, the same that `tidegate topology apply` reads.
    pub(crate) fn topology_dir() -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../topology")
    }

    /// Starts the shop's worker in this process and the Python consumer beside it.
    pub(crate) async fn cast(&mut self, shop: &Shop, topology: Arc<Topology>) -> Result<(), Problem> {
        let worker = shop.worker(self.broker(), topology)?;
        self.worker = Some(tokio::spawn(worker.run(self.stop.clone())));
        self.narrator
            .say("stage", "the shop's worker runs in this process");
        self.start_python(shop).await
    }

    /// The last lines of what server, worker and consumer logged, and whether the first has ended.
    pub(crate) fn logs(&mut self) -> String {
        let server = match self.server.as_mut().map(Child::ended) {
            Some(None) => "tidegate serve is running".to_owned(),
            Some(Some(status)) => format!("tidegate serve has ended: {status}"),
            None => "tidegate serve was not started".to_owned(),
        };
        let part = |name: &str| {
            let text = std::fs::read(self.dir.path().join(name)).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let lines: Vec<_> = text.lines().collect();
            let tail = lines[lines.len().saturating_sub(25)..].join("\n");
            format!("--- the end of {name} ---\n{tail}")
        };
        format!(
            "{}\n{server}",
            ["server.log", "worker.log", "python.log"].map(part).join("\n")
        )
    }

    /// Where `worker.log` goes.
    pub(crate) fn log(&self, name: &str) -> Result<std::fs::File, Problem> {
        Ok(std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.dir.path().join(name))?)
    }

    /// Stops what runs and removes what was made, in that order. Each part has its own deadline.
    pub(crate) async fn strike(mut self) {
        self.narrator
            .say("stage", "stopping and removing everything this run made");
        self.stop.cancel();
        if let Some(mut worker) = self.worker.take()
            && timeout(Duration::from_secs(10), &mut worker).await.is_err()
        {
            worker.abort();
        }
        for child in [self.python.take(), self.server.take()].into_iter().flatten() {
            child.end().await;
        }
        if let Some(pool) = self.pool.take() {
            let _ = timeout(Duration::from_secs(5), pool.close()).await;
        }
        let removed = [self.vhost.remove().await, self.database.remove().await];
        for problem in removed.into_iter().filter_map(Result::err) {
            self.narrator.say("stage", format_args!("left behind: {problem}"));
        }
    }
}

/// A port that was free a moment ago.
fn free_port() -> Result<u16, Problem> {
    Ok(std::net::TcpListener::bind(("127.0.0.1", 0))?
        .local_addr()?
        .port())
}

/// A variable that has to be set.
fn required(name: &str) -> Result<String, Problem> {
    match std::env::var(name) {
        Ok(value) if !value.is_empty() => Ok(value),
        _ => Err(Problem::Missing(format!(
            "{name} is not set; run ./dev demo, which sets it and brings the services up"
        ))),
    }
}

/// A URL from the environment; the message holds no part of it, because it has a password in it.
fn url(name: &str) -> Result<reqwest::Url, Problem> {
    required(name)?
        .parse()
        .map_err(|why| Problem::Missing(format!("{name} is no URL: {why}")))
}
