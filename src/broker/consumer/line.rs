//! One channel's line of settlements: what is finished is told to the broker in few frames, in order, by one task.
//!
//! May import: `core::acks`, `telemetry`. A frame is written when enough are finished, after [`WAIT`] otherwise, and at
//! once when nothing else of the channel runs and nothing was written a moment ago: a lone delivery waits for nobody.
//!
//! At its end a line closes its channel itself, once the broker has answered after the last settlement ([`Line::part`]); what is
//! finished is told at once until then, since a process may be about to die.
//!
//! If the process dies with finished deliveries in the line, the broker delivers them again. A channel that is gone is
//! never written to: lapin refuses, and no later channel of the connection has its number for the next 2,000 channels.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::future::join_all;
use lapin::{
    Channel,
    options::{BasicAckOptions, BasicNackOptions, BasicQosOptions},
};
use tidegate_core::acks::{Acks, Frame, Word, batch};
use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until, timeout},
};

use super::{METHOD_TIMEOUT, Stale};
use crate::telemetry::metrics;

/// Longest time that a finished delivery waits for others to finish.
const WAIT: Duration = Duration::from_millis(2);

/// So many frames at the end of a channel are taken to be passed on without a wait.
const PASSED_ON: usize = 16;

/// How long more of them are given; measured by whether any of 180 came again, not by the broker's word.
const PASSING_ON: Duration = Duration::from_millis(250);

/// Longest wait for each of the last two answers on a channel.
const PART_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Line {
    /// Open for as long as the line: closing it gives back what is unsettled.
    channel: Channel,
    state: Mutex<State>,
    wake: Notify,
    batch: usize,
    prefetch: u16,
    queue: Arc<str>,
}

#[derive(Debug)]
struct State {
    acks: Acks,
    /// When what is finished is written, full batch or not; set while something is.
    due: Option<Instant>,
    written: Instant,
    /// Nothing is written meanwhile, so that the broker sends no more than fits into its window.
    held: bool,
    /// Nothing more arrives.
    left: bool,
    /// Frames written since then.
    parting: usize,
}

/// What the line does next.
enum Next {
    Write(Vec<Frame>),
    Wait(Option<Instant>),
    End,
}

