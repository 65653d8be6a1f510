//! Dead-letter cycles that no consumer's reject is part of. The broker drops a message that comes round one. Pure.
//!
//! Queues and exchanges first make a graph without keys; where that has no cycle there is none. What is left is
//! looked at again with keys: those that a queue's bindings let in are those that leave it.

use std::collections::{BTreeSet, HashMap, VecDeque};

use tidegate_core::ladder::Destination;

use super::{
    super::change::Lint,
    view::{Seen, View, takes},
};

type Graph<'a> = HashMap<&'a str, BTreeSet<String>>;

/// The cycles, one lint each, at the first of its queues by name.
pub(super) fn find(view: &View<'_>) -> Vec<Lint> {
    let nodes: HashMap<&str, &Seen<'_>> = view
        .queues
        .iter()
        .filter(|queue| queue.dead_letter_exchange.is_some() && queue.dead_letters_by_itself())
        .map(|queue| (queue.live.name.as_str(), queue))
        .collect();
    let suspects = on_coarse_cycles(view, &nodes);
    let patterns = patterns_in(view, &suspects);
    let mut graph = Graph::new();
    for name in &suspects {
        let mut targets = BTreeSet::new();
        for key in keys_out(nodes[name], &patterns) {
            targets.extend(reached(view, nodes[name], Some(&key)));
        }
        targets.retain(|target| suspects.contains(target.as_str()));
        graph.insert(name, targets);
    }
    let (mut lints, mut reported) = (Vec::new(), BTreeSet::new());
    for name in &suspects {
        let Some(path) = way_back(name, &graph) else {
            continue;
        };
        if path.iter().any(|queue| reported.contains(queue)) {
            continue;
        }
        let shown = path.join(" → ");
        reported.extend(path);
        lints.extend(nodes[name].lint(
            "dead-letter-cycle",
            format!(
                "messages that the broker dead-letters by itself come round and are dropped then: {shown}"
            ),
            "let the cycle pass a queue that only a consumer's reject dead-letters from, or end it",
        ));
    }
    lints
}

/// Queues that may be on a cycle if every key fits every binding. Thousands of queues share a few dead-letter
/// exchanges, so the graph is one of those.
fn on_coarse_cycles<'a>(view: &View<'_>, nodes: &HashMap<&'a str, &Seen<'_>>) -> BTreeSet<&'a str> {
    // The default exchange leads elsewhere for each key.
    let exit = |queue: &Seen<'_>| {
        let exchange = queue.dead_letter_exchange.clone().unwrap_or_default();
        let fixed = queue.dead_letter_key.clone().filter(|_| exchange.is_empty());
        (exchange, fixed)
    };
    let mut targets: HashMap<_, BTreeSet<&'a str>> = HashMap::new();
    for queue in nodes.values() {
        targets.entry(exit(queue)).or_insert_with(|| {
            let reached = reached(view, queue, None);
            let known = |name: &String| nodes.get_key_value(name.as_str()).map(|(name, _)| *name);
            reached.iter().filter_map(known).collect()
        });
    }
    // What has no way in or no way out of what is left is on no cycle.
    loop {
        let before = targets.len();
        let into: BTreeSet<_> = targets.values().flatten().map(|name| exit(nodes[name])).collect();
        targets.retain(|exit, to| into.contains(exit) && !to.is_empty());
        let left: BTreeSet<_> = targets.keys().cloned().collect();
        for to in targets.values_mut() {
            to.retain(|name| left.contains(&exit(nodes[name])));
        }
        if targets.len() == before {
            return targets.into_values().flatten().collect();
        }
    }
}

/// Patterns of all bindings of each of `queues`.
fn patterns_in<'a>(view: &View<'_>, queues: &BTreeSet<&'a str>) -> Graph<'a> {
    // By the default exchange anything may come under the queue's own name.
    let by_name = |name: &&'a str| (*name, BTreeSet::from([(*name).to_owned()]));
    let mut patterns: Graph<'a> = queues.iter().map(by_name).collect();
    if queues.is_empty() {
        return patterns;
    }
    for binding in view.all_bindings() {
        if let Destination::Queue(queue) = &binding.destination
            && let Some(found) = patterns.get_mut(queue.as_str())
        {
            let by_key = matches!(view.kind(&binding.source), Some("topic" | "direct"));
            found.insert(if by_key {
                binding.pattern.clone()
            } else {
                "#".to_owned()
            });
        }
    }
    patterns
}

/// Keys, as patterns, that dead letters of `queue` may have.
fn keys_out(queue: &Seen<'_>, patterns: &Graph<'_>) -> Vec<String> {
    match &queue.dead_letter_key {
        Some(key) => vec![key.clone()],
        None => patterns
            .get(queue.live.name.as_str())
            .map(|found| found.iter().cloned().collect())
            .unwrap_or_default(),
    }
}

/// Queues that a dead letter of `queue` may reach with `key`; `None` is any.
fn reached(view: &View<'_>, queue: &Seen<'_>, key: Option<&str>) -> BTreeSet<String> {
    let first = queue.dead_letter_exchange.clone().unwrap_or_default();
    let mut targets = BTreeSet::new();
    if first.is_empty() {
        targets.extend(queue.dead_letter_key.clone());
        return targets;
    }
    let mut seen = BTreeSet::from([first.clone()]);
    let mut todo = VecDeque::from([first]);
    while let Some(exchange) = todo.pop_front() {
        let kind = view.kind(&exchange).unwrap_or("fanout");
        for binding in view.from(&exchange) {
            if key.is_some_and(|key| !takes(kind, &binding.pattern, key)) {
                continue;
            }
            match &binding.destination {
                Destination::Queue(name) => {
                    targets.insert(name.clone());
                }
                Destination::Exchange(name) if seen.insert(name.clone()) => todo.push_back(name.clone()),
                Destination::Exchange(_) => {}
            }
        }
        let alternate = view.alternate(&exchange);
        todo.extend(alternate.filter(|name| seen.insert(name.clone())));
    }
    targets
}

/// The shortest way from `start` back to it, both ends included.
fn way_back(start: &str, graph: &Graph<'_>) -> Option<Vec<String>> {
    let mut from: HashMap<String, String> = HashMap::new();
    let mut todo = VecDeque::from([start.to_owned()]);
    while let Some(at) = todo.pop_front() {
        for target in graph.get(at.as_str()).into_iter().flatten() {
            if target == start {
                let mut path = vec![start.to_owned()];
                let mut here = at;
                while here != start {
                    let before = from.get(&here)?.clone();
                    path.push(here);
                    here = before;
                }
                path.push(start.to_owned());
                path.reverse();
                return Some(path);
            }
            if !from.contains_key(target) {
                from.insert(target.clone(), at.clone());
                todo.push_back(target.clone());
            }
        }
    }
    None
}
