//! Messages that the database refuses. They stay in their queue, unacknowledged and visible, for as long as the broker's patience
//! with a consumer allows for sure; then they go back to it, and are tried again.

use std::{collections::VecDeque, time::Duration};

use tokio::time::{Instant, sleep_until};

use super::{Taken, put_back};
use crate::{broker::consumer::Incoming, telemetry::dead_letters};

/// How long one is held. The broker's own limit is thirty minutes unless somebody set another.
const HOLD: Duration = Duration::from_secs(600);

pub(super) struct Refused {
    /// In the order in which they are due.
    held: VecDeque<(Instant, Incoming)>,
    most: usize,
}

impl Refused {
    pub(super) fn new(most: usize) -> Self {
        dead_letters::refused(0);
        Self {
            held: VecDeque::new(),
            most,
        }
    }

    /// Holds what the database refuses because of `why`.
    pub(super) fn hold(&mut self, refused: Vec<Taken>, why: &str) {
        for taken in refused {
            dead_letters::failed("refused");
            let letter = &taken.letter;
            tracing::error!(
                id = %letter.id, task_id = letter.task_id.as_deref(), task_type = letter.task_type.as_deref(),
                queue = letter.queue.as_str(), why, "the archive refuses a dead letter; it stays in its queue, and is tried again in ten minutes"
            );
            self.held.push_back((Instant::now() + HOLD, taken.incoming));
        }
        dead_letters::refused(self.held.len());
    }

    /// Whether so many are held that what arrives next might find no place: then nothing more is taken.
    pub(super) fn is_full(&self) -> bool {
        self.held.len() >= self.most
    }

    /// Ends when one has been held for long enough; never, if none is held.
    pub(super) async fn next_is_due(&self) {
        match self.held.front() {
            Some((due, _)) => sleep_until(*due).await,
            None => std::future::pending().await,
        }
    }

    /// Puts back those that have been held for long enough.
    pub(super) fn put_back_due(&mut self) {
        let now = Instant::now();
        while let Some((_, incoming)) = self.held.pop_front_if(|(due, _)| *due <= now) {
            put_back(incoming);
        }
        dead_letters::refused(self.held.len());
    }
}

impl Drop for Refused {
    fn drop(&mut self) {
        for (_, incoming) in self.held.drain(..) {
            put_back(incoming);
        }
        dead_letters::refused(0);
    }
}
