//! `tidegate serve`: runs roles until told to stop.
//!
//! May import: `services`, `api`, `supervisor` and the roles. Broker and database may be away at the start and at
//! any time after: readiness is red until they answer. If the process dies at any line, what was in work is
//! delivered again: each role acknowledges only what is durable.

mod roles;

use std::{convert::Infallible, net::SocketAddr, time::Duration};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use self::roles::{needs_database, start};
use super::{
    failure::{Exit, Failure},
    services,
};
use crate::{
    api,
    broker::{BrokerSettings, connection::Link, presence, publisher::Publisher},
    config::{Config, Role},
    publish::TaskPublisher,
    store::{Store, StoreError},
    supervisor::supervise,
    telemetry::{exporter::Exporter, health::Health, metrics},
    topology::export::used_by_serve,
};

/// Name of the database in health and logs.
const DATABASE: &str = "database";

/// Arguments of `serve`.
#[derive(Debug, clap::Args)]
pub(super) struct Serve {
    /// Roles to run: scheduler, relay, router, archivist, monitor [default: all]
    #[arg(long, value_name = "ROLES")]
    roles: Option<String>,
    /// Longest wait for running work after the first signal [default: 25s]
    #[arg(long, value_name = "SPAN")]
    grace: Option<String>,
    /// Address of /livez and /readyz [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS")]
    http_listen: Option<SocketAddr>,
    /// Address of /metrics [default: 127.0.0.1:9400]
    #[arg(long, value_name = "ADDRESS")]
    metrics_listen: Option<SocketAddr>,
}

/// What the roles share. The publisher is there only where a role publishes, and so is the store.
struct Shared {
    health: Health,
    cancel: CancellationToken,
    store: Option<Store>,
    publisher: Option<TaskPublisher>,
    link: Option<Link>,
    broker: Option<BrokerSettings>,
}

impl Serve {
    /// The settings that its own flags stand for.
    pub(super) fn settings(&self) -> Vec<(String, String)> {
        [
            ("serve.roles", self.roles.clone()),
            ("serve.grace", self.grace.clone()),
            ("http.listen", self.http_listen.map(|address| address.to_string())),
            (
                "metrics.listen",
                self.metrics_listen.map(|address| address.to_string()),
            ),
        ]
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?)))
        .collect()
    }

    /// Runs until a signal; returns once everything has ended.
    pub(super) async fn run(self, config: &Config) -> Result<(), Failure> {
        let mut signals = Signals::new()?;
        let exporter = Exporter::install()
            .map_err(|why| Failure::new(Exit::Failed, why, "metrics", "report this as a bug"))?;
        let (health, cancel) = (Health::default(), CancellationToken::new());
        let shared = build(config, &health, &cancel)?;
        // Before anybody can ask: what has not begun is not ready.
        for role in &config.serve.roles {
            health.expect(role.as_str());
        }

        let mut listeners = JoinSet::new();
        let stop_listening = CancellationToken::new();
        for (address, setting, router) in [
            (
                config.http.listen,
                "http.listen",
                api::health::router(health.clone()),
            ),
            (
                config.metrics.listen,
                "metrics.listen",
                api::metrics::router(exporter.clone()),
            ),
        ] {
            let listener = api::bind(address, setting).await.map_err(|error| {
                Failure::new(Exit::Usage, error, setting, "free the address, or choose another")
            })?;
            // With port 0 this is where the port can be read.
            tracing::info!(address = %listener.local_addr().unwrap_or(address), setting, "listening");
            listeners.spawn(api::serve(
                listener,
                router,
                stop_listening.clone().cancelled_owned(),
            ));
        }
        listeners.spawn(async move {
            exporter.upkeep().await;
            Ok(())
        });

        let mut roles = JoinSet::new();
        look_for_topology(&shared, &mut roles);
        watch_database(config, &shared, &mut roles);
        for role in &config.serve.roles {
            start(*role, config, &shared, &mut roles);
        }
        tracing::info!(roles = ?config.serve.roles, version = env!("CARGO_PKG_VERSION"), "started");

        let name = signals.next().await;
        tracing::info!(signal = name, grace = ?config.serve.grace, "stopping: nothing new starts, running work finishes");
        health.expect("shutdown");
        health.down("shutdown", "the process is stopping");
        cancel.cancel();
        let ended = finish(&mut roles, &mut signals, config.serve.grace).await;
        stop_listening.cancel();
        if let Some(store) = shared.store {
            // Roles that were left behind may still hold connections.
            let _ = tokio::time::timeout(Duration::from_secs(1), store.close()).await;
        }
        ended
    }
}

