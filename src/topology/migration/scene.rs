//! What of the broker concerns one migration.

use std::{collections::BTreeMap, fmt};

use tidegate_core::ladder::Destination;

use super::Temporary;
use crate::topology::{
    live::{Arguments, Live, LiveBinding, LiveQueue},
    objects::{Binding, Objects, Queue},
};

/// A binding whose one end is given by the context: the queue, or `in`.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Exchange bound from.
    pub source: String,
    /// Routing key or pattern.
    pub pattern: String,
    /// Arguments.
    pub arguments: Arguments,
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.source, self.pattern)
    }
}

impl From<&LiveBinding> for Link {
    fn from(binding: &LiveBinding) -> Self {
        Self {
            source: binding.source.clone(),
            pattern: binding.pattern.clone(),
            arguments: binding.arguments.clone(),
        }
    }
}

impl From<&Binding> for Link {
    fn from(binding: &Binding) -> Self {
        Self {
            source: binding.source.clone(),
            pattern: binding.pattern.clone(),
            arguments: Arguments::new(),
        }
    }
}

/// One queue, what it should be, and the temporary objects of its migration, as they are now.
#[derive(Clone, Debug)]
pub struct Scene<'a> {
    /// The queue's name.
    pub name: &'a str,
    /// The queue as wanted, where the topology has it.
    pub wanted: Option<&'a Queue>,
    /// The queue as it is, where it exists.
    pub queue: Option<&'a LiveQueue>,
    /// The shelter, where it exists.
    pub shelter: Option<&'a LiveQueue>,
    /// Whether `in` exists.
    pub has_in: bool,
    /// Whether `next` exists.
    pub has_next: bool,
    /// Whether `back` exists.
    pub has_back: bool,
    /// Whether `next` is bound to the shelter.
    pub caught: bool,
    /// Whether `in` is bound to the queue.
    pub lever: bool,
    /// Whether `back` is bound to the queue.
    pub way_back: bool,
    /// Bindings of the queue but those of the migration.
    pub direct: Vec<Link>,
    /// Bindings of `in`.
    pub routed: Vec<Link>,
    /// Bindings that the queue should have, as far as their sources exist.
    pub wanted_links: Vec<Link>,
}

impl<'a> Scene<'a> {
    /// What `live` and `objects` say of the queue `name`.
    pub fn of(name: &'a str, objects: &'a Objects, live: &'a Live) -> Self {
        let [shelter, in_, next, back] = [
            Temporary::Shelter,
            Temporary::In,
            Temporary::Next,
            Temporary::Back,
        ]
        .map(|temporary| temporary.of(name));
        let to = |queue: &str| Destination::Queue(queue.to_owned());
        let bound = |source: &str, queue: &str| {
            live.bindings
                .iter()
                .any(|binding| binding.source == source && binding.destination == to(queue))
        };
        let links = |destination: Destination| {
            live.bindings
                .iter()
                .filter(|binding| binding.destination == destination)
                .filter(|binding| binding.source != in_ && binding.source != back)
                .map(Link::from)
                .collect()
        };
        let exists = |source: &str| live.exchange(source).is_some() || source.starts_with("amq.");
        Self {
            name,
            wanted: objects.queues.iter().find(|queue| queue.name == name),
            queue: live.queue(name),
            shelter: live.queue(&shelter),
            has_in: live.exchange(&in_).is_some(),
            has_next: live.exchange(&next).is_some(),
            has_back: live.exchange(&back).is_some(),
            caught: bound(&next, &shelter),
            lever: bound(&in_, name),
            way_back: bound(&back, name),
            direct: links(to(name)),
            routed: links(Destination::Exchange(in_.clone())),
            wanted_links: objects
                .bindings
                .iter()
                .filter(|binding| binding.destination == to(name) && exists(&binding.source))
                .map(Link::from)
                .collect(),
        }
    }

    /// Whether the queue exists and is exactly as wanted.
    pub fn is_as_wanted(&self) -> bool {
        let (Some(wanted), Some(queue)) = (self.wanted, self.queue) else {
            return false;
        };
        let arguments: BTreeMap<String, serde_json::Value> = wanted
            .arguments
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.to_json()))
            .collect();
        let kind = arguments.get("x-queue-type").and_then(|kind| kind.as_str());
        kind == Some(queue.kind.as_str())
            && queue.durable
            && !queue.auto_delete
            && !queue.exclusive
            && queue.arguments == arguments
    }

    /// Whether a temporary object exists.
    pub fn has_leftovers(&self) -> bool {
        self.shelter.is_some() || self.has_in || self.has_next || self.has_back
    }
}
