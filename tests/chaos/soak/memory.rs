//! Whether memory is flat: the middle of an early window, after the start's own growth, against that of the last one.

use std::ops::Range;

use tokio::time::Instant;

use super::staff::Sample;

/// Medians of one window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    pub(super) rss_kib: u64,
    pub(super) files: u64,
}

/// The level in a window; nothing, if nobody looked.
pub(super) fn level(samples: &[Sample], window: &Range<Instant>) -> Option<Level> {
    let within = || samples.iter().filter(|sample| window.contains(&sample.at));
    Some(Level {
        rss_kib: median(within().map(|sample| sample.rss_kib).collect())?,
        files: median(within().map(|sample| sample.files as u64).collect())?,
    })
}

fn median(mut values: Vec<u64>) -> Option<u64> {
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}