/// Waits for the roles: all ended is a clean stop, a second signal or the end of the grace period is not.
async fn finish(roles: &mut JoinSet<()>, signals: &mut Signals, grace: Duration) -> Result<(), Failure> {
    let all_ended = async { while roles.join_next().await.is_some() {} };
    let unfinished = |what: &str| {
        Failure::new(
            Exit::Failed,
            what,
            "serve",
            "nothing is lost: what was in work is delivered again; a longer serve.grace lets it finish",
        )
    };
    tokio::select! {
        () = all_ended => {
            tracing::info!("stopped");
            Ok(())
        }
        name = signals.next() => Err(unfinished(&format!("stopped at once by a second signal ({name})"))),
        () = tokio::time::sleep(grace) => Err(unfinished("work was still running at the end of the grace period")),
    }
}

fn build(config: &Config, health: &Health, cancel: &CancellationToken) -> Result<Shared, Failure> {
    let has = |role| config.serve.roles.contains(&role);
    let (health, cancel) = (health.clone(), cancel.clone());
    // A router that runs beside no relay works without a ledger; with one, it hands unroutable tasks back to it.
    let needs_store = needs_database(config);
    let store = if needs_store || config.database.url().is_ok() {
        Some(services::store(config)?)
    } else {
        None
    };
    if !(has(Role::Relay) || has(Role::Router) || has(Role::Archivist)) {
        return Ok(Shared {
            health,
            cancel,
            store,
            publisher: None,
            link: None,
            broker: None,
        });
    }
    let topology = services::topology(&config.topology.dir)?;
    for task_type in topology.task_types() {
        metrics::know_task_type(&task_type);
    }
    let settings = services::broker(config, "tidegate serve")?;
    let publisher = Publisher::start(&settings)
        .map_err(|why| Failure::new(Exit::Failed, why, "publisher", "report this as a bug"))?;
    let publisher = TaskPublisher::new(publisher, topology);
    Ok(Shared {
        health,
        cancel,
        store,
        publisher: Some(publisher),
        link: Some(Link::new(settings.clone(), "consume")),
        broker: Some(settings),
    })
}

/// Readiness says what is missing on the broker: `serve` never declares, and may have no right to.
fn look_for_topology(shared: &Shared, roles: &mut JoinSet<()>) {
    let (Some(settings), Some(publisher)) = (shared.broker.clone(), &shared.publisher) else {
        return;
    };
    let objects = used_by_serve(publisher.topology());
    let (health, cancel) = (shared.health.clone(), shared.cancel.clone());
    roles.spawn(async move {
        let look = || async {
            presence::watch(&settings, &objects, "topology", &health, &cancel).await;
            cancel.cancelled().await;
            Ok::<(), Infallible>(())
        };
        supervise("topology", health.clone(), cancel.clone(), look).await;
    });
}

/// Readiness says when the database doesn't answer or takes no writes, and roles that wait for it then start again. Only
/// where a role can't work without it.
fn watch_database(config: &Config, shared: &Shared, roles: &mut JoinSet<()>) {
    let Some(store) = shared.store.clone().filter(|_| needs_database(config)) else {
        return;
    };
    let (health, cancel) = (shared.health.clone(), shared.cancel.clone());
    health.expect(DATABASE);
    roles.spawn(async move {
        let watch = || async {
            let report = |seen: Result<(), StoreError>| match seen {
                Ok(()) => health.up(DATABASE),
                Err(why) => health.down(DATABASE, &why.to_string()),
            };
            tokio::select! {
                () = cancel.cancelled() => Ok(()),
                never = store.watch(report) => Err(never),
            }
        };
        supervise(DATABASE, health.clone(), cancel.clone(), watch).await;
    });
}

/// SIGTERM and SIGINT.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> Result<Self, Failure> {
        let of = |kind| {
            signal(kind).map_err(|why| Failure::new(Exit::Failed, why, "signals", "report this as a bug"))
        };
        Ok(Self {
            terminate: of(SignalKind::terminate())?,
            interrupt: of(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
