//! The ladder: literal keys, the shared vectors, and a walk through its objects for any delay.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::ladder::{self, DelayError, Destination, LadderError, Objects, Route, Target};
use tidegate_core::names::Names;
use tidegate_core::topic::Pattern;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn queue(name: &str) -> Target {
    Target::Queue(name.to_owned())
}

#[test]
fn vectors() {
    let text = include_str!("../../../conformance/ladder/vectors.json");
    let vectors: serde_json::Value = serde_json::from_str(text).unwrap();
    let names = Names::default();
    let routes = vectors["routes"].as_array().unwrap();
    assert!(routes.len() >= 15);
    for v in routes {
        let name = v["name"].as_str().unwrap().to_owned();
        let target = match v["target"].as_str().unwrap() {
            "to" => Target::Queue(name),
            "key" => Target::Key(name),
            "high" => Target::HighKey(name),
            other => panic!("{other}"),
        };
        let got = ladder::route(&names, ms(v["delay_ms"].as_u64().unwrap()), &target);
        match v["error"].as_str() {
            Some("too_long") => assert!(matches!(got, Err(LadderError::TooLong { .. })), "{v}: {got:?}"),
            Some("key_too_long") => {
                assert!(matches!(got, Err(LadderError::KeyTooLong { .. })), "{v}: {got:?}")
            }
            Some(other) => panic!("{other}"),
            None => {
                let route = got.unwrap();
                assert_eq!(route.exchange, v["exchange"], "{v}");
                assert_eq!(route.routing_key, v["routing_key"], "{v}");
                let waits = ms(v["waits_ms"].as_u64().unwrap());
                assert_eq!(
                    ladder::parse_key(&route.routing_key),
                    Some((waits, target)),
                    "{v}"
                );
            }
        }
    }
    for v in vectors["delay_texts"].as_array().unwrap() {
        let got = ladder::parse_delay_ms(v["text"].as_str().unwrap());
        match v["error"].as_str() {
            Some("negative") => assert!(matches!(got, Err(DelayError::Negative { .. })), "{v}: {got:?}"),
            Some("not_an_integer") => assert!(
                matches!(got, Err(DelayError::NotAnInteger { .. })),
                "{v}: {got:?}"
            ),
            Some("too_long") => assert!(matches!(got, Err(DelayError::TooLong { .. })), "{v}: {got:?}"),
            Some(other) => panic!("{other}"),
            None => assert_eq!(got, Ok(ms(v["ms"].as_u64().unwrap())), "{v}"),
        }
    }
}

#[test]
fn rounds_up_from_a_nanosecond() {
    let names = Names::default();
    let key = |delay| ladder::route(&names, delay, &queue("q")).unwrap().routing_key;
    assert_eq!(key(Duration::from_nanos(1)), "0.0.0.0.0.0.1.to.q");
    assert_eq!(key(ms(32) + Duration::from_nanos(1)), "0.0.0.0.0.0.2.to.q");
    let over = ladder::MAX_DELAY + Duration::from_nanos(1);
    assert_eq!(
        ladder::route(&names, over, &queue("q")),
        Err(LadderError::TooLong {
            asked: over,
            max: ladder::MAX_DELAY
        })
    );
    assert!(ladder::route(&names, Duration::MAX, &queue("q")).is_err());
}

#[test]
fn errors_name_the_limit() {
    let names = Names::default();
    let error = ladder::route(&names, ms(31_536_000_000), &queue("q"))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("8589934.56s") && error.contains("31536000s"),
        "{error}"
    );
    let error = ladder::parse_delay_ms("31536000000").unwrap_err().to_string();
    assert!(error.contains("8589934560 ms"), "{error}");
    let error = ladder::route(&names, ms(0), &queue(&"q".repeat(239)))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("256 bytes") && error.contains("to 238 bytes"),
        "{error}"
    );
    for target in [Target::Key("k".repeat(238)), Target::HighKey("k".repeat(237))] {
        let error = ladder::route(&names, ms(0), &target).unwrap_err().to_string();
        assert!(error.contains("to 236 bytes"), "{error}");
    }
}

#[test]
fn the_longest_names_fit_exactly() {
    let names = Names::default();
    let longest = [
        (ladder::max_queue_bytes(), Target::Queue as fn(String) -> Target),
        (ladder::max_key_bytes(), Target::Key),
        (ladder::max_high_key_bytes(), Target::HighKey),
    ];
    for (bytes, target) in longest {
        let route = ladder::route(&names, ms(1), &target("x".repeat(bytes))).unwrap();
        assert_eq!(route.routing_key.len(), 255);
        assert!(ladder::route(&names, ms(1), &target("x".repeat(bytes + 1))).is_err());
    }
}

#[test]
fn other_keys_are_no_ladder_keys() {
    for key in [
        "",
        "order.close",
        "0.0.0.0.0.0.1",
        "0.0.0.0.0.0.1.order.close",
        "0.0.0.0.0.0.to.q",
        "0.0.0.0.0.0.A.to.q",
        "0.0.0.0.0.0.10.to.q",
        "0.0.0.0.0.0..to.q",
        "0.0.0.0.0.0.g.to.q",
        "0.0.0.0.0.0.0.1.to.q",
    ] {
        assert_eq!(ladder::parse_key(key), None, "{key:?}");
    }
}

