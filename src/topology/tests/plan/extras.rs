//! What counts as extra, and what is let be.

use serde_json::json;
use tidegate_core::ladder::Destination;

use super::{VERSIONS, after, binding, declared, foreign, marks, topology};
use crate::topology::{
    Topology,
    live::{Live, LiveBinding, LiveExchange, LiveQueue, Version},
    plan::{self, Scope},
};

const NEW: Version = VERSIONS[3];

#[test]
fn what_nothing_wants_is_extra_and_says_why() {
    type Row = (fn(&mut Live), &'static [&'static str]);
    let rows: [Row; 12] = [
        (
            |l| l.queues.push(foreign("task.old.queue", json!({}))),
            &["- queue task.old.queue"],
        ),
        (
            |l| {
                l.queues.push(foreign("audit", json!({})));
                l.bindings.push(binding("task.exchange", "audit", "#"));
            },
            &["- queue audit", "- binding task.exchange → audit (#)"],
        ),
        (
            |l| {
                l.queues.push(foreign(
                    "retry",
                    json!({"x-dead-letter-exchange": "task.exchange"}),
                ))
            },
            &["- queue retry"],
        ),
        (
            |l| {
                l.queues
                    .push(foreign("elsewhere", json!({"x-dead-letter-exchange": "events"})))
            },
            &[],
        ),
        (|l| l.bindings.push(binding("events", "elsewhere", "#")), &[]),
        (
            |l| l.bindings.push(binding("events", "member.queue", "#")),
            &["- binding events → member.queue (#)"],
        ),
        (
            |l| l.bindings.push(binding("task.exchange", "member.queue", "old.*")),
            &["- binding task.exchange → member.queue (old.*)"],
        ),
        (
            |l| {
                let mut with = binding("task.exchange", "member.queue", "member.*");
                with.arguments.insert("x".into(), json!(1));
                l.bindings.push(with);
            },
            &["- binding task.exchange → member.queue (member.*)"],
        ),
        (
            |l| {
                for (name, exclusive, auto_delete) in [
                    ("a", true, false),
                    ("b", false, true),
                    ("amq.gen-x", false, false),
                ] {
                    l.queues.push(LiveQueue {
                        exclusive,
                        auto_delete,
                        ..foreign(name, json!({"x-dead-letter-exchange": "task.failed"}))
                    });
                    l.bindings.push(binding("task.unrouted", name, ""));
                }
            },
            &[],
        ),
        (
            |l| {
                l.exchanges.push(LiveExchange {
                    name: "task.old".into(),
                    kind: "fanout".into(),
                    durable: true,
                    ..LiveExchange::default()
                })
            },
            &["- exchange task.old"],
        ),
        (
            |l| {
                l.exchanges.push(LiveExchange {
                    name: "events".into(),
                    kind: "fanout".into(),
                    durable: true,
                    ..LiveExchange::default()
                })
            },
            &[],
        ),
        (
            |l| {
                l.policies.push(super::policy(
                    "task.consumer-timeout.gone",
                    "^gone$",
                    json!({"consumer-timeout": 1}),
                ))
            },
            &["- policy task.consumer-timeout.gone"],
        ),
    ];
    for (row, (drift, expected)) in rows.into_iter().enumerate() {
        let plan = after(NEW, drift);
        let mut found = marks(&plan);
        found.sort();
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        assert_eq!(found, expected, "row {row}");
        assert!(plan.extras().all(|extra| !extra.why.is_empty()));
    }
}

#[test]
fn what_is_ignored_is_no_extra() {
    let topology = topology();
    let mut live = declared(&topology.objects(), NEW);
    live.queues.push(foreign("audit.tap", json!({})));
    live.bindings.push(binding("task.exchange", "audit.tap", "#"));
    let scope = Scope {
        ignore: vec!["audit.*".into()],
        ..topology.scope("v", &live)
    };
    assert_eq!(
        marks(&plan::plan(&topology.objects(), &live, &scope)),
        Vec::<String>::new()
    );
}

/// A queue that gets a high lane leaves its own bindings for high priority behind.
#[test]
fn bindings_from_before_the_high_lane_are_extra() {
    let team =
        |lane: &str| format!("[[queue]]\nname = \"a.queue\"\nbind = [\"a.#\", \"b\"]\nowner = \"a\"\n{lane}");
    let parse = |text: &str| Topology::parse(&[("platform.toml", ""), ("a.toml", text)]).unwrap();
    let (before, with) = (parse(&team("")), parse(&team("high_lane = { threshold = 9 }\n")));
    let mut live = declared(&before.objects(), NEW);
    let plan = plan::plan(&with.objects(), &live, &with.scope("v", &live));
    let extra: Vec<String> = marks(&plan).into_iter().filter(|m| m.starts_with('-')).collect();
    assert_eq!(
        extra,
        [
            "- binding task.delay.v1.due → a.queue (*.*.*.*.*.*.*.high.a.#)",
            "- binding task.delay.v1.due → a.queue (*.*.*.*.*.*.*.high.b)",
            "- binding task.exchange.high → a.queue (a.#)",
            "- binding task.exchange.high → a.queue (b)",
        ]
    );
    // And back: the lane is extra with all that is bound to it.
    live = declared(&with.objects(), NEW);
    let plan = plan::plan(&before.objects(), &live, &before.scope("v", &live));
    let counts = plan.counts();
    assert_eq!((counts.add, counts.extra), (4, 1 + 5), "{plan}");
}

