//! What is sent for a topology, and what is said of what came out: no broker.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};
use tidegate_core::{ladder::Destination, topic::Pattern};

use super::*;
use crate::topology::live::{Arguments, LiveBinding, LiveExchange, LivePolicy, LiveQueue};

const TEAM: &str = r##"
[[queue]]
name = "order.close.queue"
bind = ["order.close.#", "order.*.eu"]
owner = "test"
high_lane = { threshold = 200 }

[[queue]]
name = "order.audit.queue"
bind = ["order.close.late"]
owner = "test"
"##;

fn topology() -> Topology {
    Topology::parse(&[
        ("platform.toml", "[[fixed_delay]]\nname = \"30m\""),
        ("team.toml", TEAM),
    ])
    .unwrap()
}

/// What a broker has on which the topology was applied.
fn applied(topology: &Topology) -> Live {
    let objects = topology.objects();
    let text = |value: &str| Json::from(value);
    let exchange = |e: &crate::topology::Exchange| LiveExchange {
        name: e.name.clone(),
        kind: e.kind.as_str().to_owned(),
        durable: true,
        arguments: e
            .alternate
            .iter()
            .map(|a| ("alternate-exchange".to_owned(), text(a)))
            .collect(),
        ..LiveExchange::default()
    };
    let queue = |q: &crate::topology::Queue| LiveQueue {
        name: q.name.clone(),
        kind: "quorum".to_owned(),
        durable: true,
        arguments: q
            .arguments
            .iter()
            .map(|(k, v)| ((*k).to_owned(), v.to_json()))
            .collect(),
        ..LiveQueue::default()
    };
    let binding = |b: &crate::topology::Binding| LiveBinding {
        source: b.source.clone(),
        destination: b.destination.clone(),
        pattern: b.pattern.clone(),
        arguments: Arguments::new(),
    };
    Live {
        exchanges: objects.exchanges.iter().map(exchange).collect(),
        queues: objects.queues.iter().map(queue).collect(),
        bindings: objects.bindings.iter().map(binding).collect(),
        ..Live::default()
    }
}

/// Everything confirmed.
fn all_sent(batch: &Batch) -> Vec<Sent> {
    let sent = |probe: &Probe| Sent {
        confirmed: probe.copies,
        refused: None,
    };
    batch.probes.iter().map(sent).collect()
}

/// Every probe comes out where it should.
fn all_come(batch: &Batch) -> Vec<Arrival> {
    let deaths = |probe: &Probe| {
        let expired = probe
            .delays()
            .into_iter()
            .map(|queue| ("expired", queue.to_owned()));
        let rejected = probe.reject_in.iter().map(|queue| ("rejected", queue.clone()));
        expired
            .chain(rejected)
            .map(|(reason, queue)| Death {
                queue,
                reason: reason.to_owned(),
            })
            .collect()
    };
    let arrival = |(number, probe): (usize, &Probe)| Arrival {
        probe: number,
        queue: probe.end.clone(),
        key: probe.end_key.clone(),
        deaths: deaths(probe),
    };
    batch.probes.iter().enumerate().map(arrival).collect()
}

fn judged(plan: &Plan, arrivals: &[Arrival]) -> Report {
    let (mut report, batch) = (Report::default(), &plan.batches[0]);
    judge(&mut report, batch, plan.live(), &all_sent(batch), arrivals);
    report
}

