//! Each rule: what it finds, and what it leaves alone.

use serde_json::json;

use super::{VERSIONS, after, binding, foreign, policy, queue};
use crate::topology::{
    live::{Live, LiveExchange, LiveQueue, Version},
    plan::Plan,
};

const OLD: Version = VERSIONS[0];
const NEW: Version = VERSIONS[3];

fn rules(plan: &Plan) -> Vec<(&'static str, String)> {
    plan.lints
        .iter()
        .map(|lint| {
            (
                lint.rule,
                lint.object.as_ref().map_or(String::new(), |o| o.name.clone()),
            )
        })
        .collect()
}

fn quorum(name: &str, arguments: serde_json::Value) -> LiveQueue {
    LiveQueue {
        kind: "quorum".into(),
        ..foreign(name, arguments)
    }
}

fn at_least_once(to: &str) -> serde_json::Value {
    json!({"x-dead-letter-exchange": to, "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"})
}

#[test]
fn what_the_platform_declares_is_clean() {
    for version in &VERSIONS[1..] {
        assert_eq!(rules(&after(*version, |_| ())), [], "{version}");
    }
    // Its tasks may run for an hour, and only the node's own setting could allow for that.
    let old: Vec<&str> = rules(&after(OLD, |_| ()))
        .into_iter()
        .map(|(rule, _)| rule)
        .collect();
    assert_eq!(
        old,
        ["consumer-timeout", "consumer-timeout", "consumer-timeout-by-node"]
    );
    // Also before anything is declared.
    let plan = super::planned(&Live {
        version: NEW,
        ..Live::default()
    });
    assert_eq!(rules(&plan), []);
}

