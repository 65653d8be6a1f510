//! Processor time of this process, which a busy machine distorts less than the clock.
//!
//! May import: nothing of ours.

use std::time::Duration;

/// Processor time used so far by all threads, in steps of 10 ms; `None` where the system has no `/proc`.
pub(super) fn used() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // Behind the name, which may hold anything: fields 14 and 15 of the whole, in ticks of 10 ms.
    let (_, fields) = stat.rsplit_once(") ")?;
    let ticks = fields.split(' ').skip(11).take(2);
    let ticks: Result<Vec<u64>, _> = ticks.map(str::parse).collect();
    Some(Duration::from_millis(10 * ticks.ok()?.iter().sum::<u64>()))
}

/// Microseconds for each of `count` tasks since `before`.
pub(super) fn per_task(before: Option<Duration>, count: u64) -> Option<f64> {
    let used = used()?.checked_sub(before?)?;
    (count > 0).then(|| used.as_secs_f64() * 1e6 / count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_shows_as_processor_time() {
        let before = used();
        assert!(before.is_some(), "tests run where there is a /proc");
        let mut sum = 0_u64;
        while per_task(before, 1).is_some_and(|micros| micros < 20_000.0) {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
        }
        assert!(per_task(before, 0).is_none());
        assert!(
            per_task(before, 10).is_some_and(|micros| micros >= 2_000.0),
            "{sum}"
        );
    }
}
