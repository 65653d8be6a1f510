//! What this worker runs and has run lately, so that a delivery which the broker took back while it ran (its channel was lost,
//! its consumer timeout is shorter than the topology says) does not run beside itself, nor after an end that it came before.
//!
//! May import: `broker`, `telemetry`. Only what the broker marks as delivered before is asked about, and only an end after its arrival
//! counts: what somebody publishes again later runs. Killed, the worker forgets it all and the task runs again, as after any
//! kill; another process that gets the delivery knows nothing of it either.

use std::{
    collections::{HashMap, VecDeque},
    hash::{BuildHasher, RandomState},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tidegate_core::{dispose::Outcome, envelope::Envelope};
use tokio::{sync::Notify, time::Instant};

use super::{delivery::Station, place::Place};
use crate::{broker::consumer::Incoming, telemetry::metrics};

/// A run that took as long is remembered. What ends sooner was hardly taken back meanwhile, and there is too much of it.
const LONG: Duration = Duration::from_secs(1);

/// Most that are remembered.
const MOST: usize = 4_096;

impl Station {
    /// Whether this attempt, which the broker delivers again, ran here when it arrived and has ended by now: then nothing is left
    /// to do. Waits for that end without a slot; there is one such wait for each run at most.
    ///
    /// It goes on when nothing may start here any more: given back, it would only run somewhere else.
    pub(super) async fn repeated(
        &self,
        incoming: &Incoming,
        envelope: &Envelope,
        number: u32,
        place: &mut Place,
    ) -> bool {
        let task_id = envelope.task_id.as_str();
        if !incoming.redelivered || !self.repeats.knows(task_id, number) {
            return false;
        }
        place.leave_slot();
        if !self.repeats.has_ended(task_id, number, incoming.arrived).await {
            place.take_slot().await;
            return false;
        }
        tracing::warn!(task_id, number, queue = %self.queue, "the broker had taken this back while it ran here");
        let task_type = Some(envelope.task_type.as_str());
        metrics::attempt_ended(task_type, Outcome::Duplicate.as_str(), None);
        true
    }
}

/// The runs of one queue.
#[derive(Default)]
pub(super) struct Repeats {
    hasher: RandomState,
    known: Mutex<Known>,
    /// Told whenever a run leaves for which somebody waits, or somebody else comes to wait.
    left: Notify,
}

#[derive(Default)]
struct Known {
    running: HashMap<u64, Running>,
    /// When each ended last.
    ended: HashMap<u64, Instant>,
    /// The same in order.
    order: VecDeque<(Instant, u64)>,
}

#[derive(Default)]
struct Running {
    runs: usize,
    /// How many deliveries have come to wait for its end.
    waiting: usize,
}

/// One attempt at a task that runs until this is dropped.
pub(super) struct Run<'a> {
    repeats: &'a Repeats,
    key: u64,
}

