//! Every way in which an object can differ, and none in which it only seems to.

use serde_json::{Value as Json, json};

use super::{VERSIONS, after, marks, policy, queue};
use crate::topology::{
    live::{Live, Version},
    plan::{Change, Origin, Plan, Remedy},
};

const OLD: Version = VERSIONS[0];
const NEW: Version = VERSIONS[3];
const QUEUE: &str = "order.close.queue";
pub(super) const DELAY: &str = "task.delay.v1.0.1";

/// The differences of the only change, as (name, on the broker, from, wanted).
pub(super) fn differences(plan: &Plan) -> Vec<(String, Option<Json>, Origin, Option<Json>)> {
    let [change] = plan.changes.as_slice() else {
        panic!("one change: {:#?}", marks(plan))
    };
    let found = match change {
        Change::Conflict(conflict) => &conflict.differences,
        Change::Edit(edit) => &edit.differences,
        other => panic!("{other:?}"),
    };
    found
        .iter()
        .map(|d| {
            (
                d.name.clone(),
                d.on_broker.clone(),
                d.from.clone(),
                d.wanted.clone(),
            )
        })
        .collect()
}

fn remedies(plan: &Plan) -> Vec<Remedy> {
    plan.conflicts()
        .flat_map(|conflict| conflict.remedies.clone())
        .collect()
}

type Drift = fn(&mut Live);

#[test]
fn what_amqp_would_refuse_is_shown_argument_by_argument() {
    let declared = Origin::Declared;
    let rows: Vec<(Drift, &str, Json, Origin, Json)> = vec![
        (
            |l| {
                queue(l, QUEUE).arguments.insert("x-max-length".into(), json!(5));
            },
            "x-max-length",
            json!(5),
            declared.clone(),
            json!(1000),
        ),
        (
            |l| {
                queue(l, QUEUE).arguments.remove("x-max-length");
            },
            "x-max-length",
            Json::Null,
            Origin::Default,
            json!(1000),
        ),
        (
            |l| {
                queue(l, QUEUE).arguments.insert("x-message-ttl".into(), json!(9));
            },
            "x-message-ttl",
            json!(9),
            declared.clone(),
            Json::Null,
        ),
        (
            |l| {
                queue(l, DELAY)
                    .arguments
                    .insert("x-message-ttl".into(), json!(33));
            },
            "x-message-ttl",
            json!(33),
            declared.clone(),
            json!(32),
        ),
        (
            |l| {
                queue(l, QUEUE)
                    .arguments
                    .insert("x-dead-letter-exchange".into(), json!("other"));
            },
            "x-dead-letter-exchange",
            json!("other"),
            declared.clone(),
            json!("task.failed"),
        ),
        (
            |l| {
                queue(l, QUEUE).arguments.remove("x-dead-letter-exchange");
            },
            "x-dead-letter-exchange",
            Json::Null,
            Origin::Default,
            json!("task.failed"),
        ),
        (
            |l| {
                queue(l, QUEUE)
                    .arguments
                    .insert("x-delivery-limit".into(), json!("20"));
            },
            "x-delivery-limit",
            json!("20"),
            declared.clone(),
            json!(20),
        ),
        (
            |l| {
                queue(l, QUEUE).arguments.remove("x-delivery-limit");
            },
            "x-delivery-limit",
            json!(20),
            Origin::Default,
            json!(20),
        ),
        (
            |l| {
                queue(l, QUEUE).arguments.remove("x-overflow");
            },
            "x-overflow",
            json!("drop-head"),
            Origin::Default,
            json!("reject-publish"),
        ),
        (
            |l| {
                queue(l, QUEUE).durable = false;
            },
            "durable",
            json!(false),
            declared.clone(),
            json!(true),
        ),
        (
            |l| {
                queue(l, QUEUE).auto_delete = true;
            },
            "auto-delete",
            json!(true),
            declared.clone(),
            json!(false),
        ),
    ];
    for (drift, name, on_broker, from, wanted) in rows {
        let plan = after(NEW, drift);
        let null = |value: Json| Some(value).filter(|value| !value.is_null());
        assert_eq!(
            differences(&plan),
            [(name.to_owned(), null(on_broker), from, null(wanted))],
            "{plan}"
        );
        assert!(matches!(remedies(&plan)[..], [Remedy::Migrate { .. }]), "{plan}");
    }
    // Another type brings all its own arguments along.
    let plan = after(OLD, |live| {
        let queue = queue(live, QUEUE);
        queue.kind = "classic".into();
        queue.arguments = serde_json::from_value(json!({"x-max-priority": 3})).unwrap();
    });
    let names: Vec<String> = differences(&plan).into_iter().map(|d| d.0).collect();
    for name in [
        "type",
        "x-max-priority",
        "x-delivery-limit",
        "x-dead-letter-strategy",
        "x-max-length",
    ] {
        assert!(names.iter().any(|n| n == name), "{name}: {plan}");
    }
    let plan = after(NEW, |live| queue(live, QUEUE).exclusive = true);
    assert!(
        matches!(remedies(&plan)[..], [Remedy::Exclusive { .. }]),
        "{plan}"
    );
}

