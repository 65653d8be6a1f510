//! The probes: one for each hop of each route that the topology promises.

use std::collections::BTreeMap;

use tidegate_core::{
    ladder::{self, Destination, LEVELS, RADIX},
    names::Names,
    topic::Pattern,
};

use super::{Hop, PROBE_KEY, PROBE_QUEUE, Probe, UNROUTABLE_KEY, keys};
use crate::topology::{
    model::Topology,
    objects::{Binding, ExchangeKind, Objects},
};

/// Seven zero digits: nothing is left of the delay.
const NO_DELAY: &str = "0.0.0.0.0.0.0.";
/// The same as a pattern.
const ANY_DELAY: &str = "*.*.*.*.*.*.*.";

/// The platform's own routes: ends, entries, ladder, fixed delays. What can't be tried is added to `notes`.
pub(super) fn platform(topology: &Topology, copies: u32, notes: &mut Vec<String>) -> Vec<Probe> {
    let (names, objects) = (&topology.names, topology.objects());
    let mut probes = Vec::new();
    let dead = dead_letter(names);
    for exchange in [names.failed(), names.ingress(), names.unrouted(), names.dead()] {
        let queue = Names::queue_of(&exchange);
        probes.push(waits(&queue, copies));
        if exchange == names.dead() {
            probes.push(flows(
                "a dead letter",
                &exchange,
                "verify.dead",
                vec![dead.clone()],
            ));
            continue;
        }
        if exchange == names.ingress() {
            let path = vec![bound(&exchange, &queue, "")];
            probes.push(flows(
                "a message to the ingress",
                &exchange,
                "verify.ingress",
                path,
            ));
        }
        let path = vec![
            Hop::Named { queue: queue.clone() },
            Hop::Rejected {
                queue: queue.clone(),
                to: names.dead(),
            },
            dead.clone(),
        ];
        probes.push(Probe {
            reject_in: Some(queue.clone()),
            ..flows(&format!("a rejected message of {queue}"), "", &queue, path)
        });
    }
    probes.extend(unrouted(names, &objects, notes));
    for delay in &topology.fixed_delays {
        let name = names.fixed_delay(&delay.name);
        let path = vec![
            bound(&name, &name, ""),
            Hop::Expires {
                queue: name.clone(),
                to: names.exchange(),
            },
            bound(&names.exchange(), PROBE_QUEUE, PROBE_KEY),
        ];
        probes.push(flows(&format!("a message to {name}"), &name, PROBE_KEY, path));
    }
    probes.extend(steps(names, copies));
    probes
}

/// The probes of each business queue and high lane, by its name.
pub(super) fn business(topology: &Topology, copies: u32) -> Vec<(String, Vec<Probe>)> {
    let (names, objects) = (&topology.names, topology.objects());
    let mut bindings: BTreeMap<&str, Vec<&Binding>> = BTreeMap::new();
    for binding in &objects.bindings {
        bindings
            .entry(binding.destination_name())
            .or_default()
            .push(binding);
    }
    let lanes = |queue: &crate::topology::model::BusinessQueue| {
        let high = queue.high_lane.map(|_| Names::high_lane(&queue.name));
        std::iter::once(queue.name.clone()).chain(high)
    };
    let queues = topology.queues.iter().flat_map(lanes);
    queues
        .map(|queue| {
            let mut probes = vec![waits(&queue, copies), rejected(names, &queue)];
            for binding in bindings.get(queue.as_str()).into_iter().flatten() {
                probes.extend(through(names, binding));
            }
            (queue, probes)
        })
        .collect()
}

/// Along one binding of a business queue.
fn through(names: &Names, binding: &Binding) -> Vec<Probe> {
    let queue = binding.destination_name();
    let (digits, pattern) = if binding.source == names.ladder_due() {
        (
            NO_DELAY,
            binding
                .pattern
                .strip_prefix(ANY_DELAY)
                .unwrap_or(&binding.pattern),
        )
    } else {
        ("", binding.pattern.as_str())
    };
    // What stands in the topology was parsed before.
    let Ok(pattern) = Pattern::parse(pattern) else {
        return Vec::new();
    };
    let probe = |key: String| {
        let key = format!("{digits}{key}");
        let path = vec![bound(&binding.source, queue, &binding.pattern)];
        flows(
            &format!("a message to {} with key {key:?}", binding.source),
            &binding.source,
            &key,
            path,
        )
    };
    keys(&pattern, digits.len()).into_iter().map(probe).collect()
}

/// One delay queue each, seven in a row, and none at all.
fn steps(names: &Names, copies: u32) -> Vec<Probe> {
    let mut probes = Vec::new();
    for level in (0..LEVELS).rev() {
        for digit in 1..RADIX as u8 {
            let mut digits = [0; LEVELS as usize];
            digits[usize::from(level)] = digit;
            let what = format!("a delay in {}", names.ladder_queue(level, digit));
            probes.push(Probe {
                copies,
                ..delayed(names, &what, level, digits)
            });
        }
    }
    let all = std::array::from_fn(|level| 9 + level as u8);
    probes.push(delayed(names, "a delay through every level", LEVELS - 1, all));
    probes.push(delayed(
        names,
        "no delay through every level",
        LEVELS - 1,
        [0; LEVELS as usize],
    ));
    probes
}

