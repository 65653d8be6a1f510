//! Kills one thing and starts it again, at random moments, for some time.

use std::{ops::Range, time::Duration};

use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio::time::Instant;

/// How one thing is harassed. All spans are in milliseconds.
#[derive(Clone, Debug)]
pub(crate) struct Habit {
    pub(crate) up: Range<u64>,
    pub(crate) down: Range<u64>,
    /// At least so many kills, however long they take.
    pub(crate) at_least: usize,
}

/// Kills until `until`, and until it was often enough; leaves the thing running. Returns the number of kills.
pub(crate) async fn harass(
    seed: u64,
    habit: Habit,
    until: Instant,
    mut kill: impl AsyncFnMut(),
    mut start: impl AsyncFnMut(),
) -> usize {
    let mut random = StdRng::seed_from_u64(seed);
    let mut kills = 0;
    loop {
        tokio::time::sleep(Duration::from_millis(random.random_range(habit.up.clone()))).await;
        if Instant::now() >= until && kills >= habit.at_least {
            return kills;
        }
        kill().await;
        kills += 1;
        tokio::time::sleep(Duration::from_millis(random.random_range(habit.down.clone()))).await;
        start().await;
    }
}
