//! Policies: those that make the broker do otherwise, and the platform's own.

use serde_json::{Value as Json, json};

use super::{
    VERSIONS, after,
    drift::{DELAY, differences},
    marks, policy,
};
use crate::topology::{live::Version, plan::Origin};

const OLD: Version = VERSIONS[0];
const NEW: Version = VERSIONS[3];

#[test]
fn a_policy_that_overrides_is_named_with_what_is_in_force() {
    let ours = Origin::Policy("ops-1".into());
    let rows: [(&str, Json, &str, &str, Json, Json); 7] = [
        (
            "^member",
            json!({"overflow": "drop-head"}),
            "member.queue",
            "x-overflow",
            json!("drop-head"),
            json!("reject-publish"),
        ),
        (
            "^member",
            json!({"delivery-limit": 5}),
            "member.queue",
            "x-delivery-limit",
            json!(5),
            json!(20),
        ),
        (
            "^member",
            json!({"message-ttl": 60_000}),
            "member.queue",
            "x-message-ttl",
            json!(60_000),
            Json::Null,
        ),
        (
            "^member",
            json!({"max-length": 10}),
            "member.queue",
            "x-max-length",
            json!(10),
            Json::Null,
        ),
        (
            "^member",
            json!({"expires": 1000}),
            "member.queue",
            "x-expires",
            json!(1000),
            Json::Null,
        ),
        (
            "0\\.1$",
            json!({"dead-letter-routing-key": "k"}),
            DELAY,
            "x-dead-letter-routing-key",
            json!("k"),
            Json::Null,
        ),
        (
            "0\\.1$",
            json!({"message-ttl": 1}),
            DELAY,
            "x-message-ttl",
            json!(1),
            json!(32),
        ),
    ];
    for (pattern, definition, object, name, on_broker, wanted) in rows {
        for operator in [false, true] {
            let definition = definition.clone();
            let plan = after(NEW, |live| {
                let mut policy = policy("ops-1", pattern, definition);
                policy.operator = operator;
                live.policies.push(policy);
            });
            let from = if operator {
                Origin::OperatorPolicy("ops-1".into())
            } else {
                ours.clone()
            };
            let wanted = Some(wanted.clone()).filter(|value| !value.is_null());
            let (found, conflict) = (differences(&plan), &plan.changes[0]);
            assert_eq!(conflict.object().name, object, "{plan}");
            assert_eq!(
                found,
                [(name.to_owned(), Some(on_broker.clone()), from, wanted)],
                "{plan}"
            );
            let clear = if operator {
                "clear_operator_policy"
            } else {
                "clear_policy"
            };
            assert!(
                conflict
                    .advice()
                    .contains(&format!("rabbitmqctl {clear} -p v ops-1")),
                "{plan}"
            );
        }
    }
}

#[test]
fn of_several_policies_the_one_in_force_is_named() {
    let plan = after(NEW, |live| {
        live.policies
            .push(policy("low", "^member", json!({"overflow": "drop-head"})));
        let mut high = policy("high", "^member", json!({"delivery-limit": 7}));
        high.priority = 9;
        live.policies.push(high);
        let mut operator = policy("limit", "^member", json!({"delivery-limit": 3, "max-length": 4}));
        operator.operator = true;
        live.policies.push(operator);
    });
    assert_eq!(
        differences(&plan),
        [
            (
                "x-delivery-limit".into(),
                Some(json!(3)),
                Origin::OperatorPolicy("limit".into()),
                Some(json!(20))
            ),
            (
                "x-max-length".into(),
                Some(json!(4)),
                Origin::OperatorPolicy("limit".into()),
                None
            ),
        ],
        "{plan}"
    );
    // An unlimited delivery limit loses against any number.
    let plan = after(NEW, |live| {
        live.policies
            .push(policy("p", "^member", json!({"delivery-limit": -1})))
    });
    assert_eq!(marks(&plan), Vec::<String>::new());
    let plan = after(NEW, |live| {
        live.policies
            .push(policy("odd", "(?<n", json!({"overflow": "drop-head"})))
    });
    assert_eq!(marks(&plan), Vec::<String>::new());
    assert!(
        plan.to_string().contains("not seen: what policy odd matches"),
        "{plan}"
    );
}

#[test]
fn the_platforms_own_policy_is_added_edited_or_found_overruled() {
    let name = "task.consumer-timeout.order.close.queue";
    let plan = after(NEW, |live| live.policies.clear());
    assert_eq!(marks(&plan), [format!("+ policy {name}")]);
    let plan = after(NEW, |live| {
        live.policies[0]
            .definition
            .insert("consumer-timeout".into(), json!(1));
        live.policies[0].priority = 3;
    });
    assert_eq!(marks(&plan), [format!("~ policy {name}")]);
    let found: Vec<(String, Option<Json>)> = differences(&plan).into_iter().map(|d| (d.0, d.1)).collect();
    assert_eq!(
        found,
        [
            ("priority".into(), Some(json!(3))),
            ("consumer-timeout".into(), Some(json!(1)))
        ]
    );
    let plan = after(NEW, |live| {
        let mut over = policy("ops", "^order", json!({"max-length": 5000}));
        over.priority = 1000;
        live.policies.push(over);
    });
    assert_eq!(
        marks(&plan),
        ["! queue order.close.queue", "! queue order.close.queue.high"]
    );
    let conflict = plan.conflicts().next().unwrap();
    assert_eq!(conflict.differences[0].name, "consumer-timeout");
    assert_eq!(conflict.differences[0].from, Origin::Policy("ops".into()));
    assert_eq!(conflict.differences[0].wanted, Some(json!(7_200_000)));
    let plan = after(OLD, |_| ());
    assert!(
        plan.lints
            .iter()
            .any(|lint| lint.rule == "consumer-timeout-by-node"),
        "{plan}"
    );
}