/// A message with `digits`, by level, published to the exchange of `level`.
fn delayed(names: &Names, what: &str, level: u8, digits: [u8; LEVELS as usize]) -> Probe {
    let ladder = ladder::objects(names);
    let pattern = |source: &str, destination: &Destination| {
        let is = |b: &&ladder::LadderBinding| b.source == source && b.destination == *destination;
        ladder
            .bindings
            .iter()
            .find(is)
            .map(|b| b.pattern.clone())
            .unwrap_or_default()
    };
    let mut path = Vec::new();
    for level in (0..=level).rev() {
        let exchange = names.ladder_exchange(level);
        let to = level
            .checked_sub(1)
            .map_or_else(|| names.ladder_due(), |below| names.ladder_exchange(below));
        let digit = digits[usize::from(level)];
        if digit == 0 {
            let pattern = pattern(&exchange, &Destination::Exchange(to.clone()));
            path.push(Hop::Linked {
                exchange,
                to,
                pattern,
            });
        } else {
            let queue = names.ladder_queue(level, digit);
            let pattern = pattern(&exchange, &Destination::Queue(queue.clone()));
            path.push(bound(&exchange, &queue, &pattern));
            path.push(Hop::Expires { queue, to });
        }
    }
    path.push(bound(
        &names.ladder_due(),
        PROBE_QUEUE,
        &ladder::due_pattern_for_queue(PROBE_QUEUE),
    ));
    let digits: Vec<String> = digits.iter().rev().map(|digit| format!("{digit:x}")).collect();
    let key = format!("{}.to.{PROBE_QUEUE}", digits.join("."));
    flows(what, &names.ladder_exchange(level), &key, path)
}

/// What no binding takes, at each exchange that has patterns.
fn unrouted(names: &Names, objects: &Objects, notes: &mut Vec<String>) -> Vec<Probe> {
    let unrouted = names.unrouted();
    let mut probes = Vec::new();
    for exchange in objects.exchanges.iter().filter(|e| e.kind == ExchangeKind::Topic) {
        let Some(to) = exchange.alternate.clone() else {
            continue;
        };
        let key = if exchange.name == names.ladder_due() {
            format!("{NO_DELAY}key.{UNROUTABLE_KEY}")
        } else {
            UNROUTABLE_KEY.to_owned()
        };
        let takes = |b: &&Binding| {
            b.source == exchange.name && Pattern::parse(&b.pattern).is_ok_and(|p| p.matches(&key))
        };
        if let Some(binding) = objects.bindings.iter().find(takes) {
            notes.push(format!(
                "nothing is unroutable at {}: {} takes every key",
                exchange.name,
                binding.destination_name()
            ));
            continue;
        }
        let path = vec![
            Hop::Alternate {
                exchange: exchange.name.clone(),
                to,
            },
            bound(&unrouted, &Names::queue_of(&unrouted), ""),
        ];
        let what = format!("a message to {} that no binding takes", exchange.name);
        probes.push(flows(&what, &exchange.name, &key, path));
    }
    probes
}

fn rejected(names: &Names, queue: &str) -> Probe {
    let failed = names.failed();
    let path = vec![
        Hop::Named {
            queue: queue.to_owned(),
        },
        Hop::Rejected {
            queue: queue.to_owned(),
            to: failed.clone(),
        },
        bound(&failed, &Names::queue_of(&failed), ""),
    ];
    Probe {
        reject_in: Some(queue.to_owned()),
        ..flows(&format!("a rejected message of {queue}"), "", queue, path)
    }
}

fn waits(queue: &str, copies: u32) -> Probe {
    let path = vec![
        Hop::Named {
            queue: queue.to_owned(),
        },
        Hop::Waits {
            queue: queue.to_owned(),
        },
    ];
    Probe {
        waits: true,
        copies,
        ..flows(&format!("a message that waits in {queue}"), "", queue, path)
    }
}

fn flows(what: &str, exchange: &str, key: &str, path: Vec<Hop>) -> Probe {
    let end = path.iter().rev().find_map(|hop| match hop {
        Hop::Bound { queue, .. } | Hop::Named { queue } | Hop::Waits { queue } => Some(queue.clone()),
        _ => None,
    });
    Probe {
        what: what.to_owned(),
        exchange: exchange.to_owned(),
        key: key.to_owned(),
        waits: false,
        copies: 1,
        reject_in: None,
        end: end.unwrap_or_default(),
        end_key: key.to_owned(),
        path,
    }
}

fn bound(exchange: &str, queue: &str, pattern: &str) -> Hop {
    Hop::Bound {
        exchange: exchange.to_owned(),
        queue: queue.to_owned(),
        pattern: pattern.to_owned(),
    }
}

fn dead_letter(names: &Names) -> Hop {
    bound(&names.dead(), &Names::queue_of(&names.dead()), "#")
}
