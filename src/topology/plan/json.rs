//! A plan as programs read it.

use serde_json::{Value as Json, json};
use tidegate_core::ladder::Destination;

use super::{Change, Difference, Extra, Origin, Plan, Unwanted, Wanted, change::as_json};
use crate::topology::live::LiveBinding;

impl Plan {
    /// The whole plan. `changes` says whether there are any; `counts` how many of each; `plan` has them.
    pub fn to_json(&self) -> Json {
        json!({
            "changes": self.has_differences(),
            "counts": self.counts(),
            "objects": self.wanted,
            "plan": self.changes.iter().map(Change::to_json).collect::<Vec<_>>(),
            "warnings": self.lints.iter().map(|lint| json!({
                "rule": lint.rule,
                "kind": lint.object.as_ref().map(|object| object.kind.as_str()),
                "object": lint.object.as_ref().map(|object| &object.name),
                "message": lint.what,
                "next": lint.next,
            })).collect::<Vec<_>>(),
            "notes": self.notes.iter().map(|note| json!({"about": note.about, "message": note.text})).collect::<Vec<_>>(),
            "notSeen": self.unread.iter().map(|u| json!({"what": u.what, "why": u.why})).collect::<Vec<_>>(),
        })
    }
}

impl Change {
    /// The change with its object and all that belongs to it.
    pub fn to_json(&self) -> Json {
        let object = self.object();
        let mut out = json!({"kind": object.kind.as_str(), "object": object.name});
        match self {
            Self::Add(wanted) => {
                out["action"] = "add".into();
                out["wanted"] = wanted.to_json();
            }
            Self::Edit(edit) => {
                out["action"] = "change".into();
                out["wanted"] = Wanted::Policy(edit.policy.clone()).to_json();
                out["differences"] = all(&edit.differences);
            }
            Self::Conflict(conflict) => {
                out["action"] = "conflict".into();
                out["differences"] = all(&conflict.differences);
                out["fix"] = conflict.remedies.iter().map(ToString::to_string).collect();
            }
            Self::Migrating(migrating) => {
                out["action"] = "migrating".into();
                out["leftovers"] = migrating
                    .leftovers
                    .iter()
                    .map(|name| json!({"kind": name.kind.as_str(), "object": name.name}))
                    .collect();
                out["fix"] = self.advice().into();
            }
            Self::Extra(extra) => {
                out["action"] = "extra".into();
                out["why"] = extra.why.as_str().into();
                extra.fill(&mut out);
            }
        }
        out
    }
}

fn all(differences: &[Difference]) -> Json {
    differences.iter().map(Difference::to_json).collect()
}

impl Difference {
    fn to_json(&self) -> Json {
        let (from, policy) = match &self.from {
            Origin::Declared => ("declared", None),
            Origin::Default => ("default", None),
            Origin::Policy(name) => ("policy", Some(name)),
            Origin::OperatorPolicy(name) => ("operator policy", Some(name)),
        };
        let mut out = json!({
            "argument": self.name,
            "onBroker": self.on_broker,
            "from": from,
            "wanted": self.wanted,
        });
        if let Some(policy) = policy {
            out["policy"] = policy.as_str().into();
        }
        out
    }
}

impl Extra {
    fn fill(&self, out: &mut Json) {
        match &self.object {
            Unwanted::Binding(binding) => {
                out["binding"] = of_binding(binding);
            }
            Unwanted::Queue { kind, .. } => {
                out["type"] = kind.as_str().into();
                out["messages"] = self.messages.into();
                out["consumers"] = self.consumers.into();
            }
            Unwanted::Exchange { .. } | Unwanted::Policy { .. } => {}
        }
    }
}

impl Wanted {
    /// The object in full.
    pub(super) fn to_json(&self) -> Json {
        match self {
            Self::Exchange(exchange) => json!({
                "name": exchange.name,
                "type": exchange.kind.as_str(),
                "alternateExchange": exchange.alternate,
            }),
            Self::Queue(queue) => json!({"name": queue.name, "arguments": as_json(&queue.arguments)}),
            Self::Binding(binding) => {
                let (kind, name) = end(&binding.destination);
                json!({"source": binding.source, "destinationType": kind, "destination": name,
                    "pattern": binding.pattern})
            }
            Self::Policy(policy) => json!({
                "name": policy.name,
                "pattern": policy.pattern,
                "applyTo": policy.apply_to,
                "priority": policy.priority,
                "definition": as_json(&policy.definition),
            }),
        }
    }
}

pub(super) fn of_binding(binding: &LiveBinding) -> Json {
    let (kind, name) = end(&binding.destination);
    json!({"source": binding.source, "destinationType": kind, "destination": name, "pattern": binding.pattern,
        "arguments": binding.arguments})
}

fn end(destination: &Destination) -> (&'static str, &str) {
    match destination {
        Destination::Queue(name) => ("queue", name),
        Destination::Exchange(name) => ("exchange", name),
    }
}
