//! Acknowledgement in few frames, against a broker that knows the rules.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tidegate_core::acks::{Acks, Frame, Word, batch};

fn arrived(count: u64) -> Acks {
    let mut acks = Acks::default();
    (1..=count).for_each(|tag| acks.arrive(tag));
    acks
}

fn all(acks: &mut Acks) -> Vec<(u64, Word, bool, usize)> {
    let mut frames = Vec::new();
    acks.settle_all(&mut frames);
    frames
        .into_iter()
        .map(|frame| (frame.tag, frame.word, frame.multiple, frame.covers))
        .collect()
}

#[test]
fn the_front_goes_together_and_what_finished_behind_a_gap_alone() {
    let mut acks = arrived(7);
    for tag in [2, 1, 3, 5, 7] {
        acks.finish(tag, Word::Ack);
    }
    let mut front = Vec::new();
    acks.settle_front(&mut front);
    assert_eq!(
        front,
        [Frame {
            tag: 3,
            word: Word::Ack,
            multiple: true,
            covers: 3
        }]
    );
    assert_eq!((acks.finished(), acks.running()), (2, 2));
    assert_eq!(
        all(&mut acks),
        [(5, Word::Ack, false, 1), (7, Word::Ack, false, 1)]
    );
    acks.finish(4, Word::Ack);
    acks.finish(6, Word::Ack);
    // 5 was settled before: `multiple` over it covers 4 and 6 only.
    assert_eq!(all(&mut acks), [(6, Word::Ack, true, 2)]);
    assert_eq!(all(&mut acks), []);
}

#[test]
fn a_requeue_in_between_parts_the_acknowledgements() {
    let mut acks = arrived(6);
    for tag in [1, 2, 5, 6] {
        acks.finish(tag, Word::Ack);
    }
    acks.finish(3, Word::Requeue);
    acks.finish(4, Word::Requeue);
    assert_eq!(
        all(&mut acks),
        [
            (2, Word::Ack, true, 2),
            (4, Word::Requeue, true, 2),
            (6, Word::Ack, true, 2)
        ]
    );
}

#[test]
fn what_is_abandoned_or_never_came_here_is_never_covered() {
    let mut acks = arrived(3);
    // 4 and 5 were delivered, but not to us.
    acks.arrive(6);
    acks.abandon(2);
    for tag in [1, 3, 6] {
        acks.finish(tag, Word::Ack);
    }
    let singles = [1, 3, 6].map(|tag| (tag, Word::Ack, false, 1));
    assert_eq!(all(&mut acks), singles);
    assert_eq!((acks.finished(), acks.running()), (0, 0));
}

#[test]
fn a_batch_leaves_the_broker_something_to_send() {
    let table = [(1, 1), (4, 1), (8, 2), (20, 5), (200, 50), (u16::MAX, 50)];
    assert_eq!(table.map(|(prefetch, _)| (prefetch, batch(prefetch))), table);
}

/// The broker's side: it refuses a tag it doesn't hold, as RabbitMQ does by closing the channel.
#[derive(Default)]
struct Broker {
    unsettled: BTreeSet<u64>,
    said: BTreeMap<u64, Word>,
}

impl Broker {
    fn take(&mut self, frame: &Frame) {
        assert!(self.unsettled.contains(&frame.tag), "unknown tag: {frame:?}");
        let from = if frame.multiple { 0 } else { frame.tag };
        let covered: Vec<u64> = self.unsettled.range(from..=frame.tag).copied().collect();
        assert_eq!(covered.len(), frame.covers, "{frame:?}");
        for tag in covered {
            self.unsettled.remove(&tag);
            assert_eq!(self.said.insert(tag, frame.word), None, "{tag} settled twice");
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Arrive,
    Skip,
    Finish(prop::sample::Index, bool),
    Abandon(prop::sample::Index),
    Front,
    All,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => Just(Step::Arrive),
        1 => Just(Step::Skip),
        8 => (any::<prop::sample::Index>(), prop::bool::weighted(0.2)).prop_map(|(at, requeue)| Step::Finish(at, requeue)),
        1 => any::<prop::sample::Index>().prop_map(Step::Abandon),
        2 => Just(Step::Front),
        1 => Just(Step::All),
    ]
}

proptest! {
    #[test]
    fn the_broker_hears_exactly_what_was_decided(steps in prop::collection::vec(step(), 1..300)) {
        let (mut acks, mut broker) = (Acks::default(), Broker::default());
        let (mut next, mut running, mut decided) = (1, Vec::new(), BTreeMap::new());
        for step in steps {
            let mut frames = Vec::new();
            match step {
                Step::Arrive => {
                    acks.arrive(next);
                    broker.unsettled.insert(next);
                    running.push(next);
                    next += 1;
                }
                Step::Skip => {
                    broker.unsettled.insert(next);
                    next += 1;
                }
                Step::Finish(at, requeue) if !running.is_empty() => {
                    let tag = running.remove(at.index(running.len()));
                    let word = if requeue { Word::Requeue } else { Word::Ack };
                    acks.finish(tag, word);
                    // A second word on the same delivery changes nothing.
                    acks.finish(tag, Word::Requeue);
                    decided.insert(tag, word);
                }
                Step::Abandon(at) if !running.is_empty() => {
                    acks.abandon(running.remove(at.index(running.len())));
                }
                Step::Front => {
                    acks.settle_front(&mut frames);
                    prop_assert!(frames.windows(2).all(|two| two[0].word != two[1].word), "{frames:?}");
                }
                Step::All => acks.settle_all(&mut frames),
                Step::Finish(..) | Step::Abandon(_) => {}
            }
            frames.iter().for_each(|frame| broker.take(frame));
            prop_assert_eq!(acks.running(), running.len());
            prop_assert_eq!(acks.finished(), decided.len() - broker.said.len());
        }
        let mut frames = Vec::new();
        acks.settle_all(&mut frames);
        frames.iter().for_each(|frame| broker.take(frame));
        prop_assert_eq!(broker.said, decided);
    }
}
