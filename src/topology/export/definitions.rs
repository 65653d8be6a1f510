//! The JSON that RabbitMQ imports, one object on each line, in the order of [`Objects`].
//!
//! An import merges: what is missing is made, a policy is overwritten, and a queue or exchange that exists with other
//! arguments is left as it is without a word. `topology plan` is what says so.

use serde_json::{Map, Value as Json, json};

use super::super::objects::{Binding, Exchange, Objects, Policy, Queue, Value};
use tidegate_core::ladder::Destination;

/// `objects` as definitions: for the import into one virtual host (`POST /api/definitions/{vhost}`), or, with a `vhost`,
/// for an import that spans them (`rabbitmqctl import_definitions`). That one must exist already.
pub fn definitions(objects: &Objects, vhost: Option<&str>) -> String {
    let line = |object: Json| {
        let mut object = object;
        if let (Some(fields), Some(vhost)) = (object.as_object_mut(), vhost) {
            fields.insert("vhost".to_owned(), vhost.into());
        }
        object.to_string()
    };
    let sections: [(&str, Vec<String>); 4] = [
        (
            "exchanges",
            objects.exchanges.iter().map(|e| line(exchange(e))).collect(),
        ),
        ("queues", objects.queues.iter().map(|q| line(queue(q))).collect()),
        (
            "bindings",
            objects.bindings.iter().map(|b| line(binding(b))).collect(),
        ),
        (
            "policies",
            objects.policies.iter().map(|p| line(policy(p))).collect(),
        ),
    ];
    let sections = sections.map(|(name, lines)| {
        if lines.is_empty() {
            format!("  \"{name}\": []")
        } else {
            format!("  \"{name}\": [\n    {}\n  ]", lines.join(",\n    "))
        }
    });
    format!("{{\n{}\n}}\n", sections.join(",\n"))
}

fn exchange(exchange: &Exchange) -> Json {
    let mut arguments = Map::new();
    if let Some(alternate) = &exchange.alternate {
        arguments.insert("alternate-exchange".to_owned(), alternate.as_str().into());
    }
    json!({
        "name": exchange.name,
        "type": exchange.kind.as_str(),
        "durable": true,
        "auto_delete": false,
        "internal": false,
        "arguments": arguments,
    })
}

fn queue(queue: &Queue) -> Json {
    json!({
        "name": queue.name,
        "durable": true,
        "auto_delete": false,
        "arguments": values(queue.arguments.iter()),
    })
}

fn binding(binding: &Binding) -> Json {
    let kind = match binding.destination {
        Destination::Queue(_) => "queue",
        Destination::Exchange(_) => "exchange",
    };
    json!({
        "source": binding.source,
        "destination": binding.destination_name(),
        "destination_type": kind,
        "routing_key": binding.pattern,
        "arguments": {},
    })
}

fn policy(policy: &Policy) -> Json {
    json!({
        "name": policy.name,
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "priority": policy.priority,
        "definition": values(policy.definition.iter()),
    })
}

fn values<'a>(values: impl Iterator<Item = (&'a &'static str, &'a Value)>) -> Json {
    values
        .map(|(key, value)| ((*key).to_owned(), value.to_json()))
        .collect::<Map<String, Json>>()
        .into()
}
