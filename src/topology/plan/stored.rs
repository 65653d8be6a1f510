//! A plan as a file: what was wanted, where, and every change. Pure, and holds no secret.
//!
//! The file is whole in itself: who applies it needs no topology files. A checksum tells an edited file from a true
//! one; it protects from accidents, not from somebody who means it.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};
use tidegate_core::{ladder::Destination, names::Names};

use super::{Change, Plan, Wanted, scope::Generation, scope::Scope};
use crate::topology::{Binding, Exchange, ExchangeKind, Objects, Policy, Queue, Value, live::Live};

/// Version of the file's form.
const FORMAT: u64 = 1;

/// Every argument and policy key that the topology sets.
const NAMES: &[&str] = &[
    "consumer-timeout",
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-dead-letter-strategy",
    "x-delivery-limit",
    "x-max-length",
    "x-message-ttl",
    "x-overflow",
    "x-queue-type",
    "x-single-active-consumer",
];

/// A plan with all that is needed to perform it later.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// The virtual host that it is for.
    pub vhost: String,
    /// Name of the broker's cluster that it is for.
    pub cluster: String,
    /// What was wanted.
    pub wanted: Objects,
    scope: Scope,
    changes: Vec<Json>,
}

/// Why a text is no plan that can be performed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoredError {
    /// Something else.
    #[error("this is not a plan that `topology plan --out` wrote: {0}")]
    NotAPlan(String),
    /// A plan of another version of this program.
    #[error("this plan has format {found}, and this program reads {FORMAT}: make it anew with this program")]
    Format {
        /// Its format.
        found: u64,
    },
    /// Not what was written.
    #[error("this plan was changed after it was written: make it anew, or change the topology files")]
    Edited,
}

impl Stored {
    /// `plan`, made for `wanted` on this broker.
    pub fn new(plan: &Plan, wanted: &Objects, scope: &Scope, cluster: &str) -> Self {
        Self {
            vhost: scope.vhost.clone(),
            cluster: cluster.to_owned(),
            wanted: wanted.clone(),
            scope: Scope {
                max_timeouts: BTreeMap::new(),
                ..scope.clone()
            },
            changes: plan.changes.iter().map(identity).collect(),
        }
    }

    /// What its plan is about. Of generations of the ladder that came since nothing is known, so they are let be.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The changes of `now`, a plan made anew, that this one does not have: the broker has moved on. What it has and
    /// `now` doesn't has been done meanwhile.
    pub fn moved_on<'a>(&self, now: &'a Plan) -> Vec<&'a Change> {
        let known: HashSet<String> = self.changes.iter().map(Json::to_string).collect();
        now.changes
            .iter()
            .filter(|change| !known.contains(&identity(change).to_string()))
            .collect()
    }

    /// The plan made anew on the broker as it is now.
    pub fn plan(&self, live: &Live) -> Plan {
        super::plan(&self.wanted, live, &self.scope)
    }

    /// As the text of a file.
    pub fn to_text(&self) -> String {
        let generations = self
            .scope
            .generations
            .iter()
            .map(|generation| json!({"version": generation.version, "due": objects(&generation.due)}));
        let body = json!({
            "vhost": self.vhost,
            "cluster": self.cluster,
            "prefix": self.scope.names.prefix(),
            "ladder": self.scope.names.ladder_version(),
            "ignore": self.scope.ignore,
            "generations": generations.collect::<Vec<_>>(),
            "wanted": objects(&self.wanted),
            "changes": self.changes,
        });
        let file = json!({"format": FORMAT, "checksum": checksum(&body), "plan": body});
        format!("{file:#}\n")
    }

    /// Reads what [`to_text`](Self::to_text) wrote.
    ///
    /// # Errors
    /// Anything else than that, with the reason.
    pub fn parse(text: &str) -> Result<Self, StoredError> {
        let no = |why: &str| StoredError::NotAPlan(why.to_owned());
        let file: Json = serde_json::from_str(text).map_err(|why| no(&why.to_string()))?;
        match file["format"].as_u64() {
            Some(FORMAT) => {}
            Some(found) => return Err(StoredError::Format { found }),
            None => return Err(no("it has no format")),
        }
        let body = &file["plan"];
        if file["checksum"] != checksum(body).as_str() {
            return Err(StoredError::Edited);
        }
        read(body).ok_or_else(|| no("it holds what this program doesn't know"))
    }
}