#[test]
fn objects_are_what_the_design_says() {
    let objects = ladder::objects(&Names::default());
    assert_eq!(
        (
            objects.exchanges.len(),
            objects.queues.len(),
            objects.bindings.len()
        ),
        (8, 105, 112)
    );
    let queue = objects
        .queues
        .iter()
        .find(|q| q.name == "task.delay.v1.3.a")
        .unwrap();
    assert_eq!(
        (queue.ttl_ms, queue.dead_letter_exchange.as_str()),
        (10 * 4096 * 32, "task.delay.v1.2")
    );
    let lowest = objects
        .queues
        .iter()
        .find(|q| q.name == "task.delay.v1.0.1")
        .unwrap();
    assert_eq!(
        (lowest.ttl_ms, lowest.dead_letter_exchange.as_str()),
        (32, "task.delay.v1.due")
    );
    // The broker refuses a TTL above ten years.
    assert!(objects.queues.iter().all(|q| q.ttl_ms <= 315_360_000_000));
    let due = objects
        .exchanges
        .iter()
        .find(|e| e.name == "task.delay.v1.due")
        .unwrap();
    assert_eq!(due.alternate.as_deref(), Some("task.unrouted"));
    let binding = |name: &str| {
        let of = |b: &&ladder::LadderBinding| match &b.destination {
            Destination::Queue(q) | Destination::Exchange(q) => q == name,
        };
        objects.bindings.iter().find(of).unwrap().pattern.clone()
    };
    assert_eq!(binding("task.delay.v1.6.f"), "f.#");
    assert_eq!(binding("task.delay.v1.3.a"), "*.*.*.a.#");
    assert_eq!(binding("task.delay.v1.2"), "*.*.*.0.#");
    assert_eq!(binding("task.delay.v1.due"), "*.*.*.*.*.*.0.#");
}

#[test]
fn due_patterns_take_exactly_one_queue() {
    let names = Names::default();
    let arrives = |pattern: String, target: Target| {
        let key = ladder::route(&names, ms(5000), &target).unwrap().routing_key;
        Pattern::parse(&pattern).unwrap().matches(&key)
    };
    let key = |k: &str| Target::Key(k.to_owned());
    assert_eq!(ladder::due_pattern_for_queue("x"), "*.*.*.*.*.*.*.to.x");
    assert!(arrives(
        ladder::due_pattern_for_queue("x.queue"),
        queue("x.queue")
    ));
    assert!(!arrives(
        ladder::due_pattern_for_queue("x.queue"),
        queue("a.x.queue")
    ));
    assert!(!arrives(ladder::due_pattern_for_queue("x"), key("to.x")));
    assert!(arrives(
        ladder::due_pattern_for_key("order.#"),
        key("order.close")
    ));
    assert!(!arrives(
        ladder::due_pattern_for_key("order.#"),
        queue("order.close")
    ));
    assert!(!arrives(
        ladder::due_pattern_for_key("order.#"),
        Target::HighKey("order.close".to_owned())
    ));
    assert!(arrives(
        ladder::due_pattern_for_high("order.#"),
        Target::HighKey("order.close".to_owned())
    ));
    assert!(arrives(ladder::due_pattern_for_key("#"), key("")));
}

/// What the broker does with a message in the ladder: route by topic, wait the queue's TTL, dead-letter on.
/// Returns the time waited and the queues passed before `due`.
fn walk(objects: &Objects, due: &str, route: &Route) -> (Duration, usize) {
    let (mut exchange, mut waited, mut hops) = (route.exchange.clone(), Duration::ZERO, 0);
    while exchange != due {
        let mut matched = objects.bindings.iter().filter(|b| {
            b.source == exchange && Pattern::parse(&b.pattern).unwrap().matches(&route.routing_key)
        });
        let to = matched.next().expect("every ladder key is routed");
        assert!(matched.next().is_none(), "a copy would be a duplicate");
        exchange = match &to.destination {
            Destination::Exchange(next) => next.clone(),
            Destination::Queue(name) => {
                let queue = objects.queues.iter().find(|q| q.name == *name).unwrap();
                waited += ms(queue.ttl_ms);
                hops += 1;
                queue.dead_letter_exchange.clone()
            }
        };
    }
    (waited, hops)
}

proptest! {
    #[test]
    fn a_walk_waits_for_the_delay_and_less_than_a_unit_more(
        micros in prop_oneof![0..200_000u64, 0..=ladder::MAX_DELAY.as_micros() as u64],
        prefix in "[a-z][a-z0-9]{0,8}",
    ) {
        let names = Names::new(&prefix).unwrap();
        let delay = Duration::from_micros(micros);
        let route = ladder::route(&names, delay, &queue("order.close.queue")).unwrap();
        let (waited, hops) = walk(&ladder::objects(&names), &names.ladder_due(), &route);
        let rounded = ladder::UNIT * u32::try_from(delay.as_micros().div_ceil(ladder::UNIT.as_micros())).unwrap();
        prop_assert_eq!(waited, rounded);
        prop_assert!(waited >= delay && waited < delay + ladder::UNIT);
        prop_assert!(hops <= 7);
        prop_assert_eq!(ladder::parse_key(&route.routing_key), Some((rounded, queue("order.close.queue"))));
    }

    #[test]
    fn delay_texts_are_exact_or_refused(text in "-?[0-9]{0,25}(\\.[0-9]{0,2})?(e[0-9])?") {
        if let Ok(delay) = ladder::parse_delay_ms(&text) {
            prop_assert_eq!(delay.as_millis(), text.parse::<u128>().unwrap());
            prop_assert!(delay <= ladder::MAX_DELAY);
        }
    }
}