#[test]
fn every_object_of_the_topology_is_on_the_way_of_a_probe() {
    let topology = topology();
    let plan = Plan::new(&topology, &applied(&topology));
    let hops: Vec<&Hop> = plan
        .batches
        .iter()
        .flat_map(|b| &b.probes)
        .flat_map(|p| &p.path)
        .collect();
    for binding in topology.objects().bindings {
        let on_the_way = hops.iter().any(|hop| match (hop, &binding.destination) {
            (
                Hop::Bound {
                    exchange,
                    queue,
                    pattern,
                },
                Destination::Queue(to),
            ) => (exchange, queue, pattern) == (&binding.source, to, &binding.pattern),
            (
                Hop::Linked {
                    exchange,
                    to,
                    pattern,
                },
                Destination::Exchange(destination),
            ) => (exchange, to, pattern) == (&binding.source, destination, &binding.pattern),
            _ => false,
        });
        assert!(on_the_way, "{binding}");
    }
    for queue in topology.objects().queues {
        if let Some(crate::topology::Value::Text(to)) = queue.arguments.get("x-dead-letter-exchange") {
            let dies = |hop: &&&Hop| match hop {
                Hop::Rejected { queue: q, to: t } | Hop::Expires { queue: q, to: t } => {
                    (q, t) == (&queue.name, to)
                }
                _ => false,
            };
            assert!(hops.iter().any(|hop| dies(&hop)), "{}", queue.name);
        }
    }
}

#[test]
fn a_probe_is_published_with_a_key_that_its_binding_takes() {
    let topology = topology();
    let plan = Plan::new(&topology, &applied(&topology));
    for probe in plan.batches.iter().flat_map(|batch| &batch.probes) {
        if let Some(Hop::Bound {
            exchange, pattern, ..
        }) = probe.path.first()
            && exchange != "task.failed"
            && !pattern.is_empty()
        {
            assert!(Pattern::parse(pattern).unwrap().matches(&probe.key), "{probe:?}");
        }
    }
}

#[test]
fn what_comes_out_where_it_should_is_delivered() {
    let topology = topology();
    let plan = Plan::new(&topology, &applied(&topology));
    let report = judged(&plan, &all_come(&plan.batches[0]));
    assert_eq!(report.broken, []);
    assert_eq!((report.tried, report.delivered), (plan.probes(), plan.probes()));
}

#[test]
fn what_is_missing_on_the_broker_is_to_blame() {
    let topology = topology();
    let mut live = applied(&topology);
    live.bindings.retain(|b| b.source != "task.failed");
    let plan = Plan::new(&topology, &live);
    let mut arrivals = all_come(&plan.batches[0]);
    arrivals.retain(|a| a.queue != "task.failed.queue" || a.deaths.is_empty());
    let report = judged(&plan, &arrivals);
    let hops: Vec<(&str, &str)> = report
        .broken
        .iter()
        .map(|b| (b.hop.as_str(), b.why.as_str()))
        .collect();
    assert_eq!(hops, [("task.failed → task.failed.queue", "no binding")]);
    assert_eq!(report.broken[0].probes.len(), 3, "both queues and the high lane");
}

#[test]
fn a_way_that_nothing_explains_is_told_as_it_was() {
    let topology = topology();
    let plan = Plan::new(&topology, &applied(&topology));
    let batch = &plan.batches[0];
    let number = batch
        .probes
        .iter()
        .position(|p| p.what == "a delay in task.delay.v1.5.a")
        .unwrap();
    let mut arrivals = all_come(batch);
    arrivals[number].deaths[0].reason = "maxlen".to_owned();
    let report = judged(&plan, &arrivals);
    assert_eq!(report.broken.len(), 1);
    assert_eq!(report.broken[0].hop, "task.delay.v1.5.a → task.delay.v1.4");
    assert_eq!(
        report.broken[0].why,
        "it came out another way, by task.delay.v1.5.a (maxlen)"
    );

    arrivals.remove(number);
    let report = judged(&plan, &arrivals);
    assert_eq!(report.broken[0].why, "it did not come out");
}

