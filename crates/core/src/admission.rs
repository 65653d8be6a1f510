//! How long a task stays away that its type's limits don't admit now.
//!
//! Whoever is sent away gets an appointment, one after the other, as far apart as the type can take them: then a
//! thousand that come at once come back one by one, and don't knock a thousand times.
//!
//! Imports nothing. Times are spans since an instant of the caller's choice.

use std::time::Duration;

/// Shortest stay away.
pub const SHORTEST: Duration = Duration::from_millis(500);

/// Longest stay away: a queue that got shorter meanwhile is noticed after it.
pub const LONGEST: Duration = Duration::from_secs(60);

/// How long a task waits in the worker for a place, without a slot.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// The same for one that was put off [`SENIOR`] times or more.
pub const SENIOR_PATIENCE: Duration = Duration::from_secs(10);

/// Times put off after which a task waits among fewer, and longer, so that newcomers don't overtake it for ever.
pub const SENIOR: u32 = 3;

/// Appointments of one type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Appointments {
    last: Duration,
}

impl Appointments {
    /// How long to stay away, asked at `now`, where the next could come after `wait` and the type takes one every
    /// `spacing`; moved up to a tenth later by a random `sample` in `0.0..1.0`.
    pub fn next(&mut self, now: Duration, wait: Duration, spacing: Duration, sample: f64) -> Duration {
        let at = self.last.max(now.saturating_add(wait)).saturating_add(spacing);
        // Nothing is booked beyond the longest stay: whoever comes back then asks again.
        self.last = at.min(now.saturating_add(LONGEST));
        let stay = (self.last.saturating_sub(now)).clamp(SHORTEST, LONGEST);
        let late = if sample.is_finite() {
            sample.clamp(0.0, 1.0)
        } else {
            0.0
        };
        stay.mul_f64(1.0 + 0.1 * late)
    }
}

/// Spacing of tasks that run `mean` each, `limit` at once.
pub fn spacing(mean: Duration, limit: usize) -> Duration {
    mean / u32::try_from(limit.max(1)).unwrap_or(u32::MAX)
}

/// The mean of durations after one more: the newer count for more.
pub fn mean(before: Option<Duration>, took: Duration) -> Duration {
    match before {
        Some(before) => before.mul_f64(0.8).saturating_add(took.mul_f64(0.2)),
        None => took,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn appointments_follow_each_other_and_lapse() {
        let mut book = Appointments::default();
        let now = ms(10_000);
        let mut ask = |now| book.next(now, ms(200), ms(400), 0.0);
        assert_eq!([ask(now), ask(now), ask(now)], [ms(600), ms(1_000), ms(1_400)]);
        assert_eq!(ask(now + ms(1_000)), ms(800), "the ones before are still to come");
        assert_eq!(ask(now + ms(60_000)), ms(600), "all of them have been");
    }

    #[test]
    fn a_stay_is_bounded_whatever_is_asked() {
        let mut book = Appointments::default();
        assert_eq!(book.next(ms(0), ms(0), ms(1), 0.0), SHORTEST);
        for _ in 0..10 {
            assert_eq!(book.next(ms(0), Duration::MAX, Duration::MAX, f64::NAN), LONGEST);
        }
        assert_eq!(book.next(ms(0), ms(0), ms(0), 1.0), LONGEST.mul_f64(1.1));
        assert_eq!(book.next(Duration::MAX, ms(0), ms(0), 0.0), SHORTEST);
    }

    #[test]
    fn a_type_takes_as_many_as_run_at_once() {
        assert_eq!(spacing(ms(1_000), 4), ms(250));
        assert_eq!(spacing(ms(1_000), 0), ms(1_000));
        assert_eq!(mean(None, ms(50)), ms(50));
        assert_eq!(mean(Some(ms(100)), ms(200)), ms(120));
    }
}