#[test]
fn each_rule_finds_what_it_is_for() {
    type Row = (Version, fn(&mut Live), &'static [(&'static str, &'static str)]);
    let rows: Vec<Row> = vec![
        // Drops at the delivery limit.
        (
            NEW,
            |l| {
                l.queues.push(quorum("tap", json!({})));
                l.bindings.push(binding("task.exchange", "tap", "#"));
            },
            &[("delivery-limit-drops", "tap")],
        ),
        (
            OLD,
            |l| {
                l.queues.push(quorum("tap", json!({})));
                l.bindings.push(binding("task.exchange", "tap", "#"));
            },
            &[],
        ),
        (
            OLD,
            |l| {
                l.queues.push(quorum("tap", json!({"x-delivery-limit": 3})));
                l.bindings.push(binding("task.exchange", "tap", "#"));
            },
            &[("delivery-limit-drops", "tap")],
        ),
        (
            NEW,
            |l| {
                l.queues.push(quorum("tap", json!({"x-delivery-limit": -1})));
                l.bindings.push(binding("task.exchange", "tap", "#"));
            },
            &[],
        ),
        (
            NEW,
            |l| {
                l.policies
                    .push(policy("p", "^task.dead", json!({"delivery-limit": 20})))
            },
            &[("delivery-limit-drops", "task.dead.queue")],
        ),
        // Somebody else's queue that has nothing to do with us.
        (NEW, |l| l.queues.push(quorum("theirs", json!({}))), &[]),
        // At most once.
        (
            NEW,
            |l| {
                queue(l, "member.queue")
                    .arguments
                    .remove("x-dead-letter-strategy");
            },
            &[("at-most-once", "member.queue")],
        ),
        (
            NEW,
            |l| {
                l.policies
                    .push(policy("p", "^member", json!({"overflow": "drop-head"})))
            },
            &[("at-most-once", "member.queue")],
        ),
        (
            NEW,
            |l| {
                l.policies
                    .push(policy("p", "v1.0.1$", json!({"overflow": "drop-head"})))
            },
            &[("delay-queue-drops-head", "task.delay.v1.0.1")],
        ),
        // Nowhere.
        (
            NEW,
            |l| {
                queue(l, "member.queue")
                    .arguments
                    .insert("x-dead-letter-exchange".into(), json!("gone"));
            },
            &[("dead-letter-nowhere", "member.queue")],
        ),
        (
            NEW,
            |l| {
                queue(l, "member.queue")
                    .arguments
                    .insert("x-dead-letter-exchange".into(), json!("empty"));
                l.exchanges.push(LiveExchange {
                    name: "empty".into(),
                    kind: "topic".into(),
                    durable: true,
                    ..LiveExchange::default()
                });
            },
            &[("dead-letter-nowhere", "member.queue")],
        ),
        (
            NEW,
            |l| {
                queue(l, "member.queue")
                    .arguments
                    .insert("x-dead-letter-exchange".into(), json!("other"));
                l.exchanges.push(LiveExchange {
                    name: "other".into(),
                    kind: "topic".into(),
                    durable: true,
                    ..LiveExchange::default()
                });
                l.bindings.push(binding("other", "somewhere", "no.match"));
            },
            &[("dead-letter-nowhere", "member.queue")],
        ),
        (
            NEW,
            |l| {
                queue(l, "member.queue")
                    .arguments
                    .insert("x-dead-letter-exchange".into(), json!("amq.topic"));
                l.bindings.push(binding("amq.topic", "somewhere", "member.#"));
            },
            &[],
        ),
        (
            NEW,
            |l| {
                let arguments = &mut queue(l, "member.queue").arguments;
                arguments.insert("x-dead-letter-exchange".into(), json!(""));
                arguments.insert("x-dead-letter-routing-key".into(), json!("no.such.queue"));
            },
            &[("dead-letter-nowhere", "member.queue")],
        ),
        // Time to live where tasks wait.
        (
            NEW,
            |l| {
                l.policies
                    .push(policy("p", "^member", json!({"message-ttl": 1000})))
            },
            &[("ttl-in-shared-queue", "member.queue")],
        ),
        (
            NEW,
            |l| {
                queue(l, "member.queue")
                    .arguments
                    .insert("x-message-ttl".into(), json!(1000));
            },
            &[("ttl-in-shared-queue", "member.queue")],
        ),
        // Classic.
        (
            NEW,
            |l| {
                l.queues.push(foreign("tap", json!({})));
                l.bindings.push(binding("task.exchange", "tap", "#"));
            },
            &[("classic-queue", "tap")],
        ),
        // Consumer timeout below what handlers may take.
        (
            NEW,
            |l| {
                let mut p = policy("p", "^order", json!({}));
                p.priority = 999;
                l.policies.push(p);
            },
            &[
                ("consumer-timeout", "order.close.queue"),
                ("consumer-timeout", "order.close.queue.high"),
            ],
        ),
        (
            NEW,
            |l| {
                let mut p = policy("p", "^member", json!({"consumer-timeout": 60_000}));
                p.operator = false;
                l.policies.push(p);
            },
            &[],
        ),
        // Feature flags.
        (
            VERSIONS[1],
            |l| l.disabled_feature_flags.push("stream_queue".into()),
            &[("feature-flags", "")],
        ),
        (
            NEW,
            |l| l.disabled_feature_flags.push("khepri_db".into()),
            &[("feature-flags", "")],
        ),
    ];
    for (row, (version, drift, expected)) in rows.into_iter().enumerate() {
        let plan = after(version, drift);
        let found: Vec<(&str, String)> = rules(&plan)
            .into_iter()
            .filter(|(rule, _)| {
                *rule != "consumer-timeout-by-node" && *rule != "consumer-timeout" || version == NEW
            })
            .collect();
        let expected: Vec<(&str, String)> = expected
            .iter()
            .map(|(rule, name)| (*rule, (*name).to_owned()))
            .collect();
        assert_eq!(found, expected, "row {row}: {plan}");
    }
    let plan = after(OLD, |_| ());
    assert!(!rules(&plan).iter().any(|(rule, _)| *rule == "feature-flags"));
}

#[test]
fn a_cycle_that_nobody_rejects_in_is_found_and_others_are_not() {
    let find = |drift: fn(&mut Live)| -> Vec<String> {
        let plan = after(NEW, drift);
        let cycles = plan.lints.iter().filter(|lint| lint.rule == "dead-letter-cycle");
        cycles
            .map(|lint| lint.what.rsplit(": ").next().unwrap().to_owned())
            .collect()
    };
    // The classic way to retry: a queue with a time to live that leads back to where it came from.
    let own = find(|live| {
        let mut arguments = at_least_once("task.exchange");
        arguments["x-message-ttl"] = json!(1000);
        live.queues.push(quorum("wait", arguments));
        live.bindings.push(binding("task.exchange", "wait", "order.#"));
    });
    assert_eq!(own, ["wait → wait"], "it takes its own dead letters");
    let elsewhere = find(|live| {
        let mut arguments = at_least_once("task.exchange");
        arguments["x-message-ttl"] = json!(1000);
        arguments["x-dead-letter-routing-key"] = json!("member.x");
        live.queues.push(quorum("wait", arguments));
        live.bindings.push(binding("task.exchange", "wait", "order.#"));
    });
    assert_eq!(
        elsewhere,
        Vec::<String>::new(),
        "its key leads to another queue, which leads on"
    );
    let two = |limit: i64| {
        move |live: &mut Live| {
            let mut there = at_least_once("x");
            there["x-dead-letter-routing-key"] = json!("b");
            there["x-delivery-limit"] = json!(limit);
            let mut back = at_least_once("task.exchange");
            back["x-message-ttl"] = json!(10);
            back["x-dead-letter-routing-key"] = json!("a");
            live.queues.push(quorum("a", there));
            live.queues.push(quorum("b", back));
            live.exchanges.push(LiveExchange {
                name: "x".into(),
                kind: "direct".into(),
                durable: true,
                ..LiveExchange::default()
            });
            live.bindings.push(binding("task.exchange", "a", "a"));
            live.bindings.push(binding("x", "b", "b"));
        }
    };
    let cycle = |limit| {
        let plan = after(NEW, two(limit));
        plan.lints
            .iter()
            .filter(|lint| lint.rule == "dead-letter-cycle")
            .map(|lint| lint.what.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(cycle(20).len(), 1);
    assert!(cycle(20)[0].ends_with("a → b → a"), "{:?}", cycle(20));
    assert_eq!(
        cycle(-1),
        Vec::<String>::new(),
        "only a reject leaves a, which breaks the cycle"
    );
}