impl Line {
    pub(super) fn new(channel: Channel, prefetch: u16, queue: Arc<str>) -> Self {
        let state = State {
            acks: Acks::default(),
            due: None,
            // Long enough ago for the first delivery to be a lone one.
            written: Instant::now().checked_sub(WAIT).unwrap_or_else(Instant::now),
            held: false,
            left: false,
            parting: 0,
        };
        Self {
            channel,
            state: Mutex::new(state),
            wake: Notify::new(),
            batch: batch(prefetch),
            prefetch,
            queue,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics between two changes that belong together.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn arrive(&self, tag: u64) {
        self.state().acks.arrive(tag);
    }

    /// The broker is told `word` soon; waits for nothing.
    pub(super) fn finish(&self, tag: u64, word: Word) -> Result<(), Stale> {
        if !self.channel.status().connected() {
            self.abandon(tag);
            return Err(Stale);
        }
        let mut state = self.state();
        state.acks.finish(tag, word);
        let (finished, running) = (state.acks.finished(), state.acks.running());
        let first = state.due.is_none();
        if first {
            state.due = Some(Instant::now() + WAIT);
        }
        let wake = first || finished == self.batch || (running == 0 && state.at_once());
        drop(state);
        if wake {
            self.wake.notify_one();
        }
        Ok(())
    }

    /// Keeps back what is finished, or lets it go on.
    pub(super) fn hold(&self, held: bool) {
        self.state().held = held;
        self.wake.notify_one();
    }

    /// How many have arrived of which the broker has not been told.
    pub(super) fn untold(&self) -> usize {
        let state = self.state();
        state.acks.running() + state.acks.finished()
    }

    /// Ends without a word: the broker has it back once the channel is closed.
    pub(super) fn abandon(&self, tag: u64) {
        let mut state = self.state();
        state.acks.abandon(tag);
        let last = state.left && state.acks.running() == 0;
        drop(state);
        if last {
            self.wake.notify_one();
        }
    }

    /// Nothing more arrives: the line ends once what has arrived is settled.
    pub(super) fn leave(&self) {
        self.state().left = true;
        self.wake.notify_one();
    }

    /// Writes until the consumer has left and everything is settled, or the channel is gone.
    pub(super) async fn run(self: Arc<Self>) {
        loop {
            let next = self.state().next(self.batch, Instant::now());
            match next {
                Next::Write(frames) => {
                    if self.write(&frames).await.is_err() {
                        return;
                    }
                }
                Next::Wait(None) => self.wake.notified().await,
                Next::Wait(Some(due)) => tokio::select! {
                    () = self.wake.notified() => {}
                    () = sleep_until(due) => {}
                },
                Next::End => return self.part().await,
            }
        }
    }

    /// Waits until the broker has had the last word, and closes the channel.
    ///
    /// lapin keeps what is written for a moment, and a channel that is still closing when its connection is closed ends that
    /// connection with an error, and what was kept with it: finished deliveries would come again. An answer on the same channel
    /// comes after all that was said before. Closed right after it, some of many settlements still came again on 3.10.8 (seen); the
    /// likely reason is that the broker's channel passes on only some dozens to a quorum queue at once and forgets the others.
    /// Nothing answers for that, so it is given time.
    async fn part(&self) {
        if self.state().parting > PASSED_ON {
            sleep(PASSING_ON).await;
        }
        let answered = self.channel.basic_qos(self.prefetch, BasicQosOptions::default());
        let answered = timeout(PART_TIMEOUT, answered).await;
        if let Ok(Ok(())) = answered {
            let _ = timeout(PART_TIMEOUT, self.channel.close(200, "done".into())).await;
        } else {
            tracing::debug!(queue = %self.queue, ?answered, "the channel was gone, or the broker is silent");
        }
    }

    /// lapin queues each frame as soon as its future is polled, so they go out in this order.
    async fn write(&self, frames: &[Frame]) -> Result<(), Stale> {
        let written = join_all(frames.iter().map(|frame| async {
            let Frame { tag, multiple, .. } = *frame;
            match frame.word {
                Word::Ack => self.channel.basic_ack(tag, BasicAckOptions { multiple }).await,
                Word::Requeue => {
                    let requeue = true;
                    let options = BasicNackOptions { multiple, requeue };
                    self.channel.basic_nack(tag, options).await
                }
            }
        }));
        // Not written in time they stay queued, in order; a connection that is dead shows by its heartbeat.
        if let Ok(results) = timeout(METHOD_TIMEOUT, written).await
            && let Some(error) = results.into_iter().find_map(Result::err)
        {
            tracing::debug!(queue = %self.queue, %error, "the channel is gone with finished deliveries");
            return Err(Stale);
        }
        for frame in frames {
            metrics::settled(&self.queue, frame.covers);
        }
        Ok(())
    }
}

impl State {
    /// Nothing was written a moment ago, so that no batch is being collected.
    fn at_once(&self) -> bool {
        self.left || self.written.elapsed() >= WAIT
    }

    fn next(&mut self, batch: usize, now: Instant) -> Next {
        if self.held && !self.left {
            return Next::Wait(None);
        }
        let mut frames = Vec::new();
        if let Some(due) = self.due {
            let lone = self.acks.running() == 0 && self.at_once();
            if lone || due <= now {
                self.acks.settle_all(&mut frames);
            } else if self.acks.finished() >= batch {
                self.acks.settle_front(&mut frames);
                // One that runs for long must not hold up a whole batch behind it.
                if self.acks.finished() >= batch {
                    self.acks.settle_all(&mut frames);
                }
            }
        }
        if !frames.is_empty() {
            if self.left {
                self.parting += frames.len();
            }
            self.written = now;
            self.due = (self.acks.finished() > 0).then(|| now + WAIT);
            return Next::Write(frames);
        }
        if self.left && self.acks.running() == 0 {
            return Next::End;
        }
        Next::Wait(self.due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BATCH: usize = 3;

    /// `count` deliveries have arrived, and frames were last written `quiet` before now.
    fn state(count: u64, quiet: Duration) -> (State, Instant) {
        let now = Instant::now();
        let mut acks = Acks::default();
        (1..=count).for_each(|tag| acks.arrive(tag));
        let written = now.checked_sub(quiet).unwrap();
        let due = Some(now + WAIT);
        let (held, left) = (false, false);
        (
            State {
                acks,
                due,
                written,
                held,
                left,
                parting: 0,
            },
            now,
        )
    }

    fn written(next: Next) -> Vec<(u64, bool)> {
        match next {
            Next::Write(frames) => frames.iter().map(|frame| (frame.tag, frame.multiple)).collect(),
            Next::Wait(_) | Next::End => Vec::new(),
        }
    }

    #[test]
    fn a_lone_delivery_is_acknowledged_at_once() {
        let (mut lone, now) = state(1, WAIT);
        lone.acks.finish(1, Word::Ack);
        assert_eq!(written(lone.next(BATCH, now)), [(1, false)]);
        assert!(matches!(lone.next(BATCH, now), Next::Wait(None)));
    }

    #[test]
    fn a_stream_of_them_is_collected_for_as_long_as_allowed() {
        let (mut stream, now) = state(1, Duration::ZERO);
        stream.acks.finish(1, Word::Ack);
        assert!(matches!(stream.next(BATCH, now), Next::Wait(Some(due)) if due == now + WAIT));
        assert_eq!(written(stream.next(BATCH, now + WAIT)), [(1, false)]);
    }

    #[test]
    fn a_full_batch_is_written_without_waiting_past_one_that_runs_for_long() {
        let (mut full, now) = state(9, Duration::ZERO);
        [1, 2, 4].iter().for_each(|tag| full.acks.finish(*tag, Word::Ack));
        assert_eq!(written(full.next(BATCH, now)), [(2, true)], "4 waits for 3");
        [5, 6].iter().for_each(|tag| full.acks.finish(*tag, Word::Ack));
        assert_eq!(
            written(full.next(BATCH, now)),
            [(4, false), (5, false), (6, false)]
        );
    }

    #[test]
    fn it_ends_once_the_consumer_has_left_and_all_is_written() {
        let (mut line, now) = state(1, Duration::ZERO);
        line.due = None;
        line.left = true;
        assert!(
            matches!(line.next(BATCH, now), Next::Wait(None)),
            "one still runs"
        );
        line.acks.finish(1, Word::Requeue);
        line.due = Some(now + WAIT);
        assert_eq!(written(line.next(BATCH, now)), [(1, false)]);
        assert!(matches!(line.next(BATCH, now), Next::End));
    }
}
