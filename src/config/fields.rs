//! Every setting there is: its key, its environment variable, its kind, default and unit. The documentation, the
//! command line, the environment and the file are all read through this one table.
//!
//! May import: `kind` only.

use super::kind::Kind;

/// One setting.
#[derive(Debug)]
pub struct Field {
    /// Key in the file and for `--set`: `<section>.<name>`.
    pub key: &'static str,
    /// Environment variable.
    pub env: &'static str,
    /// What values it takes.
    pub kind: Kind,
    /// Default as it would be written, if there is one.
    pub default: Option<&'static str>,
    /// Unit of the value.
    pub unit: &'static str,
    /// What it does.
    pub about: &'static str,
}

impl Field {
    /// The setting called `key`.
    pub fn find(key: &str) -> Option<&'static Self> {
        FIELDS.iter().find(|field| field.key == key)
    }

    /// The section and the name within it.
    pub fn section_and_name(&self) -> (&'static str, &'static str) {
        self.key.split_once('.').unwrap_or(("", self.key))
    }
}

const ROLES: &[&str] = &["scheduler", "relay", "router", "archivist", "monitor"];
const DAY: u64 = 24 * 3600 * 1000;

macro_rules! field {
    ($key:literal, $env:literal, $kind:expr, $default:expr, $unit:literal, $about:literal) => {
        Field {
            key: $key,
            env: $env,
            kind: $kind,
            default: $default,
            unit: $unit,
            about: $about,
        }
    };
}