/// A change without what may move while it stays the same.
fn identity(change: &Change) -> Json {
    let mut json = change.to_json();
    if let Some(fields) = json.as_object_mut() {
        for moves in ["messages", "consumers", "fix"] {
            fields.remove(moves);
        }
    }
    json
}

fn checksum(body: &Json) -> String {
    let hash = Sha256::digest(body.to_string().as_bytes());
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn objects(objects: &Objects) -> Json {
    let all = |wanted: Vec<Wanted>| wanted.iter().map(Wanted::to_json).collect::<Vec<_>>();
    json!({
        "exchanges": all(objects.exchanges.iter().cloned().map(Wanted::Exchange).collect()),
        "queues": all(objects.queues.iter().cloned().map(Wanted::Queue).collect()),
        "bindings": all(objects.bindings.iter().cloned().map(Wanted::Binding).collect()),
        "policies": all(objects.policies.iter().cloned().map(Wanted::Policy).collect()),
    })
}

// What follows gives `None` for whatever isn't as written above.

fn read(body: &Json) -> Option<Stored> {
    let generations = list(&body["generations"], |generation| {
        Some(Generation {
            version: u8::try_from(generation["version"].as_u64()?).ok()?,
            due: read_objects(&generation["due"])?,
        })
    })?;
    let names = Names::new(body["prefix"].as_str()?).ok()?;
    let vhost = text(&body["vhost"])?;
    Some(Stored {
        cluster: text(&body["cluster"])?,
        wanted: read_objects(&body["wanted"])?,
        scope: Scope {
            names: names.for_ladder(u8::try_from(body["ladder"].as_u64()?).ok()?),
            vhost: vhost.clone(),
            generations,
            max_timeouts: BTreeMap::new(),
            ignore: list(&body["ignore"], text)?,
        },
        vhost,
        changes: body["changes"].as_array()?.clone(),
    })
}

fn read_objects(json: &Json) -> Option<Objects> {
    Some(Objects {
        exchanges: list(&json["exchanges"], |e| {
            Some(Exchange {
                name: text(&e["name"])?,
                kind: [ExchangeKind::Topic, ExchangeKind::Fanout]
                    .into_iter()
                    .find(|kind| e["type"] == kind.as_str())?,
                alternate: match &e["alternateExchange"] {
                    Json::Null => None,
                    alternate => Some(text(alternate)?),
                },
            })
        })?,
        queues: list(&json["queues"], |q| {
            Some(Queue {
                name: text(&q["name"])?,
                arguments: values(&q["arguments"])?,
            })
        })?,
        bindings: list(&json["bindings"], |b| {
            let destination = text(&b["destination"])?;
            Some(Binding {
                source: text(&b["source"])?,
                destination: match b["destinationType"].as_str()? {
                    "queue" => Destination::Queue(destination),
                    "exchange" => Destination::Exchange(destination),
                    _ => return None,
                },
                pattern: text(&b["pattern"])?,
            })
        })?,
        policies: list(&json["policies"], |p| {
            Some(Policy {
                name: text(&p["name"])?,
                pattern: text(&p["pattern"])?,
                apply_to: ["queues", "exchanges"]
                    .into_iter()
                    .find(|to| p["applyTo"] == *to)?,
                priority: p["priority"].as_i64()?,
                definition: values(&p["definition"])?,
            })
        })?,
    })
}

fn list<T>(json: &Json, read: impl Fn(&Json) -> Option<T>) -> Option<Vec<T>> {
    json.as_array()?.iter().map(read).collect()
}

fn text(json: &Json) -> Option<String> {
    json.as_str().map(str::to_owned)
}

fn values(json: &Json) -> Option<BTreeMap<&'static str, Value>> {
    let value = |value: &Json| match value {
        Json::String(text) => Some(Value::Text(text.clone())),
        Json::Bool(yes) => Some(Value::Bool(*yes)),
        Json::Number(number) => number.as_i64().map(Value::Int),
        _ => None,
    };
    json.as_object()?
        .iter()
        .map(|(name, json)| Some((*NAMES.iter().find(|known| *known == name)?, value(json)?)))
        .collect()
}
