//! Builds what commands need from the settings, and words what can go wrong with it.
//!
//! May import: `config`, and the services it builds. Only [`reached_store`] connects by itself.

use std::{path::Path, sync::Arc, time::Duration};

use super::{
    failure::{Detail, Exit, Failure},
    output::Output,
};
use crate::{
    broker::{
        BrokerSettings,
        connection::LinkError,
        management::{Management, ManagementError},
    },
    config::{Config, Loaded, Source},
    publish::{SendError, prepare::PrepareError},
    store::{Store, StoreError, StoreSettings},
    topology::{Topology, TopologyErrors},
};

/// How much longer a transaction may stand idle than the relay waits for confirms within it.
const IDLE_BEYOND_CONFIRMS: Duration = Duration::from_secs(30);

/// How to reach the broker.
pub(super) fn broker(config: &Config, name: &str) -> Result<BrokerSettings, Failure> {
    Ok(BrokerSettings {
        url: config.amqp.url()?.secret().clone(),
        name: name.to_owned(),
        publish_connections: config.amqp.publish_connections,
        connect_timeout: config.amqp.connect_timeout,
        confirm_timeout: config.amqp.confirm_timeout,
        in_flight: config.amqp.in_flight,
    })
}

/// The broker's management API for the vhost of `amqp.url`, where `management.url` is set. Of an answer that takes long a
/// message says so.
pub(super) fn management(config: &Config, output: Output) -> Result<Option<Management>, Failure> {
    let Some(url) = &config.management.url else {
        return Ok(None);
    };
    let (shown, timeout) = (url.to_string(), config.management.timeout);
    let slow = move |doing: &str| {
        let doing = doing.split('?').next().unwrap_or_default();
        let limit = humantime::format_duration(timeout);
        output.message(&format!(
            "waiting for the management API at {shown} to answer {doing}; it has {limit} (management.timeout) …"
        ));
    };
    let management = Management::new(url.secret(), &config.amqp.url()?.vhost(), timeout)
        .map_err(|error| of_management(&error, config))?;
    Ok(Some(management.telling(slow)))
}

/// A failure of the management API.
pub(super) fn of_management(error: &ManagementError, config: &Config) -> Failure {
    let (exit, next) = match error {
        ManagementError::Unavailable { .. } => (
            Exit::Unavailable,
            "check that the management plugin runs at this address (management.url, MANAGEMENT_URL), then try again",
        ),
        ManagementError::Denied { .. } => (
            Exit::Unavailable,
            "check user and password in MANAGEMENT_URL; the user needs the tag policymaker and rights on the vhost",
        ),
        ManagementError::NotFound { .. } => (
            Exit::NotFound,
            "check the vhost in AMQP_URL, and that MANAGEMENT_URL is the API of the same broker",
        ),
        ManagementError::NoApi { .. } => (
            Exit::Usage,
            "correct management.url (MANAGEMENT_URL): http://USER:PASSWORD@HOST:15672",
        ),
        ManagementError::Refused { .. } => (Exit::Failed, "look at the reason, and at the broker's log"),
    };
    let place = config.management.url.as_ref().map_or_else(
        || "management API".to_owned(),
        |url| format!("management API {url}"),
    );
    Failure::new(exit, error, place, next)
}

/// The ledger; not connected yet.
pub(super) fn store(config: &Config) -> Result<Store, Failure> {
    let settings = StoreSettings {
        max_connections: config.database.pool_size,
        acquire_timeout: config.database.acquire_timeout,
        idle_in_transaction_timeout: config.amqp.confirm_timeout + IDLE_BEYOND_CONFIRMS,
        ..StoreSettings::default()
    };
    Store::connect(config.database.url()?.secret(), &settings).map_err(|error| {
        Failure::new(
            Exit::Usage,
            error,
            "settings",
            "correct DATABASE_URL (database.url)",
        )
    })
}

/// The ledger, for a command that ends if it is away: says at once why it can't be reached.
pub(super) async fn reached_store(config: &Config) -> Result<Store, Failure> {
    let store = store(config)?;
    store.reach().await.map_err(|error| of_store(&error, config))?;
    Ok(store)
}

/// The topology files.
pub(super) fn topology(dir: &Path) -> Result<Arc<Topology>, Failure> {
    Topology::load(dir)
        .map(Arc::new)
        .map_err(|errors| of_topology(&errors, dir))
}

