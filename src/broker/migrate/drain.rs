//! Waits until a queue from which the lever has been pulled is empty, and moves its messages if nobody consumes it.
//!
//! *Dies here:* the lever stays pulled, so what arrives waits in the shelter until the next run. Consumers go on.

use std::time::Instant;

use super::{LOOK, MigrateError, Migration, Progress, SAY, counts};
use crate::topology::migration::Settle;

/// How waiting for an empty queue ended.
pub(super) enum Drained {
    /// Nothing is in it, ready or with consumers.
    Empty,
    /// This many messages stay with consumers.
    Held(u64),
}

impl Migration {
    pub(super) async fn drain(&mut self) -> Result<Drained, MigrateError> {
        let queue = self.queue.clone();
        let mut settle = Settle::new(self.options.settle);
        let (mut least, mut fell) = (u64::MAX, Instant::now());
        let mut said = None::<Instant>;
        let moved_before = self.moved.messages + self.report.already_moved;
        let mut first = None;
        loop {
            self.stop_if_told()?;
            let Some(look) = self.hands.look(&queue).await? else {
                return Ok(Drained::Empty);
            };
            // Not counted yet is not empty.
            let total = counts::of(&self.management, &queue).await?.unwrap_or(1);
            let left = total.max(look.ready);
            let first = *first.get_or_insert(left);
            let now = Instant::now();
            let empty = settle.read(left, now);
            if settle.is_settling() {
                self.dry_since.get_or_insert(now);
            } else {
                self.dry_since = None;
            }
            if empty {
                let moved = self.moved.messages + self.report.already_moved - moved_before;
                self.report.drained += first.saturating_sub(moved);
                return Ok(Drained::Empty);
            }
            if said.is_none_or(|at| at.elapsed() >= SAY) {
                said = Some(now);
                (self.progress)(Progress::Draining {
                    left,
                    consumers: look.consumers,
                    moved: self.moved.messages,
                });
            }
            // The sum falls both when a consumer takes a message and when it finishes one.
            if total + look.ready < least || settle.is_settling() {
                (least, fell) = (total + look.ready, now);
            } else if fell.elapsed() > self.options.patience {
                return Ok(Drained::Held(left));
            }
            if look.consumers == 0 && look.ready > 0 {
                self.move_messages().await?;
                fell = Instant::now();
            } else {
                self.pause().await;
            }
        }
    }

    /// Waits a moment, or until told to stop.
    pub(super) async fn pause(&self) {
        tokio::select! {
            () = self.options.stop.cancelled() => {}
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}
