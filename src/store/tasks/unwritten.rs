//! What became of tasks and can't be written into their rows: remembered by this process, so that what the broker has
//! confirmed is not sent again.
//!
//! May import: nothing of ours. A row is to blame (a trigger of somebody's that raises, a constraint), or the database as
//! a whole (it restarts, a right is missing). Tasks that are remembered are not taken for a hand-over; those that are
//! with the broker are only written, after a growing wait. If the process dies, the next one sends them again under their
//! ids.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use chrono::{DateTime, Utc};
use tokio::time::Instant;

/// With more than this nothing new is handed over.
pub(super) const MOST: usize = 10_000;

/// First and longest wait before a row is tried again.
const WAIT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// Wait for a row that somebody has locked.
const LOCKED: Duration = Duration::from_millis(200);

/// What the row should say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// `PUBLISHED`: the broker has it.
    Published,
    /// `FAILED`, with the reason: it can never be sent.
    SetAside(String),
    /// `PENDING`, to be sent again after this wait.
    Waits(Duration),
}

/// The columns by which a row shows that somebody moved it meanwhile: failed hand-overs, and the next one.
pub(super) type Mark = (i32, Option<DateTime<Utc>>);

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) fate: Fate,
    pub(super) mark: Mark,
    /// Tries to write it on its own that failed.
    pub(super) tries: u32,
    /// When to try next.
    pub(super) at: Instant,
}

/// The memory of a process.
#[derive(Debug, Default)]
pub(in crate::store) struct Unwritten(Mutex<HashMap<String, Entry>>);

impl Unwritten {
    fn entries(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers what became of a task. `alone`: its row is to blame, and tried again after a wait; else it is tried at
    /// once.
    pub(super) fn remember(&self, task_id: &str, fate: Fate, mark: Mark, alone: bool) {
        let mut entries = self.entries();
        let before = entries.get(task_id).map_or(0, |entry| entry.tries);
        let tries = if alone { before.saturating_add(1) } else { before };
        let wait = match &fate {
            Fate::Waits(wait) => pause(tries).max(*wait),
            _ if alone => pause(tries),
            _ => Duration::ZERO,
        };
        let at = Instant::now() + wait;
        entries.insert(
            task_id.to_owned(),
            Entry {
                fate,
                mark,
                tries,
                at,
            },
        );
    }

    /// Forgets tasks whose rows say it, or are gone.
    pub(super) fn forget<'a>(&self, task_ids: impl IntoIterator<Item = &'a str>) {
        let mut entries = self.entries();
        if !entries.is_empty() {
            for id in task_ids {
                entries.remove(id);
            }
        }
    }

    /// Lets the task rest for a moment: somebody has locked its row, which says nothing about it.
    pub(super) fn locked(&self, task_id: &str) {
        if let Some(entry) = self.entries().get_mut(task_id) {
            entry.at = Instant::now() + LOCKED;
        }
    }

    /// Lets the task rest: its row is still to blame.
    pub(super) fn put_off(&self, task_id: &str) -> u32 {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(task_id) else {
            return 0;
        };
        entry.tries = entry.tries.saturating_add(1);
        entry.at = Instant::now() + pause(entry.tries);
        entry.tries
    }

    /// Tasks that are not to be taken now.
    pub(super) fn not_to_send(&self) -> Vec<String> {
        let now = Instant::now();
        let mut entries = self.entries();
        // One that nobody took again was cancelled, or another relay has it.
        entries.retain(|_, entry| !matches!(entry.fate, Fate::Waits(_)) || entry.at + WAIT.1 > now);
        entries
            .iter()
            .filter(|(_, entry)| !matches!(entry.fate, Fate::Waits(_)) || entry.at > now)
            .map(|(id, _)| id.clone())
            .collect()
    }

    /// Up to `limit` tasks whose rows are to be tried now, those never tried on their own first.
    pub(super) fn to_write(&self, limit: usize) -> Vec<(String, Entry)> {
        let now = Instant::now();
        let entries = self.entries();
        let mut due: Vec<(&String, &Entry)> = entries
            .iter()
            .filter(|(_, entry)| !matches!(entry.fate, Fate::Waits(_)) && entry.at <= now)
            .collect();
        due.sort_by_key(|(_, entry)| (entry.tries, entry.at));
        due.into_iter()
            .take(limit)
            .map(|(id, entry)| (id.clone(), entry.clone()))
            .collect()
    }

    /// When something is to be tried next.
    pub(super) fn next(&self) -> Option<Instant> {
        let now = Instant::now();
        let entries = self.entries();
        entries
            .values()
            .filter(|entry| !matches!(entry.fate, Fate::Waits(_)) || entry.at > now)
            .map(|entry| entry.at)
            .min()
    }

    /// How many tasks are remembered.
    pub(super) fn len(&self) -> usize {
        self.entries().len()
    }
}

fn pause(tries: u32) -> Duration {
    (WAIT.0 * 2_u32.saturating_pow(tries.saturating_sub(1).min(16))).min(WAIT.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_the_broker_has_is_only_written_and_less_and_less_often() {
        let (memory, mark) = (Unwritten::default(), (0, None));
        memory.remember("whole", Fate::Published, mark, false);
        memory.remember("row", Fate::Published, mark, true);
        memory.remember("unsent", Fate::Waits(Duration::ZERO), mark, true);
        let ids = |due: Vec<(String, Entry)>| -> Vec<String> { due.into_iter().map(|(id, _)| id).collect() };
        assert_eq!(ids(memory.to_write(9)), ["whole"]);
        assert_eq!(memory.not_to_send().len(), 3);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(ids(memory.to_write(9)), ["whole", "row"]);
        assert_eq!(memory.not_to_send().len(), 2, "what nobody has is sent again");
        assert_eq!(memory.put_off("row"), 2);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(ids(memory.to_write(9)), ["whole"]);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(ids(memory.to_write(1)), ["whole"]);
        memory.forget(["whole", "row", "unsent"]);
        assert_eq!((memory.len(), memory.next()), (0, None));
    }

    #[test]
    fn waits_grow_and_end() {
        let seconds = [1, 2, 3, 9, 10, u32::MAX].map(|tries| pause(tries).as_secs());
        assert_eq!(seconds, [1, 2, 4, 256, 300, 300]);
    }
}
