//! How many deliveries are held.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::prefetch::{MOST_AHEAD, initial, is_worth_a_change, wanted};

const REFILL: Duration = Duration::from_millis(5);

#[test]
fn slow_handlers_hold_little_more_than_they_run_and_fast_ones_hundreds() {
    let table = [
        // concurrency, mean, prefetch
        (10, Duration::from_secs(60), 11),
        (10, Duration::from_secs(1), 11),
        (10, Duration::from_millis(50), 12),
        (10, Duration::from_millis(5), 30),
        (10, Duration::from_millis(1), 110),
        (10, Duration::from_micros(20), 510),
        (10, Duration::ZERO, 510),
        (1, Duration::from_millis(1), 11),
        (200, Duration::from_secs(1), 202),
        (10_000, Duration::from_millis(1), 10_500),
    ];
    for (concurrency, mean, expected) in table {
        assert_eq!(
            wanted(concurrency, mean, REFILL),
            expected,
            "{concurrency} at {mean:?}"
        );
    }
    // A broker that is far away is asked earlier.
    assert_eq!(
        wanted(10, Duration::from_millis(50), Duration::from_millis(200)),
        90
    );
    assert_eq!(
        [0, 1, 10, 10_000, 100_000].map(initial),
        [2, 2, 20, 10_500, u16::MAX]
    );
}

#[test]
fn only_a_change_beyond_a_factor_of_two_is_worth_it() {
    let table = [
        (20, 20, false),
        (20, 30, false),
        (20, 33, true),
        (20, 15, false),
        (20, 11, true),
        (11, 15, false),
        (11, 16, true),
        (510, 260, false),
        (510, 200, true),
    ];
    for (current, wanted, worth) in table {
        assert_eq!(
            is_worth_a_change(10, current, wanted),
            worth,
            "{current} to {wanted}"
        );
    }
}

proptest! {
    #[test]
    fn it_is_never_zero_and_within_its_bounds(
        concurrency in any::<usize>(), mean in any::<u64>(), refill in any::<u64>(), current in any::<u16>(),
    ) {
        let (mean, refill) = (Duration::from_nanos(mean), Duration::from_nanos(refill));
        let wanted = wanted(concurrency, mean, refill);
        let runs = u16::try_from(concurrency).unwrap_or(u16::MAX).max(1);
        prop_assert!(wanted > runs || runs == u16::MAX);
        prop_assert!(wanted - runs <= MOST_AHEAD);
        // A change that was made is not worth making back.
        prop_assert!(!is_worth_a_change(concurrency, wanted, wanted));
        if is_worth_a_change(concurrency, current, wanted) {
            prop_assert!(current != wanted);
        }
    }

    #[test]
    fn shorter_handlers_never_hold_less(concurrency in 1_usize..1_000, mean in 1_u64..1_000_000, faster in 1_u64..100) {
        let at = |micros: u64| wanted(concurrency, Duration::from_micros(micros), REFILL);
        prop_assert!(at(mean / faster) >= at(mean));
    }
}
