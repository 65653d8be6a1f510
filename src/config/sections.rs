//! The settings as small types, a struct per section. Each field's documentation ends with its environment
//! variable, its default and its unit; a test holds that against the table of settings.
//!
//! May import: `core`, `kind` and `url`.

use std::{collections::BTreeSet, net::SocketAddr, path::PathBuf, time::Duration};

use serde::{Deserialize, Deserializer};
use tidegate_core::envelope;

use super::{
    ConfigError,
    kind::NEVER,
    url::{AmqpUrl, DatabaseUrl, ManagementUrl, WebhookUrl},
};

/// Everything that can be set.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The broker.
    pub amqp: Amqp,
    /// The broker's management API.
    pub management: Management,
    /// The ledger.
    pub database: Database,
    /// The topology files.
    pub topology: Topology,
    /// The HTTP listener.
    pub http: Http,
    /// The metrics listener.
    pub metrics: Metrics,
    /// Limits on what comes from outside.
    pub limits: Limits,
    /// What `serve` runs.
    pub serve: Serve,
    /// The scheduler.
    pub scheduler: Scheduler,
    /// The relay.
    pub relay: Relay,
    /// The archive of dead letters.
    pub archive: Archive,
    /// What is kept how long.
    pub retention: Retention,
    /// Digests of dead letters.
    pub digest: Digest,
    /// Logging.
    pub log: Log,
}

/// `[amqp]`: the broker.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Amqp {
    /// The broker's URL; secret. (`AMQP_URL`, no default, URL)
    url: Option<AmqpUrl>,
    /// File that holds the URL. (`AMQP_URL_FILE`, no default, path)
    #[serde(rename = "url_file", default)]
    _url_file: Option<PathBuf>,
    /// Connections that publishing uses. (`TIDEGATE_AMQP_PUBLISH_CONNECTIONS`, default `2`, connections)
    pub publish_connections: usize,
    /// Longest wait for one attempt to connect. (`TIDEGATE_AMQP_CONNECT_TIMEOUT`, default `10s`, duration)
    #[serde(deserialize_with = "span")]
    pub connect_timeout: Duration,
    /// Longest wait for a confirm. (`TIDEGATE_AMQP_CONFIRM_TIMEOUT`, default `30s`, duration)
    #[serde(deserialize_with = "span")]
    pub confirm_timeout: Duration,
    /// Most unconfirmed publishes per connection. (`TIDEGATE_AMQP_IN_FLIGHT`, default `1000`, messages)
    pub in_flight: usize,
}

/// `[management]`: the broker's management API.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Management {
    /// The API's URL; secret. (`MANAGEMENT_URL`, no default, URL)
    pub url: Option<ManagementUrl>,
    /// File that holds the URL. (`MANAGEMENT_URL_FILE`, no default, path)
    #[serde(rename = "url_file", default)]
    _url_file: Option<PathBuf>,
    /// Longest wait for one answer. (`TIDEGATE_MANAGEMENT_TIMEOUT`, default `60s`, duration)
    #[serde(deserialize_with = "span")]
    pub timeout: Duration,
}

/// `[database]`: the ledger.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Database {
    /// The database's URL; secret. (`DATABASE_URL`, no default, URL)
    url: Option<DatabaseUrl>,
    /// File that holds the URL. (`DATABASE_URL_FILE`, no default, path)
    #[serde(rename = "url_file", default)]
    _url_file: Option<PathBuf>,
    /// Most connections at once. (`TIDEGATE_DATABASE_POOL_SIZE`, default `10`, connections)
    pub pool_size: u32,
    /// Longest wait for a free connection. (`TIDEGATE_DATABASE_ACQUIRE_TIMEOUT`, default `5s`, duration)
    #[serde(deserialize_with = "span")]
    pub acquire_timeout: Duration,
}

/// `[topology]`: the topology files.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// Directory of the files. (`TIDEGATE_TOPOLOGY_DIR`, default `topology`, path)
    pub dir: PathBuf,
}

/// `[http]`: the listener of `/livez` and `/readyz`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Http {
    /// Where it listens. (`TIDEGATE_HTTP_LISTEN`, default `127.0.0.1:8080`, address)
    pub listen: SocketAddr,
    /// Allows more than loopback without a token. (`TIDEGATE_HTTP_INSECURE_BIND`, default `false`, switch)
    pub insecure_bind: bool,
}

/// `[metrics]`: the listener of `/metrics`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metrics {
    /// Where it listens. (`TIDEGATE_METRICS_LISTEN`, default `127.0.0.1:9400`, address)
    pub listen: SocketAddr,
}

/// `[limits]`: limits on what comes from outside.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Largest envelope. (`TIDEGATE_LIMITS_MAX_BODY_BYTES`, default `65536`, bytes)
    pub max_body_bytes: usize,
    /// Deepest payload. (`TIDEGATE_LIMITS_MAX_PAYLOAD_DEPTH`, default `5`, levels)
    pub max_payload_depth: usize,
    /// Furthest schedule. (`TIDEGATE_LIMITS_MAX_SCHEDULE_AHEAD`, default `90d`, duration)
    #[serde(deserialize_with = "span")]
    pub max_schedule_ahead: Duration,
}

/// `[serve]`: what `serve` runs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Serve {
    /// Roles to run. (`TIDEGATE_SERVE_ROLES`, default `scheduler,relay,router,archivist,monitor`, list)
    pub roles: BTreeSet<Role>,
    /// Longest wait for running work at the end. (`TIDEGATE_SERVE_GRACE`, default `25s`, duration)
    #[serde(deserialize_with = "span")]
    pub grace: Duration,
}

