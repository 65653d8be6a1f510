//! Cron rows that can neither be written back nor flagged, and when each is tried again.
//!
//! May import: nothing of ours. Known to this instance only: the row itself takes nothing. With a new process they are
//! tried at once.

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;

/// Most rows; of more, those that come back soonest are tried sooner.
const MOST: usize = 10_000;

/// First and longest rest.
const REST: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Which rows rest, how often they have, and until when.
#[derive(Debug, Default)]
pub(super) struct Resting(HashMap<i64, (u32, Instant)>);

impl Resting {
    /// Lets the row `id` rest, twice as long as the last time.
    pub(super) fn add(&mut self, id: i64) {
        let now = Instant::now();
        // One that has been well since its last rest begins anew.
        self.0.retain(|_, (_, until)| *until + REST.1 > now);
        if self.0.len() >= MOST
            && !self.0.contains_key(&id)
            && let Some(soonest) = self.0.iter().min_by_key(|(_, (_, until))| *until)
        {
            let soonest = *soonest.0;
            self.0.remove(&soonest);
        }
        let times = self.0.get(&id).map_or(0, |(times, _)| *times);
        let rest = (REST.0 * 2_u32.saturating_pow(times.min(16))).min(REST.1);
        self.0.insert(id, (times.saturating_add(1), now + rest));
    }

    /// When the first of them has rested.
    pub(super) fn next(&self) -> Option<Instant> {
        let now = Instant::now();
        let ends = self.0.values().map(|(_, until)| *until);
        ends.filter(|until| *until > now).min()
    }

    /// The rows that rest now.
    pub(super) fn ids(&self) -> Vec<i64> {
        let now = Instant::now();
        let resting = self.0.iter().filter(|(_, (_, until))| *until > now);
        resting.map(|(id, _)| *id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_row_rests_longer_each_time_and_at_most_a_minute() {
        let mut resting = Resting::default();
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            resting.add(7);
            tokio::time::advance(Duration::from_secs(seconds) - Duration::from_millis(1)).await;
            assert_eq!(resting.ids(), [7], "{seconds} s");
            assert_eq!(resting.next(), Some(Instant::now() + Duration::from_millis(1)));
            tokio::time::advance(Duration::from_millis(1)).await;
            assert!(resting.ids().is_empty(), "{seconds} s");
        }
        tokio::time::advance(Duration::from_secs(61)).await;
        resting.add(8);
        assert_eq!(resting.ids(), [8]);
        assert_eq!(resting.0.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_are_known_than_the_limit() {
        let mut resting = Resting::default();
        for id in 0..=MOST {
            resting.add(i64::try_from(id).unwrap());
        }
        assert_eq!(resting.0.len(), MOST);
    }
}
