//! Plans, decided on values: what was declared, with one thing different.

mod drift;
mod extras;
mod lints;
mod overridden;
mod shown;
mod stored;

use serde_json::{Value as Json, json};

use crate::topology::{
    Objects, Topology,
    live::{Live, LiveBinding, LiveExchange, LivePolicy, LiveQueue, Version},
    plan::{self, Change, Plan, Scope},
};

const VERSIONS: [Version; 4] = [
    Version::new(3, 10, 8),
    Version::new(3, 13, 7),
    Version::new(4, 0, 5),
    Version::new(4, 3, 6),
];

/// A topology with everything that a file can say.
fn topology() -> Topology {
    let team = "[[queue]]\nname = \"order.close.queue\"\nbind = [\"order.close.#\"]\nowner = \"order\"\n\
                high_lane = { threshold = 200 }\nmax_length = 1000\nconsumer_timeout = \"2h\"\nmax_timeout = \"1h\"\n\
                [[queue]]\nname = \"member.queue\"\nbind = [\"member.*\"]\nowner = \"member\"\n\
                single_active_consumer = true\n";
    let platform = "[[fixed_delay]]\nname = \"30m\"\n";
    Topology::parse(&[("platform.toml", platform), ("team.toml", team)]).unwrap()
}

/// The broker as `objects` are declared on it.
fn declared(objects: &Objects, version: Version) -> Live {
    let policies = if version < Version::new(3, 12, 0) {
        &[]
    } else {
        objects.policies.as_slice()
    };
    Live {
        version,
        cluster: "rabbit@one".to_owned(),
        exchanges: objects
            .exchanges
            .iter()
            .map(|e| LiveExchange {
                name: e.name.clone(),
                kind: e.kind.as_str().to_owned(),
                durable: true,
                arguments: e
                    .alternate
                    .iter()
                    .map(|a| ("alternate-exchange".to_owned(), json!(a)))
                    .collect(),
                ..LiveExchange::default()
            })
            .collect(),
        queues: objects
            .queues
            .iter()
            .map(|q| LiveQueue {
                name: q.name.clone(),
                kind: "quorum".to_owned(),
                durable: true,
                arguments: q
                    .arguments
                    .iter()
                    .map(|(key, value)| ((*key).to_owned(), value.to_json()))
                    .collect(),
                ..LiveQueue::default()
            })
            .collect(),
        bindings: objects
            .bindings
            .iter()
            .map(|b| LiveBinding {
                source: b.source.clone(),
                destination: b.destination.clone(),
                pattern: b.pattern.clone(),
                arguments: Default::default(),
            })
            .collect(),
        policies: policies
            .iter()
            .map(|p| LivePolicy {
                name: p.name.clone(),
                pattern: p.pattern.clone(),
                apply_to: p.apply_to.to_owned(),
                priority: p.priority,
                definition: p
                    .definition
                    .iter()
                    .map(|(key, value)| ((*key).to_owned(), value.to_json()))
                    .collect(),
                operator: false,
            })
            .collect(),
        ..Live::default()
    }
}

fn planned(live: &Live) -> Plan {
    let topology = topology();
    plan::plan(&topology.objects(), live, &topology.scope("v", live))
}

/// The plan after `change` was made to what was declared on `version`.
fn after(version: Version, change: impl FnOnce(&mut Live)) -> Plan {
    let mut live = declared(&topology().objects(), version);
    change(&mut live);
    planned(&live)
}

fn queue<'a>(live: &'a mut Live, name: &str) -> &'a mut LiveQueue {
    live.queues.iter_mut().find(|q| q.name == name).unwrap()
}

fn foreign(name: &str, arguments: Json) -> LiveQueue {
    LiveQueue {
        name: name.to_owned(),
        kind: "classic".to_owned(),
        durable: true,
        arguments: serde_json::from_value(arguments).unwrap(),
        messages: Some(0),
        ..LiveQueue::default()
    }
}