#[test]
fn a_policy_in_force_is_named_where_waiting_messages_are_lost() {
    let topology = topology();
    let mut live = applied(&topology);
    live.policies.push(LivePolicy {
        name: "eats".to_owned(),
        pattern: "order".to_owned(),
        definition: BTreeMap::from([("message-ttl".to_owned(), json!(60_000))]),
        ..LivePolicy::default()
    });
    let audit = live
        .queues
        .iter_mut()
        .find(|q| q.name == "order.audit.queue")
        .unwrap();
    audit.policy = Some("eats".to_owned());
    let plan = Plan::new(&topology, &live);
    let mut arrivals = all_come(&plan.batches[0]);
    let waits = |p: &Probe| p.what == "a message that waits in order.audit.queue";
    arrivals.remove(plan.batches[0].probes.iter().position(waits).unwrap());
    let report = judged(&plan, &arrivals);
    assert_eq!(report.broken.len(), 1, "{report:?}");
    assert_eq!(
        report.broken[0].why,
        "what waits in it is lost to policy \"eats\" (message-ttl=60000)"
    );
}

#[test]
fn business_queues_come_in_batches_and_keys_that_everybody_takes_are_no_probe() {
    let mut team = String::from("[[queue]]\nname = \"all.queue\"\nbind = [\"#\"]\nowner = \"x\"\n");
    for n in 0..450 {
        team.push_str(&format!(
            "[[queue]]\nname = \"q{n}.queue\"\nbind = [\"q.n{n}\"]\nowner = \"x\"\n"
        ));
    }
    let topology = Topology::parse(&[("platform.toml", ""), ("team.toml", &team)]).unwrap();
    let plan = Plan::new(&topology, &applied(&topology));
    let sizes: Vec<usize> = plan.batches.iter().map(|batch| batch.queues.len()).collect();
    assert_eq!(sizes, [200, 200, 51]);
    assert!(
        plan.notes
            .iter()
            .any(|n| n.contains("nothing is unroutable at task.exchange:")),
        "{:?}",
        plan.notes
    );
}

#[test]
fn delay_queues_that_hold_for_another_time_are_seen_without_a_probe() {
    let topology = topology();
    let mut live = applied(&topology);
    let queue = live
        .queues
        .iter_mut()
        .find(|q| q.name == "task.delay.30m")
        .unwrap();
    queue.arguments.insert("x-message-ttl".to_owned(), json!(5));
    let audit = live
        .queues
        .iter_mut()
        .find(|q| q.name == "order.audit.queue")
        .unwrap();
    audit.policy = Some("goes".to_owned());
    live.policies.push(LivePolicy {
        name: "goes".to_owned(),
        definition: BTreeMap::from([("expires".to_owned(), json!(60_000))]),
        ..LivePolicy::default()
    });
    // Operator policies are told by their patterns: queues don't name them.
    for (pattern, key) in [
        ("^order\\.close\\.queue$", "expires"),
        ("^task\\.delay\\.v1\\.6\\.1$", "message-ttl"),
        ("^theirs", "expires"),
    ] {
        live.policies.push(LivePolicy {
            name: format!("limits {pattern}"),
            pattern: pattern.to_owned(),
            apply_to: "queues".to_owned(),
            definition: BTreeMap::from([(key.to_owned(), json!(60_000))]),
            operator: true,
            ..LivePolicy::default()
        });
    }
    let mut report = Report::default();
    report.add_times(&topology.objects(), &live);
    let operators: Vec<String> = report
        .broken
        .iter()
        .filter(|b| b.why.starts_with("operator"))
        .map(|b| format!("{}: {}", b.hop, b.why))
        .collect();
    assert_eq!(
        operators,
        [
            "task.delay.v1.6.1: operator policy \"limits ^task\\\\.delay\\\\.v1\\\\.6\\\\.1$\" lets messages out too early",
            "order.close.queue: operator policy \"limits ^order\\\\.close\\\\.queue$\" deletes it when nobody consumes it",
        ]
    );
    report.broken.retain(|b| !b.why.starts_with("operator"));
    assert_eq!(report.broken.len(), 2, "{report:?}");
    assert_eq!(report.broken[1].hop, "order.audit.queue");
    assert_eq!(
        report.broken[1].why,
        "policy \"goes\" deletes it when nobody consumes it"
    );
    assert_eq!(
        report.broken[0].why,
        "it holds messages for 5 ms instead of 1800000 ms"
    );
}
