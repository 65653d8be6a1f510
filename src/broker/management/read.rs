//! The whole of a vhost, read for a plan. What the user may not read is named, not left out in silence.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use tidegate_core::ladder::Destination;

use super::{Management, ManagementError};
use crate::topology::live::{Live, LiveBinding, LiveExchange, LivePolicy, LiveQueue, Unread, Version};

impl Management {
    /// Everything that exists in the vhost. Six requests, whatever its size; counts are those of the broker's last
    /// tick.
    ///
    /// # Errors
    /// If version, exchanges, queues or bindings can't be read. Policies, feature flags and the default queue type
    /// that can't be read are listed in [`Live::unread`].
    pub async fn read_live(&self) -> Result<Live, ManagementError> {
        let v = self.v();
        let overview: Overview = self.get("overview").await.map_err(elsewhere)?;
        let version: Version = overview
            .rabbitmq_version
            .parse()
            .map_err(|why| ManagementError::Refused {
                doing: "GET overview".to_owned(),
                status: 200,
                reason: format!("{why}"),
            })?;
        // Bindings last: one whose queue was made between two requests then has no queue, rather than a queue none.
        let exchanges: Vec<ExchangeRow> = self.get(&format!("exchanges/{v}")).await?;
        let queues: Vec<QueueRow> = self
            .get(&format!("queues/{v}?disable_stats=true&enable_queue_totals=true"))
            .await?;
        let bindings: Vec<BindingRow> = self.get(&format!("bindings/{v}")).await?;
        let mut live = Live {
            version,
            cluster: overview.cluster_name,
            exchanges: exchanges.into_iter().filter_map(ExchangeRow::read).collect(),
            queues: queues.into_iter().map(QueueRow::read).collect(),
            bindings: bindings.into_iter().filter_map(BindingRow::read).collect(),
            ..Live::default()
        };
        for (path, operator) in [("policies", false), ("operator-policies", true)] {
            let rows = self.get::<Vec<PolicyRow>>(&format!("{path}/{v}")).await;
            if let Some(rows) = readable(&mut live.unread, path, "policymaker", rows)? {
                live.policies
                    .extend(rows.into_iter().map(|row| row.read(operator)));
            }
        }
        let flags = self.get::<Vec<FlagRow>>("feature-flags").await;
        // Nothing about feature flags is ours to change, and old versions may not list them to everyone.
        if let Some(flags) = readable(&mut live.unread, "feature flags", "administrator", flags)? {
            let (on, off): (Vec<_>, Vec<_>) = flags.into_iter().partition(|flag| flag.state == "enabled");
            live.feature_flags = on.into_iter().map(|flag| flag.name).collect();
            live.disabled_feature_flags = off.into_iter().map(|flag| flag.name).collect();
        }
        let vhost = self.get::<VhostRow>(&format!("vhosts/{v}")).await;
        if let Some(vhost) = readable(
            &mut live.unread,
            "the vhost's default queue type",
            "monitoring",
            vhost,
        )? {
            live.default_queue_type = vhost.default_queue_type.filter(|kind| kind != "undefined");
        }
        Ok(live)
    }
}

/// Every management API has an overview: where there is none, something else answers.
fn elsewhere(error: ManagementError) -> ManagementError {
    match error {
        ManagementError::NotFound { doing } => ManagementError::NoApi {
            doing,
            reason: "there is no such page".to_owned(),
        },
        error => error,
    }
}

/// The answer, or a line in `unread` if the user may not see it or this version has no such thing.
fn readable<T>(
    unread: &mut Vec<Unread>,
    what: &str,
    tag: &str,
    answer: Result<T, ManagementError>,
) -> Result<Option<T>, ManagementError> {
    let why = match answer {
        Ok(found) => return Ok(Some(found)),
        Err(ManagementError::Denied { .. }) => {
            format!("the user may not read them: give it the tag {tag} (rabbitmqctl set_user_tags)")
        }
        Err(ManagementError::NotFound { .. }) => "this broker has no such list".to_owned(),
        Err(error) => return Err(error),
    };
    unread.push(Unread {
        what: what.replace('-', " "),
        why,
    });
    Ok(None)
}

