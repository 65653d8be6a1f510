//! A simulated router over the rendered objects: which queues a message reaches at once, and after its delay.
//!
//! It follows bindings as the broker does (each queue once, an alternate exchange if no binding takes the
//! message), and moves a message out of a delay queue by that queue's own dead-letter arguments.

use std::{collections::BTreeSet, sync::LazyLock, time::Duration};

use proptest::prelude::*;
use tidegate_core::{
    ladder::{self, Destination, Target},
    topic::Pattern,
};

use crate::topology::{ExchangeKind, Objects, Topology, Value};

/// Queues that a publish reaches at once.
fn publish(objects: &Objects, exchange: &str, key: &str) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let declared = objects
        .exchanges
        .iter()
        .find(|e| e.name == exchange)
        .expect("exchange exists");
    let mut taken = false;
    for binding in objects.bindings.iter().filter(|b| b.source == exchange) {
        let matches =
            declared.kind == ExchangeKind::Fanout || Pattern::parse(&binding.pattern).unwrap().matches(key);
        if !matches {
            continue;
        }
        taken = true;
        match &binding.destination {
            Destination::Queue(queue) => {
                reached.insert(queue.clone());
            }
            Destination::Exchange(next) => reached.extend(publish(objects, next, key)),
        }
    }
    if let (false, Some(alternate)) = (taken, &declared.alternate) {
        reached.extend(publish(objects, alternate, key));
    }
    reached
}

/// Queues that a publish ends in, and the delay it met on the way.
fn settle(objects: &Objects, exchange: &str, key: &str) -> (BTreeSet<String>, Duration) {
    let mut waited = 0;
    let mut reached = publish(objects, exchange, key);
    loop {
        let delays: Vec<_> = objects
            .queues
            .iter()
            .filter(|q| reached.contains(&q.name))
            .filter_map(|q| {
                match (
                    q.arguments.get("x-message-ttl"),
                    q.arguments.get("x-dead-letter-exchange"),
                ) {
                    (Some(Value::Int(ttl)), Some(Value::Text(next))) => Some((&q.name, *ttl, next)),
                    _ => None,
                }
            })
            .collect();
        let Some((name, ttl, next)) = delays.first() else {
            return (reached, Duration::from_millis(waited));
        };
        assert_eq!(delays.len(), 1, "a message waits in one delay queue at a time");
        waited += u64::try_from(*ttl).unwrap();
        reached.remove(*name);
        reached.extend(publish(objects, next, key));
    }
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|n| (*n).to_owned()).collect()
}

/// Queues whose names are suffixes and prefixes of each other, and that share keys.
fn treacherous() -> Topology {
    let team = r##"
[[queue]]
name = "orders"
bind = ["orders.#", "shared"]
owner = "a"
[[queue]]
name = "eu.orders"
bind = ["eu.#"]
owner = "a"
high_lane = { threshold = 200 }
[[queue]]
name = "to.orders"
bind = ["key.#", "*"]
owner = "a"
[[queue]]
name = "x.to.eu.orders"
bind = ["#.orders"]
owner = "a"
high_lane = { threshold = 0 }
"##;
    let platform = "[[fixed_delay]]\nname = \"30m\"\n";
    Topology::parse(&[("platform.toml", platform), ("a.toml", team)]).unwrap()
}

static TREACHEROUS: LazyLock<(Topology, Objects)> = LazyLock::new(|| {
    let topology = treacherous();
    let objects = topology.objects();
    (topology, objects)
});

#[test]
fn each_retry_returns_to_exactly_the_queue_that_failed() {
    let topology = treacherous();
    let objects = topology.objects();
    let business: Vec<_> = objects
        .queues
        .iter()
        .filter(|q| q.arguments.contains_key("x-dead-letter-routing-key"))
        .collect();
    assert_eq!(business.len(), 6);
    for queue in business {
        for millis in [0, 1, 32, 1_000, 600_000, 8_589_934_560] {
            let delay = Duration::from_millis(millis);
            let route = ladder::route(&topology.names, delay, &Target::Queue(queue.name.clone())).unwrap();
            let (reached, waited) = settle(&objects, &route.exchange, &route.routing_key);
            assert_eq!(reached, set(&[&queue.name]), "{delay:?}");
            assert!(
                waited >= delay && waited < delay + ladder::UNIT,
                "{delay:?} became {waited:?}"
            );
        }
    }
}

#[test]
fn nothing_is_lost_whatever_the_key() {
    let topology = treacherous();
    let objects = topology.objects();
    for exchange in &objects.exchanges {
        for key in [
            "",
            "nobody.here",
            "0.0.0.0.0.0.0.to.gone",
            "g.0.0.0.0.0.0.to.orders",
            "F.F.F.F.F.F.F.key.x",
        ] {
            let (reached, _) = settle(&objects, &exchange.name, key);
            assert!(
                !reached.is_empty(),
                "{key:?} on {} reaches nothing",
                exchange.name
            );
        }
    }
    let gone = ladder::route(
        &topology.names,
        Duration::from_secs(1),
        &Target::Queue("gone".into()),
    )
    .unwrap();
    assert_eq!(
        settle(&objects, &gone.exchange, &gone.routing_key).0,
        set(&["task.unrouted.queue"])
    );
}

#[test]
fn a_fixed_delay_ends_where_its_key_would() {
    let objects = treacherous().objects();
    let (reached, waited) = settle(&objects, "task.delay.30m", "eu.x");
    assert_eq!(
        (reached, waited),
        (set(&["eu.orders"]), Duration::from_secs(1800))
    );
}

fn key() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        "orders",
        "eu",
        "to",
        "key",
        "high",
        "shared",
        "[a-f0-9]",
        "[a-z]{1,3}"
    ];
    proptest::collection::vec(word, 1..6).prop_map(|words| words.join("."))
}

proptest! {
    #[test]
    fn a_delayed_key_reaches_what_the_key_reaches_now(key in key(), millis in 0u64..8_589_934_560) {
        let (topology, objects) = &*TREACHEROUS;
        let delay = Duration::from_millis(millis);
        for (target, exchange) in [
            (Target::Key(key.clone()), topology.names.exchange()),
            (Target::HighKey(key.clone()), topology.names.exchange_high()),
        ] {
            let route = ladder::route(&topology.names, delay, &target).unwrap();
            let (later, waited) = settle(objects, &route.exchange, &route.routing_key);
            prop_assert_eq!(later, publish(objects, &exchange, &key));
            prop_assert!(waited >= delay && waited < delay + ladder::UNIT);
        }
    }

    #[test]
    fn the_model_and_the_bindings_agree(key in key()) {
        let (topology, objects) = &*TREACHEROUS;
        let mut want: BTreeSet<_> = topology.routes(&key).map(|q| q.name.clone()).collect();
        let mut high: BTreeSet<_> = topology
            .routes(&key)
            .map(|q| if q.high_lane.is_some() { format!("{}.high", q.name) } else { q.name.clone() })
            .collect();
        for reached in [&mut want, &mut high] {
            if reached.is_empty() {
                reached.insert("task.unrouted.queue".to_owned());
            }
        }
        prop_assert_eq!(publish(objects, "task.exchange", &key), want);
        prop_assert_eq!(publish(objects, "task.exchange.high", &key), high);
    }
}