/// B71: a pattern is renamed.
#[test]
fn a_renamed_pattern_is_one_binding_added_and_the_old_one_extra() {
    let parse = |pattern: &str| {
        let text = format!("[[queue]]\nname = \"a.queue\"\nbind = [\"{pattern}\"]\nowner = \"a\"\n");
        Topology::parse(&[("platform.toml", ""), ("a.toml", &text)]).unwrap()
    };
    let live = declared(&parse("a.old").objects(), NEW);
    let now = parse("a.new");
    let plan = plan::plan(&now.objects(), &live, &now.scope("v", &live));
    let counts = plan.counts();
    assert_eq!((counts.add, counts.extra, counts.conflict), (4, 4, 0), "{plan}");
    assert!(marks(&plan).contains(&"- binding task.exchange → a.queue (a.old)".to_owned()));
}

#[test]
fn a_migration_under_way_is_left_alone() {
    let plan = after(NEW, |live| {
        live.queues.retain(|q| q.name != "member.queue");
        live.bindings.retain(|b| b.destination_name() != "member.queue");
        live.queues.push(foreign("member.queue.migrating", json!({})));
        for name in ["member.queue.migrating.in", "member.queue.migrating.next"] {
            live.exchanges.push(LiveExchange {
                name: name.into(),
                kind: "fanout".into(),
                durable: true,
                ..LiveExchange::default()
            });
        }
        live.bindings
            .push(binding("task.exchange", "member.queue.migrating", "member.*"));
        live.bindings.push(binding(
            "member.queue.migrating.next",
            "member.queue.migrating",
            "",
        ));
        live.bindings.push(LiveBinding {
            destination: Destination::Exchange("member.queue.migrating.in".into()),
            ..binding("task.exchange", "", "member.*")
        });
    });
    assert_eq!(marks(&plan), ["m queue member.queue"]);
    assert!(plan.has_differences());
    assert!(
        plan.adds().0.is_empty(),
        "nothing is put in the way of the migration"
    );
    let text = plan.to_string();
    assert!(
        text.contains("run `tidegate topology migrate member.queue` to finish"),
        "{text}"
    );
    assert!(text.ends_with("0 extra, 1 migration under way.\n"), "{text}");
}

#[test]
fn another_generation_of_the_ladder_is_let_be_and_keeps_its_ends() {
    let first = topology();
    let second = {
        let mut topology = first.clone();
        topology.names = topology.names.for_ladder(2);
        topology
    };
    let mut live = declared(&first.objects(), NEW);
    let added = declared(&second.objects(), NEW);
    for exchange in added.exchanges {
        if live.exchange(&exchange.name).is_none() {
            live.exchanges.push(exchange);
        }
    }
    for queue in added.queues {
        if live.queue(&queue.name).is_none() {
            live.queues.push(queue);
        }
    }
    live.bindings.extend(added.bindings);
    live.queues
        .iter_mut()
        .find(|q| q.name == "task.delay.v1.2.1")
        .unwrap()
        .messages = Some(7);
    let plan = |live: &Live| plan::plan(&second.objects(), live, &second.scope("v", live));
    assert_eq!(marks(&plan(&live)), Vec::<String>::new());
    let text = plan(&live).to_string();
    assert!(
        text.contains("note: ladder generation v1: it is not the one in use, v2: 7 messages pending"),
        "{text}"
    );

    let of_due = |b: &LiveBinding| b.source == "task.delay.v1.due" && b.pattern.ends_with("to.member.queue");
    live.bindings.retain(|b| !of_due(b));
    live.bindings
        .push(binding("task.delay.v1.due", "member.queue", "old"));
    assert_eq!(
        marks(&plan(&live)),
        [
            "+ binding task.delay.v1.due → member.queue (*.*.*.*.*.*.*.to.member.queue)",
            "- binding task.delay.v1.due → member.queue (old)",
        ]
    );
    // Where its end is gone, nothing comes back by it.
    live.exchanges.retain(|e| e.name != "task.delay.v1.due");
    live.bindings.retain(|b| b.source != "task.delay.v1.due");
    assert_eq!(marks(&plan(&live)), Vec::<String>::new());
}