#[derive(Deserialize)]
struct Overview {
    rabbitmq_version: String,
    #[serde(default)]
    cluster_name: String,
}

#[derive(Deserialize)]
struct ExchangeRow {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    durable: bool,
    #[serde(default)]
    auto_delete: bool,
    #[serde(default)]
    internal: bool,
    #[serde(default)]
    arguments: Value,
}

#[derive(Deserialize)]
struct QueueRow {
    name: String,
    #[serde(rename = "type", default)]
    kind: Option<String>,
    #[serde(default)]
    durable: bool,
    #[serde(default)]
    auto_delete: bool,
    /// `null` on quorum queues.
    #[serde(default)]
    exclusive: Option<bool>,
    #[serde(default)]
    arguments: Value,
    #[serde(default)]
    policy: Option<String>,
    #[serde(default)]
    messages: Option<u64>,
    #[serde(default)]
    consumers: Option<u64>,
    #[serde(default)]
    state: Option<String>,
}

#[derive(Deserialize)]
struct BindingRow {
    source: String,
    destination: String,
    destination_type: String,
    routing_key: String,
    #[serde(default)]
    arguments: Value,
}

#[derive(Deserialize)]
struct PolicyRow {
    name: String,
    pattern: String,
    #[serde(rename = "apply-to")]
    apply_to: String,
    priority: i64,
    definition: Value,
}

#[derive(Deserialize)]
struct FlagRow {
    name: String,
    state: String,
}

#[derive(Deserialize)]
struct VhostRow {
    #[serde(default)]
    default_queue_type: Option<String>,
}

impl ExchangeRow {
    fn read(self) -> Option<LiveExchange> {
        let own = self.name.is_empty() || self.name.starts_with("amq.");
        (!own).then(|| LiveExchange {
            name: self.name,
            kind: self.kind,
            durable: self.durable,
            auto_delete: self.auto_delete,
            internal: self.internal,
            arguments: arguments(self.arguments),
        })
    }
}

impl QueueRow {
    fn read(self) -> LiveQueue {
        let arguments = arguments(self.arguments);
        let stated = arguments.get("x-queue-type").and_then(Value::as_str);
        let kind = self.kind.as_deref().or(stated).unwrap_or("classic").to_owned();
        LiveQueue {
            name: self.name,
            kind,
            durable: self.durable,
            auto_delete: self.auto_delete,
            exclusive: self.exclusive.unwrap_or_default(),
            arguments,
            policy: self.policy.filter(|name| !name.is_empty()),
            messages: self.messages,
            consumers: self.consumers,
            state: self.state,
        }
    }
}

impl BindingRow {
    fn read(self) -> Option<LiveBinding> {
        if self.source.is_empty() {
            return None;
        }
        let destination = match self.destination_type.as_str() {
            "exchange" => Destination::Exchange(self.destination),
            _ => Destination::Queue(self.destination),
        };
        Some(LiveBinding {
            source: self.source,
            destination,
            pattern: self.routing_key,
            arguments: arguments(self.arguments),
        })
    }
}

impl PolicyRow {
    fn read(self, operator: bool) -> LivePolicy {
        LivePolicy {
            name: self.name,
            pattern: self.pattern,
            apply_to: self.apply_to,
            priority: self.priority,
            definition: arguments(self.definition),
            operator,
        }
    }
}

/// The API writes no arguments as `{}` and, on old versions, as `[]`.
fn arguments(value: Value) -> BTreeMap<String, Value> {
    match value {
        Value::Object(map) => map.into_iter().collect(),
        _ => BTreeMap::new(),
    }
}