/// A part of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Claims due cron rows.
    Scheduler,
    /// Publishes due tasks of the ledger.
    Relay,
    /// Retries or dead-letters what queues dead-lettered.
    Router,
    /// Archives what is dead for good.
    Archivist,
    /// Sends digests of what is.
    Monitor,
}

/// `[scheduler]`: the claim of cron rows.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scheduler {
    /// Longest sleep. (`TIDEGATE_SCHEDULER_SCAN_INTERVAL`, default `15s`, duration)
    #[serde(deserialize_with = "span")]
    pub scan_interval: Duration,
    /// Most rows of one claim. (`TIDEGATE_SCHEDULER_BATCH`, default `500`, rows)
    pub batch: u32,
}

/// `[relay]`: the hand-over of tasks to the broker.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Relay {
    /// Most rows of one batch. (`TIDEGATE_RELAY_BATCH`, default `500`, rows)
    pub batch: u32,
}

/// `[archive]`: the archive of dead letters.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Archive {
    /// Most dead letters of one transaction. (`TIDEGATE_ARCHIVE_BATCH`, default `500`, dead letters)
    pub batch: u16,
}

/// `[retention]`: what is kept how long; `None` is for ever.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retention {
    /// Tasks that succeeded. (`TIDEGATE_RETENTION_SUCCESS`, default `7d`, duration)
    #[serde(deserialize_with = "keep")]
    pub success: Option<Duration>,
    /// Tasks that failed for good. (`TIDEGATE_RETENTION_FAILED`, default `30d`, duration)
    #[serde(deserialize_with = "keep")]
    pub failed: Option<Duration>,
    /// Tasks that were cancelled. (`TIDEGATE_RETENTION_CANCELED`, default `7d`, duration)
    #[serde(deserialize_with = "keep")]
    pub canceled: Option<Duration>,
    /// Tasks of whose end nobody tells. (`TIDEGATE_RETENTION_UNREPORTED`, default `30d`, duration)
    #[serde(deserialize_with = "keep")]
    pub unreported: Option<Duration>,
    /// Cron occurrences. (`TIDEGATE_RETENTION_CRON_FIRES`, default `30d`, duration)
    #[serde(deserialize_with = "keep")]
    pub cron_fires: Option<Duration>,
    /// Idempotency keys. (`TIDEGATE_RETENTION_EXECUTIONS`, default `7d`, duration)
    #[serde(deserialize_with = "keep")]
    pub executions: Option<Duration>,
    /// Dead letters. (`TIDEGATE_RETENTION_DEAD_LETTERS`, default `90d`, duration)
    #[serde(deserialize_with = "keep")]
    pub dead_letters: Option<Duration>,
    /// Pause between two looks. (`TIDEGATE_RETENTION_INTERVAL`, default `10m`, duration)
    #[serde(deserialize_with = "span")]
    pub interval: Duration,
}

/// `[digest]`: digests of dead letters.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Digest {
    /// Where they are posted; secret. (`TIDEGATE_DIGEST_WEBHOOK`, no default, URL)
    pub webhook: Option<WebhookUrl>,
    /// File that holds the URL. (`TIDEGATE_DIGEST_WEBHOOK_FILE`, no default, path)
    #[serde(rename = "webhook_file", default)]
    _webhook_file: Option<PathBuf>,
    /// Shape of a digest. (`TIDEGATE_DIGEST_FORMAT`, default `plain`, name)
    pub format: DigestFormat,
    /// Span of one digest. (`TIDEGATE_DIGEST_INTERVAL`, default `1h`, duration)
    #[serde(deserialize_with = "span")]
    pub interval: Duration,
}

/// Shape of a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DigestFormat {
    /// JSON of our own.
    Plain,
    /// An incoming webhook of Slack.
    Slack,
    /// A custom bot of Feishu.
    Feishu,
    /// A custom robot of DingTalk.
    DingTalk,
}

/// `[log]`: logging.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Log {
    /// Shape of the lines. (`TIDEGATE_LOG_FORMAT`, default `text`, name)
    pub format: LogFormat,
    /// What is logged. (`RUST_LOG`, default `info`, directives)
    pub filter: String,
}

/// Shape of the log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

impl Role {
    /// The role's name in settings, logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scheduler => "scheduler",
            Self::Relay => "relay",
            Self::Router => "router",
            Self::Archivist => "archivist",
            Self::Monitor => "monitor",
        }
    }
}

impl Amqp {
    /// The broker's URL, which every command that talks to the broker needs.
    pub fn url(&self) -> Result<&AmqpUrl, ConfigError> {
        self.url.as_ref().ok_or(ConfigError::Missing {
            key: "amqp.url",
            env: "AMQP_URL",
        })
    }
}

impl Database {
    /// The database's URL, which every command that talks to the ledger needs.
    pub fn url(&self) -> Result<&DatabaseUrl, ConfigError> {
        self.url.as_ref().ok_or(ConfigError::Missing {
            key: "database.url",
            env: "DATABASE_URL",
        })
    }
}

impl Limits {
    /// As the envelope's parser takes them.
    pub fn envelope(&self) -> envelope::Limits {
        envelope::Limits {
            max_body_bytes: self.max_body_bytes,
            max_payload_depth: self.max_payload_depth,
            max_schedule_ahead: self.max_schedule_ahead,
        }
    }
}

fn span<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    humantime::parse_duration(&text).map_err(serde::de::Error::custom)
}

fn keep<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text == NEVER {
        return Ok(None);
    }
    humantime::parse_duration(&text)
        .map(Some)
        .map_err(serde::de::Error::custom)
}