fn binding(source: &str, queue: &str, pattern: &str) -> LiveBinding {
    LiveBinding {
        source: source.to_owned(),
        destination: tidegate_core::ladder::Destination::Queue(queue.to_owned()),
        pattern: pattern.to_owned(),
        arguments: Default::default(),
    }
}

fn policy(name: &str, pattern: &str, definition: Json) -> LivePolicy {
    LivePolicy {
        name: name.to_owned(),
        pattern: pattern.to_owned(),
        apply_to: "queues".to_owned(),
        priority: 0,
        definition: serde_json::from_value(definition).unwrap(),
        operator: false,
    }
}

/// Each change as `mark object`.
fn marks(plan: &Plan) -> Vec<String> {
    let mark = |change: &Change| match change {
        Change::Add(_) => "+",
        Change::Edit(_) => "~",
        Change::Conflict(_) => "!",
        Change::Migrating(_) => "m",
        Change::Extra(_) => "-",
    };
    plan.changes
        .iter()
        .map(|change| format!("{} {}", mark(change), change.object()))
        .collect()
}

#[test]
fn what_was_declared_has_no_difference_on_any_version() {
    for version in VERSIONS {
        let plan = after(version, |_| ());
        assert_eq!(marks(&plan), Vec::<String>::new(), "{version}");
        assert!(!plan.has_differences());
        assert!(
            plan.to_string()
                .contains("No differences: the broker is as described ("),
            "{plan}"
        );
    }
}

#[test]
fn an_empty_broker_needs_everything_and_nothing_else() {
    for version in VERSIONS {
        let objects = topology().objects();
        let live = Live {
            version,
            ..Live::default()
        };
        let plan = planned(&live);
        let policies = if version < Version::new(3, 12, 0) { 0 } else { 1 };
        assert_eq!(plan.counts().add, objects.len() + policies, "{version}");
        assert_eq!(plan.changes.len(), plan.counts().add);
        let (adds, left_out) = plan.adds();
        assert_eq!((adds.len(), left_out.len()), (objects.len(), 0));
        assert_eq!(adds.steps().concat().len(), objects.len());
        assert_eq!(plan.unread, []);
    }
}

#[test]
fn without_the_management_api_only_existence_is_known() {
    let objects = topology().objects();
    let missing = vec![
        crate::topology::ObjectName::new(crate::topology::ObjectKind::Queue, "member.queue"),
        crate::topology::ObjectName::new(crate::topology::ObjectKind::Exchange, "task.ingress"),
    ];
    let plan = plan::plan_of_missing(&objects, &missing);
    let marks = marks(&plan);
    assert!(
        marks.contains(&"+ queue member.queue".to_owned())
            && marks.contains(&"+ exchange task.ingress".to_owned())
    );
    assert!(marks.contains(&"+ binding task.exchange → member.queue (member.*)".to_owned()));
    assert!(marks.contains(&"+ binding task.ingress → task.ingress.queue ()".to_owned()));
    let bound = objects
        .bindings
        .iter()
        .filter(|b| b.destination_name() == "member.queue")
        .count();
    assert_eq!(marks.len(), 2 + bound + 1);
    assert!(plan.unread[0].why.contains("MANAGEMENT_URL"));
    let none = plan::plan_of_missing(&objects, &[]);
    assert!(
        none.to_string()
            .ends_with("No differences in what could be seen.\n"),
        "{none}"
    );
}

#[test]
fn what_may_not_be_read_is_not_claimed_to_be_missing() {
    let plan = after(VERSIONS[3], |live| {
        live.policies.clear();
        live.unread.push(crate::topology::live::Unread {
            what: "policies".to_owned(),
            why: "no tag".to_owned(),
        });
    });
    assert_eq!(marks(&plan), Vec::<String>::new());
    assert!(plan.to_string().contains("not seen: policies: no tag"), "{plan}");
    let _ = Scope::default();
}