/// All settings, in the order of the documentation.
#[rustfmt::skip]
pub static FIELDS: &[Field] = &[
    field!("amqp.url", "AMQP_URL", Kind::AmqpUrl, None, "URL",
        "The broker: `amqp://` or `amqps://`, user, password, host, port and vhost. Secret."),
    field!("amqp.url_file", "AMQP_URL_FILE", Kind::Path, None, "path",
        "A file that holds `amqp.url`, e.g. a mounted secret."),
    field!("amqp.publish_connections", "TIDEGATE_AMQP_PUBLISH_CONNECTIONS", Kind::Count { min: 1, max: 64 }, Some("2"), "connections",
        "Connections that publishing uses; consumers have their own."),
    field!("amqp.connect_timeout", "TIDEGATE_AMQP_CONNECT_TIMEOUT", Kind::Duration { min: 100, max: 300_000 }, Some("10s"), "duration",
        "Longest wait for one attempt to connect."),
    field!("amqp.confirm_timeout", "TIDEGATE_AMQP_CONFIRM_TIMEOUT", Kind::Duration { min: 100, max: 600_000 }, Some("30s"), "duration",
        "Longest wait for the broker's confirm of one publish; after it the outcome counts as unknown."),
    field!("amqp.in_flight", "TIDEGATE_AMQP_IN_FLIGHT", Kind::Count { min: 1, max: 65_535 }, Some("1000"), "messages",
        "Most publishes that wait for their confirm on one connection."),
    field!("management.url", "MANAGEMENT_URL", Kind::ManagementUrl, None, "URL",
        "The broker's management API: `http://` or `https://`, user, password, host and port. Secret. Plans, migrations and verification read the broker through it."),
    field!("management.url_file", "MANAGEMENT_URL_FILE", Kind::Path, None, "path",
        "A file that holds `management.url`, e.g. a mounted secret."),
    field!("management.timeout", "TIDEGATE_MANAGEMENT_TIMEOUT", Kind::Duration { min: 1_000, max: 600_000 }, Some("60s"), "duration",
        "Longest wait for one answer; a list of thousands of queues takes seconds."),
    field!("database.url", "DATABASE_URL", Kind::DatabaseUrl, None, "URL",
        "The ledger: `postgres://` user, password, host, port and database. Secret."),
    field!("database.url_file", "DATABASE_URL_FILE", Kind::Path, None, "path",
        "A file that holds `database.url`, e.g. a mounted secret."),
    field!("database.pool_size", "TIDEGATE_DATABASE_POOL_SIZE", Kind::Count { min: 5, max: 1_000 }, Some("10"), "connections",
        "Most connections of the pool to the database; beside it the server keeps up to three."),
    field!("database.acquire_timeout", "TIDEGATE_DATABASE_ACQUIRE_TIMEOUT", Kind::Duration { min: 100, max: 300_000 }, Some("5s"), "duration",
        "Longest wait for a free connection."),
    field!("topology.dir", "TIDEGATE_TOPOLOGY_DIR", Kind::Path, Some("topology"), "path",
        "Directory of the topology files."),
    field!("http.listen", "TIDEGATE_HTTP_LISTEN", Kind::Address, Some("127.0.0.1:8080"), "address",
        "Where `/livez` and `/readyz` are served. Anything but loopback needs `http.insecure_bind`."),
    field!("http.insecure_bind", "TIDEGATE_HTTP_INSECURE_BIND", Kind::Switch, Some("false"), "switch",
        "Allows `http.listen` beyond loopback although no token guards it."),
    field!("metrics.listen", "TIDEGATE_METRICS_LISTEN", Kind::Address, Some("127.0.0.1:9400"), "address",
        "Where `/metrics` is served, on a listener of its own. Queue names are visible there: keep it internal."),
    field!("limits.max_body_bytes", "TIDEGATE_LIMITS_MAX_BODY_BYTES", Kind::Count { min: 256, max: 1_048_576 }, Some("65536"), "bytes",
        "Largest envelope, both packed and unpacked."),
    field!("limits.max_payload_depth", "TIDEGATE_LIMITS_MAX_PAYLOAD_DEPTH", Kind::Count { min: 1, max: 32 }, Some("5"), "levels",
        "Deepest nesting of a payload; the payload itself is level 1."),
    field!("limits.max_schedule_ahead", "TIDEGATE_LIMITS_MAX_SCHEDULE_AHEAD", Kind::Duration { min: 1_000, max: 99 * DAY }, Some("90d"), "duration",
        "How far ahead a task may be scheduled."),
    field!("serve.roles", "TIDEGATE_SERVE_ROLES", Kind::List(ROLES), Some("scheduler,relay,router,archivist,monitor"), "list",
        "Roles that `serve` runs."),
    field!("serve.grace", "TIDEGATE_SERVE_GRACE", Kind::Duration { min: 0, max: 3_600_000 }, Some("25s"), "duration",
        "Longest wait for running work after SIGTERM or Ctrl-C."),
    field!("scheduler.scan_interval", "TIDEGATE_SCHEDULER_SCAN_INTERVAL", Kind::Duration { min: 100, max: 3_600_000 }, Some("15s"), "duration",
        "Longest sleep of the scheduler: the safety net beside wake-ups and due times."),
    field!("scheduler.batch", "TIDEGATE_SCHEDULER_BATCH", Kind::Count { min: 1, max: 10_000 }, Some("500"), "rows",
        "Most cron rows that one transaction claims."),
    field!("relay.batch", "TIDEGATE_RELAY_BATCH", Kind::Count { min: 1, max: 10_000 }, Some("500"), "rows",
        "Most tasks that one transaction hands to the broker."),
    field!("archive.batch", "TIDEGATE_ARCHIVE_BATCH", Kind::Count { min: 1, max: 5_000 }, Some("500"), "dead letters",
        "Most dead letters that one transaction archives; an archivist holds up to three times as many."),
    field!("retention.success", "TIDEGATE_RETENTION_SUCCESS", Kind::Keep { max: 36_500 * DAY }, Some("7d"), "duration",
        "How long tasks are kept that succeeded; `never`: not deleted."),
    field!("retention.failed", "TIDEGATE_RETENTION_FAILED", Kind::Keep { max: 36_500 * DAY }, Some("30d"), "duration",
        "How long tasks are kept that became dead letters or could not be sent; `never`: not deleted."),
    field!("retention.canceled", "TIDEGATE_RETENTION_CANCELED", Kind::Keep { max: 36_500 * DAY }, Some("7d"), "duration",
        "How long tasks are kept that were cancelled; `never`: not deleted."),
    field!("retention.unreported", "TIDEGATE_RETENTION_UNREPORTED", Kind::Keep { max: 36_500 * DAY }, Some("30d"), "duration",
        "How long tasks are kept after their hand-over of whose end no worker tells; `never`: not deleted."),
    field!("retention.cron_fires", "TIDEGATE_RETENTION_CRON_FIRES", Kind::Keep { max: 36_500 * DAY }, Some("30d"), "duration",
        "How long the record of cron occurrences is kept; `never`: not deleted."),
    field!("retention.executions", "TIDEGATE_RETENTION_EXECUTIONS", Kind::Keep { max: 36_500 * DAY }, Some("7d"), "duration",
        "How long an idempotency key is kept after its success: a duplicate that comes later runs; `never`: not deleted."),
    field!("retention.dead_letters", "TIDEGATE_RETENTION_DEAD_LETTERS", Kind::Keep { max: 36_500 * DAY }, Some("90d"), "duration",
        "How long a dead letter is kept after it was archived, dealt with or not, by whole days (UTC); `never`: not deleted."),
    field!("retention.interval", "TIDEGATE_RETENTION_INTERVAL", Kind::Duration { min: 1_000, max: DAY }, Some("10m"), "duration",
        "Pause between two looks for what has been kept long enough."),
    field!("digest.webhook", "TIDEGATE_DIGEST_WEBHOOK", Kind::WebhookUrl, None, "URL",
        "Where the role `monitor` posts a digest of new dead letters: `http://` or `https://`. Secret. Without it there are no digests."),
    field!("digest.webhook_file", "TIDEGATE_DIGEST_WEBHOOK_FILE", Kind::Path, None, "path",
        "A file that holds `digest.webhook`, e.g. a mounted secret."),
    field!("digest.format", "TIDEGATE_DIGEST_FORMAT", Kind::Choice(&["plain", "slack", "feishu", "dingtalk"]), Some("plain"), "name",
        "Shape of the digest: `plain` JSON, or what the webhooks of `slack`, `feishu` and `dingtalk` take."),
    field!("digest.interval", "TIDEGATE_DIGEST_INTERVAL", Kind::Duration { min: 1_000, max: 7 * DAY }, Some("1h"), "duration",
        "Span of one digest; it ends at a multiple of this since 1970 by the database's clock. No new dead letters: no digest."),
    field!("log.format", "TIDEGATE_LOG_FORMAT", Kind::Choice(&["text", "json"]), Some("text"), "name",
        "Shape of the log lines on stderr: `text` or `json`."),
    field!("log.filter", "RUST_LOG", Kind::Text, Some("info"), "directives",
        "What is logged, e.g. `info,tidegate=debug`."),
];
