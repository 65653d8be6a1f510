//! When an old count can be believed. Pure: it is told the time.

use std::time::{Duration, Instant};

/// Says whether a queue is empty, from counts that are some seconds old.
///
/// The broker counts what a quorum queue holds once in a tick (5 s unless configured otherwise), so a single 0 may be
/// older than the last message. A queue counts as empty here once every reading for longer than two ticks was 0:
/// one full tick of them then lies after anything that was still on its way when the first 0 was read.
#[derive(Clone, Copy, Debug)]
pub struct Settle {
    needed: Duration,
    since: Option<Instant>,
}

impl Settle {
    /// Needs 0 for as long as `needed`.
    pub fn new(needed: Duration) -> Self {
        Self { needed, since: None }
    }

    /// Takes a reading; answers whether the queue is empty.
    pub fn read(&mut self, messages: u64, now: Instant) -> bool {
        if messages > 0 {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(now);
        now.duration_since(since) >= self.needed
    }

    /// Whether the last reading was 0.
    pub fn is_settling(&self) -> bool {
        self.since.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_empty_after_a_row_of_zeros() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut settle = Settle::new(second * 3);
        for (at, messages, empty) in [
            (0, 0, false),
            (2, 0, false),
            (3, 1, false),
            (4, 0, false),
            (6, 0, false),
            (7, 0, true),
            (8, 1, false),
            (9, 0, false),
        ] {
            assert_eq!(settle.read(messages, start + second * at), empty, "at {at} s");
        }
    }
}