/// The topology files; where none are given and none are at the default place, only the platform's own names.
/// The flag says whether there were files.
pub(super) fn topology_if_any(loaded: &Loaded) -> Result<(Arc<Topology>, bool), Failure> {
    let dir = &loaded.config.topology.dir;
    let by_default = loaded
        .settings
        .get("topology.dir")
        .is_none_or(|setting| setting.source == Source::Default);
    if by_default && !dir.exists() {
        let platform =
            Topology::parse(&[("platform.toml", "")]).map_err(|errors| of_topology(&errors, dir))?;
        return Ok((Arc::new(platform), false));
    }
    Ok((topology(dir)?, true))
}

fn of_topology(errors: &TopologyErrors, dir: &Path) -> Failure {
    let detail = |error: &crate::topology::FileError| Detail {
        text: error.to_string(),
        data: serde_json::json!({"file": error.file, "line": error.line, "message": error.message}),
    };
    Failure::new(
        Exit::Usage,
        "the topology files can't be used",
        dir.display(),
        "correct the files, or name another directory by topology.dir (TIDEGATE_TOPOLOGY_DIR)",
    )
    .with_details(errors.0.iter().map(detail).collect())
}

/// A failure of the ledger.
pub(super) fn of_store(error: &StoreError, config: &Config) -> Failure {
    let (exit, next) = match error {
        StoreError::Unavailable(_) => (
            Exit::Unavailable,
            "check that the database runs at this address, then try again",
        ),
        StoreError::Busy(_) => (Exit::Conflict, "try again"),
        StoreError::SchemaMissing(_) => (Exit::Failed, "run `tidegate migrate`"),
        StoreError::Conflict(_) => (Exit::Conflict, "look at what is there, then decide"),
        // As for the broker: who sets the password right can make the same call succeed.
        StoreError::Denied(_) => (
            Exit::Unavailable,
            "check user and password in DATABASE_URL, and the server's pg_hba.conf",
        ),
        StoreError::Forbidden(_) => (Exit::Failed, "grant the user that right in the database"),
        StoreError::Bad(_) => (Exit::Failed, "look at the server's log"),
    };
    let place = config
        .database
        .url()
        .map_or_else(|_| "database".to_owned(), |url| format!("database {url}"));
    Failure::new(exit, error, place, next)
}

/// The broker can't be reached, or doesn't let us in.
pub(super) fn of_link(error: &LinkError, config: &Config) -> Failure {
    let place = config
        .amqp
        .url()
        .map_or_else(|_| "broker".to_owned(), |url| format!("broker {url}"));
    Failure::new(
        Exit::Unavailable,
        error,
        place,
        "check that the broker runs at this address, and user, password and vhost in AMQP_URL",
    )
}

/// Why a task was not sent: its exit code and what to do.
pub(super) fn of_send(error: &SendError) -> (Exit, &'static str) {
    match error {
        SendError::Unroutable { .. } => (Exit::NotFound, "bind a queue to this key, or correct the key"),
        SendError::NoExchange(_) => (
            Exit::NotFound,
            "run `tidegate topology apply`, or correct --exchange",
        ),
        SendError::Forbidden { .. } => (
            Exit::Unavailable,
            "give this user the right to write to the exchange (`tidegate topology export --format permissions` shows how), or correct --exchange",
        ),
        SendError::Refused(_) | SendError::Invalid(_) => (
            Exit::Usage,
            "correct the task; it will never be accepted as it is",
        ),
        SendError::Nacked => (
            Exit::Unavailable,
            "look at the queue's length and health, then send the same taskId again",
        ),
        SendError::Unknown(_) => (
            Exit::Unavailable,
            "the task may be stored or not: look at the broker (alarms block publishing), then send the same taskId again",
        ),
    }
}

/// What is wrong with a task, with every violation.
pub(super) fn of_prepare(error: &PrepareError, place: &str) -> Failure {
    match error {
        PrepareError::Envelope(error) => {
            let detail = |v: &tidegate_core::envelope::Violation| Detail {
                text: format!(
                    "{} [{}]: {}",
                    if v.pointer.is_empty() {
                        "(body)"
                    } else {
                        &v.pointer
                    },
                    v.rule.as_str(),
                    v.advice
                ),
                data: serde_json::json!({"pointer": v.pointer, "rule": v.rule.as_str(), "advice": v.advice}),
            };
            Failure::new(
                Exit::Usage,
                "the envelope breaks the wire format",
                place,
                "correct what is listed; nothing was published",
            )
            .with_details(error.violations.iter().map(detail).collect())
        }
        PrepareError::TooFarAhead { .. } => Failure::new(
            Exit::Usage,
            error,
            place,
            "use a shorter delay, or a row in cron_tasks; nothing was published",
        ),
        PrepareError::Payload(_) => Failure::new(
            Exit::Usage,
            error,
            "--payload",
            "give a JSON object, e.g. '{\"orderId\":\"1\"}'",
        ),
    }
}