#[test]
fn what_only_seems_to_differ_is_no_difference() {
    let rows: Vec<Drift> = vec![
        |l| {
            queue(l, DELAY)
                .arguments
                .insert("x-message-ttl".into(), json!(32.0));
        },
        |l| {
            queue(l, DELAY)
                .arguments
                .insert("x-message-ttl".into(), json!(32_i32));
        },
        |l| {
            queue(l, QUEUE).arguments.remove("x-queue-type");
        },
        |l| {
            queue(l, QUEUE).arguments.insert("x-made-up".into(), json!(1));
        },
        |l| {
            l.default_queue_type = Some("quorum".into());
        },
        |l| {
            queue(l, QUEUE).policy = Some("gone".into());
        },
        // Each of these changes nothing that is in force.
        |l| {
            l.policies
                .push(policy("p", "^order", json!({"max-length": 5000})))
        },
        |l| {
            l.policies
                .push(policy("p", "^order", json!({"delivery-limit": 100})))
        },
        |l| {
            l.policies
                .push(policy("p", "^order", json!({"dead-letter-exchange": "other"})))
        },
        |l| {
            l.policies
                .push(policy("p", ".*", json!({"overflow": "reject-publish"})))
        },
        |l| {
            l.policies.push(policy(
                "p",
                ".*",
                json!({"overflow": "drop-head", "ha-mode": "all"}),
            ))
        },
        |l| {
            l.policies
                .push(policy("p", "^other", json!({"overflow": "drop-head"})))
        },
        |l| {
            let mut p = policy("p", ".*", json!({"overflow": "drop-head"}));
            p.apply_to = "classic_queues".into();
            l.policies.push(p);
        },
        |l| {
            let mut p = policy("p", ".*", json!({"alternate-exchange": "x"}));
            p.apply_to = "exchanges".into();
            p.pattern = "^task.exchange$".into();
            l.policies.push(p);
        },
        // Look-around is what people narrow patterns with.
        |l| {
            l.policies.push(policy(
                "p",
                "^(?!task\\.|order\\.|member\\.).*",
                json!({"overflow": "drop-head"}),
            ))
        },
    ];
    for (row, drift) in rows.into_iter().enumerate() {
        for version in VERSIONS {
            let plan = after(version, drift);
            assert_eq!(marks(&plan), Vec::<String>::new(), "row {row}, {version}: {plan}");
            assert_eq!(plan.unread, [], "row {row}");
        }
    }
    let plan = after(NEW, |l| {
        queue(l, QUEUE).arguments.insert("x-made-up".into(), json!(1));
    });
    assert!(
        plan.to_string()
            .contains("note: queue order.close.queue: it was declared with x-made-up"),
        "{plan}"
    );
}

#[test]
fn an_exchange_that_differs_is_shown_property_by_property() {
    fn exchange<'a>(live: &'a mut Live, name: &str) -> &'a mut crate::topology::live::LiveExchange {
        live.exchanges.iter_mut().find(|e| e.name == name).unwrap()
    }
    let rows: Vec<(Drift, &str, Json, Json)> = vec![
        (
            |l| exchange(l, "task.exchange").kind = "direct".into(),
            "type",
            json!("direct"),
            json!("topic"),
        ),
        (
            |l| exchange(l, "task.exchange").durable = false,
            "durable",
            json!(false),
            json!(true),
        ),
        (
            |l| exchange(l, "task.exchange").auto_delete = true,
            "auto-delete",
            json!(true),
            json!(false),
        ),
        (
            |l| exchange(l, "task.exchange").internal = true,
            "internal",
            json!(true),
            json!(false),
        ),
        (
            |l| exchange(l, "task.exchange").arguments.clear(),
            "alternate-exchange",
            Json::Null,
            json!("task.unrouted"),
        ),
        (
            |l| {
                exchange(l, "task.failed")
                    .arguments
                    .insert("alternate-exchange".into(), json!("x"));
            },
            "alternate-exchange",
            json!("x"),
            Json::Null,
        ),
    ];
    for (drift, name, on_broker, wanted) in rows {
        let plan = after(NEW, drift);
        let null = |value: Json| Some(value).filter(|value| !value.is_null());
        assert_eq!(
            differences(&plan),
            [(name.to_owned(), null(on_broker), Origin::Declared, null(wanted))]
        );
        assert!(
            matches!(remedies(&plan)[..], [Remedy::ReplaceExchange { .. }]),
            "{plan}"
        );
    }
    let plan = after(NEW, |live| {
        let mut policy = policy("ae", "^task.failed$", json!({"alternate-exchange": "x"}));
        policy.apply_to = "all".into();
        live.policies.push(policy);
    });
    assert_eq!(
        differences(&plan),
        [(
            "alternate-exchange".into(),
            Some(json!("x")),
            Origin::Policy("ae".into()),
            None
        )]
    );
}

#[test]
fn nothing_is_bound_to_what_is_in_conflict() {
    let plan = after(NEW, |live| {
        let q = queue(live, "member.queue");
        q.kind = "classic".into();
        live.bindings.retain(|b| b.destination_name() != "member.queue");
    });
    let (adds, left_out) = plan.adds();
    assert_eq!((adds.len(), left_out.len()), (0, plan.counts().add));
    // A policy alone keeps nobody from being bound.
    let plan = after(NEW, |live| {
        live.policies
            .push(policy("p", "^member", json!({"overflow": "drop-head"})));
        live.bindings.retain(|b| b.destination_name() != "member.queue");
    });
    let (adds, left_out) = plan.adds();
    assert_eq!((adds.len(), left_out.len()), (plan.counts().add, 0));
    assert!(!adds.bindings.is_empty());
}
