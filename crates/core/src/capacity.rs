//! How many handlers must run at once, and so how many workers a type needs.
//!
//! By Little's law: at N tasks a second that take T milliseconds each, N × T / 1000 run at any moment. A reserve on top
//! keeps the queue short when tasks come unevenly or take longer. Imports nothing.

/// The reserve that the rule of thumb asks for: from this share to the next.
pub const RESERVE: (f64, f64) = (0.30, 0.50);

/// Most tasks a second, and longest duration in milliseconds, that make sense to ask about.
pub const MOST: f64 = 1e9;

/// What is known of a type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Tasks that arrive in a second, retries included.
    pub per_second: f64,
    /// How long one takes, in milliseconds.
    pub millis: f64,
    /// Handlers that run at once in one worker process.
    pub concurrency: u32,
}

/// Why a load can't be computed.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum LoadError {
    /// No rate.
    #[error("{0} tasks a second: use a number above 0 and up to {MOST:e}")]
    Rate(f64),
    /// No duration.
    #[error("{0} ms: use a number above 0 and up to {MOST:e}")]
    Duration(f64),
    /// A worker that runs nothing.
    #[error("concurrency 0: a worker process runs at least 1 handler at once")]
    Concurrency,
}

/// What a load needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Need {
    /// Handlers that are busy at any moment, on average.
    pub busy: f64,
    /// Handlers with the smaller reserve.
    pub slots_low: u64,
    /// Handlers with the larger reserve.
    pub slots_high: u64,
    /// Worker processes with the smaller reserve.
    pub workers_low: u64,
    /// Worker processes with the larger reserve.
    pub workers_high: u64,
}

impl Load {
    /// What this load needs.
    ///
    /// # Errors
    /// Where a number is zero, negative, infinite or none at all.
    pub fn need(self) -> Result<Need, LoadError> {
        let sensible = |n: f64| n.is_finite() && n > 0.0 && n <= MOST;
        if !sensible(self.per_second) {
            return Err(LoadError::Rate(self.per_second));
        }
        if !sensible(self.millis) {
            return Err(LoadError::Duration(self.millis));
        }
        if self.concurrency == 0 {
            return Err(LoadError::Concurrency);
        }
        let busy = self.per_second * self.millis / 1000.0;
        let slots = |reserve: f64| whole(busy * (1.0 + reserve));
        let (slots_low, slots_high) = (slots(RESERVE.0), slots(RESERVE.1));
        let concurrency = u64::from(self.concurrency);
        Ok(Need {
            busy,
            slots_low,
            slots_high,
            workers_low: slots_low.div_ceil(concurrency),
            workers_high: slots_high.div_ceil(concurrency),
        })
    }
}

/// The next whole number, at least 1. A hair above a whole number is rounding of floats, not one more handler.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "between 1 and 1e18, which u64 holds"
)]
fn whole(n: f64) -> u64 {
    (n - 1e-9).ceil().max(1.0) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn need(per_second: f64, millis: f64, concurrency: u32) -> Need {
        let load = Load {
            per_second,
            millis,
            concurrency,
        };
        load.need().unwrap()
    }

    #[test]
    fn the_working_is_rate_times_duration_plus_reserve() {
        for (per_second, millis, concurrency, want) in [
            (100.0, 250.0, 10, (25.0, 33, 38, 4, 4)),
            (10.0, 100.0, 1, (1.0, 2, 2, 2, 2)),
            (1000.0, 1000.0, 100, (1000.0, 1300, 1500, 13, 15)),
            (0.01, 1.0, 10, (0.00001, 1, 1, 1, 1)),
            (20.0, 500.0, 1, (10.0, 13, 15, 13, 15)),
        ] {
            let got = need(per_second, millis, concurrency);
            let got = (
                got.busy,
                got.slots_low,
                got.slots_high,
                got.workers_low,
                got.workers_high,
            );
            assert!((got.0 - want.0).abs() < 1e-9, "{got:?}");
            assert_eq!((got.1, got.2, got.3, got.4), (want.1, want.2, want.3, want.4));
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for (per_second, millis) in [
            (0.0, 1.0),
            (-1.0, 1.0),
            (f64::NAN, 1.0),
            (f64::INFINITY, 1.0),
            (1.0, 0.0),
            (1.0, f64::NAN),
            (2e9, 1.0),
        ] {
            let load = Load {
                per_second,
                millis,
                concurrency: 1,
            };
            assert!(load.need().is_err(), "{load:?}");
        }
        let load = Load {
            per_second: 1.0,
            millis: 1.0,
            concurrency: 0,
        };
        assert_eq!(load.need(), Err(LoadError::Concurrency));
    }

    proptest! {
        #[test]
        fn there_is_always_room_for_what_is_busy(per_second in 0.001..1e6_f64, millis in 0.001..1e6_f64, concurrency in 1..1000_u32) {
            let got = need(per_second, millis, concurrency);
            prop_assert!(got.slots_low as f64 >= got.busy);
            prop_assert!(got.slots_low <= got.slots_high);
            prop_assert!(got.workers_low * u64::from(concurrency) >= got.slots_low);
            prop_assert!(got.workers_high >= got.workers_low);
        }
    }
}
