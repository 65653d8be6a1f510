//! The topology as boxes and arrows, for whatever draws it.
//!
//! Everything is there, but not everything one by one: a picture of 300 objects shows nothing. A level of the ladder is
//! one box, an exchange with only its own queue behind it is one, and arrows lead to an owner and not to each of its
//! queues. Boxes and arrows follow from [`Objects`], so that no object can be missing in the picture.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_core::{ladder, names::Names};

use super::{
    super::{
        model::Topology,
        objects::{Objects, Value},
    },
    span,
};

/// Boxes, and arrows between them by their numbers.
pub(super) struct Graph {
    pub(super) boxes: Vec<Node>,
    pub(super) arrows: BTreeSet<Arrow>,
}

/// One box.
pub(super) struct Node {
    pub(super) kind: Kind,
    /// What stands above: an owner's name, or the first object's.
    pub(super) title: String,
    /// What stands below, line by line.
    pub(super) lines: Vec<String>,
    /// The queues inside, where it is an owner.
    pub(super) queues: Vec<QueueNode>,
}

/// A business queue inside its owner's box.
pub(super) struct QueueNode {
    pub(super) name: String,
    /// Its patterns, or its place as a lane.
    pub(super) lines: Vec<String>,
}

/// What a box is, from left to right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A level of the ladder, or a fixed delay.
    Delay,
    /// Where tasks are routed to queues.
    Entry,
    /// The queues of an owner.
    Owner,
    /// What takes tasks that failed or went nowhere.
    Net,
    /// A process of ours.
    Router,
    /// Where all ends.
    Dead,
}

/// An arrow from one box to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Arrow {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) how: How,
}

/// How a task gets along an arrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum How {
    /// By a binding, or at the end of a delay.
    Routed,
    /// As a dead letter.
    DeadLettered,
    /// By an alternate exchange: no binding took it.
    Unrouted,
    /// By a process of ours.
    Carried,
}

impl Kind {
    /// The kind as a word.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Delay => "delay",
            Self::Entry => "entry",
            Self::Owner => "owner",
            Self::Net => "net",
            Self::Router => "router",
            Self::Dead => "dead",
        }
    }
}

impl How {
    /// The way as a word.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Routed => "routed",
            Self::DeadLettered => "dead-lettered",
            Self::Unrouted => "unrouted",
            Self::Carried => "carried",
        }
    }
}

/// The picture of a topology and the objects that follow from it.
pub(super) fn graph(topology: &Topology, objects: &Objects) -> Graph {
    let mut boxes = Boxes::default();
    boxes.platform(topology);
    boxes.owners(topology);
    let router = boxes.add(Kind::Router, "router", vec!["tidegate serve".to_owned()], &[]);
    let arrows = boxes.arrows(topology, objects, router);
    Graph {
        boxes: boxes.nodes,
        arrows,
    }
}

/// Boxes so far, and which box an object on the broker is in.
#[derive(Default)]
struct Boxes {
    nodes: Vec<Node>,
    of: BTreeMap<String, usize>,
}

impl Boxes {
    fn add(&mut self, kind: Kind, title: &str, lines: Vec<String>, objects: &[String]) -> usize {
        let number = self.nodes.len();
        self.of
            .extend(objects.iter().map(|object| (object.clone(), number)));
        self.nodes.push(Node {
            kind,
            title: title.to_owned(),
            lines,
            queues: Vec::new(),
        });
        number
    }

    fn platform(&mut self, topology: &Topology) {
        let names = &topology.names;
        for delay in &topology.fixed_delays {
            let name = names.fixed_delay(&delay.name);
            self.add(
                Kind::Delay,
                &name,
                vec![span(delay.ttl)],
                std::slice::from_ref(&name),
            );
        }
        for level in (0..ladder::LEVELS).rev() {
            let exchange = names.ladder_exchange(level);
            let step = ladder::UNIT * 16u32.pow(level.into());
            let line = format!("15 queues: 1 to 15 × {}", span(step));
            let queues = (1..=15).map(|digit| names.ladder_queue(level, digit));
            let objects: Vec<String> = std::iter::once(exchange.clone()).chain(queues).collect();
            self.add(Kind::Delay, &exchange, vec![line], &objects);
        }
        for exchange in [names.exchange(), names.exchange_high(), names.ladder_due()] {
            self.add(
                Kind::Entry,
                &exchange,
                Vec::new(),
                std::slice::from_ref(&exchange),
            );
        }
        for (kind, exchange) in [
            (Kind::Entry, names.ingress()),
            (Kind::Net, names.failed()),
            (Kind::Net, names.unrouted()),
            (Kind::Dead, names.dead()),
        ] {
            let queue = Names::queue_of(&exchange);
            self.add(kind, &exchange, vec![queue.clone()], &[exchange.clone(), queue]);
        }
    }

