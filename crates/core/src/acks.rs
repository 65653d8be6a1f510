//! Which frames settle the deliveries of one channel: few, in order, and never one that still runs.
//!
//! Deliveries arrive in the order of their tags and finish in any order. The finished ones at the front are settled
//! together, since `multiple` covers every unsettled tag up to its own; those that finished behind one that still
//! runs are settled one by one. What is said of a tag is said once: the broker closes the channel over a tag that it
//! does not know, or no longer.

use std::collections::VecDeque;

/// Most finished deliveries that wait for each other.
const FULL_BATCH: usize = 50;

/// How many finished deliveries are settled together where the broker sends `prefetch` ahead. A quarter of it: were the
/// batch as large as the prefetch, the broker would have nothing left to send while one is collected.
pub fn batch(prefetch: u16) -> usize {
    usize::from(prefetch / 4).clamp(1, FULL_BATCH)
}

/// What becomes of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Done with: the broker forgets it.
    Ack,
    /// Back to its queue.
    Requeue,
}

/// One frame: `word` for `tag`, and with `multiple` for all before it that were not settled yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Delivery tag.
    pub tag: u64,
    /// What is said of it.
    pub word: Word,
    /// Whether it covers the unsettled ones before it as well.
    pub multiple: bool,
    /// How many deliveries it settles.
    pub covers: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    Finished(Word),
    /// Given up without a word; the broker has it back once the channel is closed.
    Abandoned,
}

/// The unsettled deliveries of one channel, by tag; as many as the prefetch allows.
#[derive(Debug, Default)]
pub struct Acks {
    unsettled: VecDeque<(u64, State)>,
    newest: u64,
    running: usize,
    finished: usize,
}

impl Acks {
    /// Takes note of a delivery. Tags only grow; one that does not is none of this channel's, and ignored.
    pub fn arrive(&mut self, tag: u64) {
        if tag <= self.newest {
            return;
        }
        if tag > self.newest + 1 {
            // Delivered, but not to us: nothing may cover it.
            self.unsettled.push_back((tag - 1, State::Abandoned));
        }
        self.newest = tag;
        self.unsettled.push_back((tag, State::Running));
        self.running += 1;
    }

    /// `tag` is finished, and `word` is to be said of it. Ignored if it does not run.
    pub fn finish(&mut self, tag: u64, word: Word) {
        if self.end(tag, State::Finished(word)) {
            self.finished += 1;
        }
    }

    /// `tag` ends without a word.
    pub fn abandon(&mut self, tag: u64) {
        self.end(tag, State::Abandoned);
    }

    fn end(&mut self, tag: u64, state: State) -> bool {
        let Ok(at) = self.unsettled.binary_search_by_key(&tag, |(tag, _)| *tag) else {
            return false;
        };
        let ran = self.unsettled[at].1 == State::Running;
        if ran {
            self.unsettled[at].1 = state;
            self.running -= 1;
        }
        ran
    }

    /// How many still run.
    pub fn running(&self) -> usize {
        self.running
    }

    /// How many are finished and not settled yet.
    pub fn finished(&self) -> usize {
        self.finished
    }

    /// Settles the finished ones before the first that still runs.
    pub fn settle_front(&mut self, frames: &mut Vec<Frame>) {
        let mut run: Option<Frame> = None;
        while let Some(&(tag, State::Finished(word))) = self.unsettled.front() {
            self.unsettled.pop_front();
            self.finished -= 1;
            run = match run {
                Some(run) if run.word == word => Some(Frame {
                    tag,
                    word,
                    multiple: true,
                    covers: run.covers + 1,
                }),
                other => {
                    frames.extend(other);
                    Some(single(tag, word))
                }
            };
        }
        frames.extend(run);
    }

    /// Settles all finished ones.
    pub fn settle_all(&mut self, frames: &mut Vec<Frame>) {
        self.settle_front(frames);
        if self.finished == 0 {
            return;
        }
        self.unsettled.retain(|&(tag, state)| match state {
            State::Finished(word) => {
                frames.push(single(tag, word));
                false
            }
            State::Running | State::Abandoned => true,
        });
        self.finished = 0;
    }
}

fn single(tag: u64, word: Word) -> Frame {
    Frame {
        tag,
        word,
        multiple: false,
        covers: 1,
    }
}
