//! The ladder's part of the objects, and what an older generation of it still needs. Pure; imports `core`.
//!
//! A message that waits in a generation arrives on that generation's `due`, however long after the platform has
//! moved on to the next. So business queues stay bound there until the old ladder is empty and deleted.

use tidegate_core::{
    ladder::{self},
    names::Names,
};

use super::{
    model::{BusinessQueue, Topology},
    objects::{Binding, ExchangeKind, Objects, Queue},
};

impl Topology {
    /// What must exist beside [`objects`](Self::objects) while generation `version` of the ladder, an older one, is
    /// still on the broker: the bindings of all business queues on its `due`. Its own exchanges and queues stay as
    /// they are, whatever their arguments. Empty for the generation in use.
    pub fn retired_ladder(&self, version: u8) -> Objects {
        let mut out = Objects::default();
        if version != self.names.ladder_version() {
            let names = self.names.for_ladder(version);
            for queue in &self.queues {
                out.due(&names, queue);
            }
        }
        out
    }
}

impl Objects {
    /// From the end upwards, so that each level finds the one below it.
    pub(super) fn ladder(&mut self, names: &Names) {
        let ladder = ladder::objects(names);
        for exchange in ladder.exchanges.into_iter().rev() {
            // A key that isn't seven digits and a target matches no level; it must be seen, not lost.
            self.exchange(exchange.name, ExchangeKind::Topic, Some(names.unrouted()));
        }
        for queue in ladder.queues.into_iter().rev() {
            self.queues.push(Queue::delay(
                &queue.name,
                queue.ttl_ms as i64,
                queue.dead_letter_exchange,
            ));
        }
        for binding in ladder.bindings.into_iter().rev() {
            self.bindings.push(Binding {
                source: binding.source,
                destination: binding.destination,
                pattern: binding.pattern,
            });
        }
    }

    /// What brings a delayed message back: each lane by its name, and all that `task.exchange` and
    /// `task.exchange.high` would route.
    pub(super) fn due(&mut self, names: &Names, queue: &BusinessQueue) {
        let due = names.ladder_due();
        let lane = queue.high_lane.map(|_| Names::high_lane(&queue.name));
        for name in std::iter::once(&queue.name).chain(&lane) {
            self.bind(&due, name, ladder::due_pattern_for_queue(name));
        }
        // A queue without a high lane takes high-priority tasks itself, as on `task.exchange.high`.
        let high = lane.as_ref().unwrap_or(&queue.name);
        for pattern in &queue.bind {
            let pattern = pattern.as_str();
            self.bind(&due, &queue.name, ladder::due_pattern_for_key(pattern));
            self.bind(&due, high, ladder::due_pattern_for_high(pattern));
        }
    }
}