impl Repeats {
    /// Notes that attempt `number` at a task runs.
    pub(super) fn begin(&self, task_id: &str, number: u32) -> Run<'_> {
        let key = self.hasher.hash_one((task_id, number));
        self.known().running.entry(key).or_default().runs += 1;
        Run { repeats: self, key }
    }

    /// Notes that it ended after `took`, and that what follows from it is with the broker.
    pub(super) fn ended(&self, task_id: &str, number: u32, took: Duration) {
        let key = self.hasher.hash_one((task_id, number));
        let mut known = self.known();
        let awaited = known.running.get(&key).is_some_and(|running| running.waiting > 0);
        if !awaited && took < LONG {
            return;
        }
        let now = Instant::now();
        known.ended.insert(key, now);
        known.order.push_back((now, key));
        if known.order.len() > MOST
            && let Some((then, oldest)) = known.order.pop_front()
            && known.ended.get(&oldest) == Some(&then)
        {
            known.ended.remove(&oldest);
        }
    }

    /// Whether the attempt runs here, or has run lately.
    fn knows(&self, task_id: &str, number: u32) -> bool {
        let key = self.hasher.hash_one((task_id, number));
        let known = self.known();
        known.running.contains_key(&key) || known.ended.contains_key(&key)
    }

    /// Waits while the attempt runs here; whether it has ended since `arrived`, so that nothing is left to do for the
    /// delivery that came then. Neither is anything once the same has been delivered yet again: that one waits instead.
    async fn has_ended(&self, task_id: &str, number: u32, arrived: Instant) -> bool {
        let key = self.hasher.hash_one((task_id, number));
        let mut mine = None;
        loop {
            let left = self.left.notified();
            tokio::pin!(left);
            // Before looking, so that no end is missed.
            left.as_mut().enable();
            {
                let mut known = self.known();
                let Some(running) = known.running.get_mut(&key) else {
                    return known.ended.get(&key).is_some_and(|ended| *ended >= arrived);
                };
                match mine {
                    None => {
                        running.waiting += 1;
                        mine = Some(running.waiting);
                        self.left.notify_waiters();
                        continue;
                    }
                    Some(mine) if mine < running.waiting => return true,
                    Some(_) => {}
                }
            }
            left.await;
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Nothing in here panics half-way.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        let mut known = self.repeats.known();
        if let Some(running) = known.running.get_mut(&self.key) {
            running.runs -= 1;
            if running.runs == 0 {
                let awaited = running.waiting > 0;
                known.running.remove(&self.key);
                drop(known);
                if awaited {
                    self.repeats.left.notify_waiters();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    const SHORT: Duration = Duration::from_millis(1);

    #[test]
    fn only_long_runs_are_remembered_and_each_attempt_is_another() {
        let (repeats, arrived) = (Repeats::default(), Instant::now());
        let ended = |id, number| repeats.has_ended(id, number, arrived).now_or_never();
        drop(repeats.begin("short", 1));
        repeats.ended("short", 1, SHORT);
        repeats.ended("long", 1, LONG);
        assert_eq!((ended("short", 1), ended("new", 1)), (Some(false), Some(false)));
        assert_eq!((ended("long", 1), ended("long", 2)), (Some(true), Some(false)));
    }

    /// Such as a replay of a dead letter, under the same id and number.
    #[tokio::test(start_paused = true)]
    async fn what_arrives_after_the_end_is_not_covered_by_it() {
        let repeats = Repeats::default();
        repeats.ended("t", 1, LONG);
        tokio::time::advance(SHORT).await;
        assert!(!repeats.has_ended("t", 1, Instant::now()).await);
    }

    #[test]
    fn a_second_delivery_waits_for_the_run_and_learns_how_it_left() {
        let repeats = Repeats::default();
        for durable in [true, false] {
            let id = if durable { "durable" } else { "given back" };
            let run = repeats.begin(id, 1);
            let mut second = Box::pin(repeats.has_ended(id, 1, Instant::now()));
            assert_eq!(second.as_mut().now_or_never(), None);
            let first = std::mem::replace(&mut second, Box::pin(repeats.has_ended(id, 1, Instant::now())));
            assert_eq!(second.as_mut().now_or_never(), None);
            assert_eq!(first.now_or_never(), Some(true), "the later one stands for it");
            if durable {
                repeats.ended(id, 1, SHORT);
            }
            assert_eq!(second.as_mut().now_or_never(), None, "it is not settled yet");
            drop(run);
            assert_eq!(second.now_or_never(), Some(durable));
        }
        assert!(repeats.known().running.is_empty());
    }

    #[test]
    fn the_memory_is_bounded() {
        let (repeats, arrived) = (Repeats::default(), Instant::now());
        for n in 0..=MOST {
            repeats.ended(&n.to_string(), 1, LONG);
        }
        let ended = |n: usize| repeats.has_ended(&n.to_string(), 1, arrived).now_or_never();
        assert_eq!(
            (ended(0), ended(1), ended(MOST)),
            (Some(false), Some(true), Some(true))
        );
        let known = repeats.known();
        assert_eq!((known.ended.len(), known.order.len()), (MOST, MOST));
    }
}
