//! In which order an instance works through the shards of the cron rows.
//!
//! May import: the constants of `store`, rand. Instances that work off one backlog in different orders take different
//! rows, which is faster than one of them; in the same order they would lose half of their decisions to each other.

use rand::{Rng, seq::SliceRandom};

use crate::store::cron_tasks::SHARDS;

/// After this many full batches the first shard becomes the last one, so that a shard that fills up as fast as it is
/// worked off keeps no other waiting. One would be fairer still; but whoever moves may meet another.
const STAY: u32 = 2;

/// The shards, those to read first in front.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shards {
    order: [i64; SHARDS],
    stayed: u32,
}

impl Shards {
    /// An order of one's own.
    pub(super) fn new(random: &mut impl Rng) -> Self {
        let mut order = [0; SHARDS];
        for (shard, place) in (0..).zip(&mut order) {
            *place = shard;
        }
        let mut shards = Self { order, stayed: 0 };
        shards.shuffle(random);
        shards
    }

    /// All shards, in the order in which to read them.
    pub(super) fn order(&self) -> &[i64] {
        &self.order
    }

    /// Somebody else is at work in front: go elsewhere.
    pub(super) fn shuffle(&mut self, random: &mut impl Rng) {
        self.order.shuffle(random);
        self.stayed = 0;
    }

    /// A batch was filled, and there may be more in the same place.
    pub(super) fn filled(&mut self) {
        self.stayed += 1;
        if self.stayed >= STAY {
            self.order.rotate_left(1);
            self.stayed = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::{SeedableRng, rngs::StdRng};

    use super::*;

    fn sorted(shards: &Shards) -> Vec<i64> {
        let mut all = shards.order().to_vec();
        all.sort_unstable();
        all
    }

    #[test]
    fn every_shard_is_there_once_in_an_order_of_ones_own() {
        let all: Vec<i64> = (0..16).collect();
        let mut random = StdRng::seed_from_u64(1);
        let (mut one, other) = (Shards::new(&mut random), Shards::new(&mut random));
        assert_ne!(one.order(), other.order());
        assert_eq!((sorted(&one), sorted(&other)), (all.clone(), all.clone()));
        one.shuffle(&mut random);
        assert_eq!(sorted(&one), all);
    }

    #[test]
    fn no_shard_is_in_front_for_ever() {
        let mut shards = Shards::new(&mut StdRng::seed_from_u64(2));
        let mut in_front = Vec::new();
        for _ in 0..16 {
            let first = shards.order()[0];
            in_front.push(first);
            for _ in 0..STAY {
                assert_eq!(shards.order()[0], first, "it stays where it has begun");
                shards.filled();
            }
        }
        in_front.sort_unstable();
        assert_eq!(in_front, sorted(&shards), "each had its turn");
    }
}