    fn owners(&mut self, topology: &Topology) {
        let mut owners: BTreeMap<&str, usize> = BTreeMap::new();
        for queue in &topology.queues {
            let number = match owners.get(queue.owner.as_str()) {
                Some(number) => *number,
                None => self.add(Kind::Owner, &queue.owner, Vec::new(), &[]),
            };
            owners.insert(&queue.owner, number);
            let lane = queue.high_lane.map(|threshold| QueueNode {
                name: Names::high_lane(&queue.name),
                lines: vec![format!("from priority {threshold}")],
            });
            let patterns = queue.bind.iter().map(|pattern| pattern.as_str().to_owned());
            let queue = QueueNode {
                name: queue.name.clone(),
                lines: patterns.collect(),
            };
            for queue in std::iter::once(queue).chain(lane) {
                self.of.insert(queue.name.clone(), number);
                self.nodes[number].queues.push(queue);
            }
        }
    }

    fn arrows(&self, topology: &Topology, objects: &Objects, router: usize) -> BTreeSet<Arrow> {
        let names = &topology.names;
        let mut arrows = BTreeSet::new();
        let mut arrow = |from: &str, to: &str, how| {
            if let (Some(from), Some(to)) = (self.of.get(from).copied(), self.of.get(to).copied())
                && from != to
            {
                arrows.insert(Arrow { from, to, how });
            }
        };
        for binding in &objects.bindings {
            arrow(&binding.source, binding.destination_name(), How::Routed);
        }
        for queue in &objects.queues {
            if let Some(Value::Text(to)) = queue.arguments.get("x-dead-letter-exchange") {
                let waits = queue.arguments.contains_key("x-message-ttl");
                let how = if waits { How::Routed } else { How::DeadLettered };
                arrow(&queue.name, to, how);
            }
        }
        for exchange in &objects.exchanges {
            let level = (0..ladder::LEVELS).any(|level| names.ladder_exchange(level) == exchange.name);
            // Every level has one, for keys that no level knows; seven arrows more would say no more.
            if let (Some(to), false) = (&exchange.alternate, level) {
                arrow(&exchange.name, to, How::Unrouted);
            }
        }
        for read in [names.failed(), names.ingress(), names.unrouted()] {
            if let Some(from) = self.of.get(&read).copied() {
                arrows.insert(Arrow {
                    from,
                    to: router,
                    how: How::Carried,
                });
            }
        }
        for written in [
            names.dead(),
            names.ladder_exchange(ladder::LEVELS - 1),
            names.exchange(),
        ] {
            if let Some(to) = self.of.get(&written).copied() {
                arrows.insert(Arrow {
                    from: router,
                    to,
                    how: How::Carried,
                });
            }
        }
        arrows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEAM: &str = "[[queue]]\nname = \"a\"\nbind = [\"a.#\"]\nowner = \"x\"\nhigh_lane = { threshold = 1 }\n\
                        [[queue]]\nname = \"b\"\nbind = [\"b\"]\nowner = \"x\"\n\
                        [[queue]]\nname = \"c\"\nbind = [\"c\"]\nowner = \"y\"\n";

    /// Every object and every way between two of them is in the picture, or inside one of its boxes.
    #[test]
    fn nothing_is_left_out() {
        let platform = "ladder_version = 2\n[[fixed_delay]]\nname = \"30m\"\n";
        let topology = Topology::parse(&[("platform.toml", platform), ("a.toml", TEAM)]).unwrap();
        let objects = topology.objects();
        let mut boxes = Boxes::default();
        boxes.platform(&topology);
        boxes.owners(&topology);
        let arrows = graph(&topology, &objects).arrows;
        let exchanges = objects.exchanges.iter().map(|e| &e.name);
        for name in exchanges.chain(objects.queues.iter().map(|q| &q.name)) {
            assert!(boxes.of.contains_key(name), "{name} is in no box");
        }
        let drawn = |from: &str, to: &str| {
            let (from, to) = (boxes.of[from], boxes.of[to]);
            from == to || arrows.iter().any(|arrow| (arrow.from, arrow.to) == (from, to))
        };
        for binding in &objects.bindings {
            assert!(drawn(&binding.source, binding.destination_name()), "{binding}");
        }
        for queue in &objects.queues {
            if let Some(Value::Text(to)) = queue.arguments.get("x-dead-letter-exchange") {
                assert!(drawn(&queue.name, to), "{queue}");
            }
        }
        assert!(drawn("task.exchange", "task.unrouted") && drawn("task.delay.v2.due", "task.unrouted"));
        let owners: Vec<_> = boxes
            .nodes
            .iter()
            .filter(|node| node.kind == Kind::Owner)
            .collect();
        let queues: Vec<usize> = owners.iter().map(|owner| owner.queues.len()).collect();
        assert_eq!(queues, [3, 1]);
    }
}
