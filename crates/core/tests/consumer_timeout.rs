//! How long a handler may run under a broker's consumer timeout: a table, and what must hold for all values.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::consumer_timeout::{BROKER_DEFAULT, Hold, hold, longest, needed};

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn a_table_of_holds() {
    let half_an_hour = BROKER_DEFAULT;
    for (wanted, broker, age, expected) in [
        // The usual: five minutes of half an hour.
        (s(300), half_an_hour, s(0), Hold::Whole(s(300))),
        (s(300), half_an_hour, s(1_470), Hold::Whole(s(300))),
        (s(300), half_an_hour, s(1_471), Hold::TooOld),
        // The longest that fits, with half a minute's wait tolerated.
        (s(1_740), half_an_hour, s(0), Hold::Whole(s(1_740))),
        (s(1_740), half_an_hour, s(30), Hold::Whole(s(1_740))),
        (s(1_740), half_an_hour, s(31), Hold::TooOld),
        // An envelope that asks for more is cut, by its age too, and given back once half is gone.
        (s(1_741), half_an_hour, s(0), Hold::Cut(s(1_740))),
        (s(86_400), half_an_hour, s(130), Hold::Cut(s(1_640))),
        (s(86_400), half_an_hour, s(900), Hold::Cut(s(870))),
        (s(86_400), half_an_hour, s(901), Hold::TooOld),
        // A limit of a minute has room for three quarters.
        (s(45), s(60), s(7), Hold::Whole(s(45))),
        (s(46), s(60), s(0), Hold::Cut(s(45))),
        (s(10), s(60), s(3_600), Hold::TooOld),
    ] {
        assert_eq!(
            hold(wanted, broker, age),
            expected,
            "{wanted:?} of {broker:?} at {age:?}"
        );
    }
}

proptest! {
    #[test]
    fn nothing_outlives_the_brokers_patience(
        wanted in 1u64..200_000_000, broker in 60_000u64..172_800_000, age in 0u64..200_000_000,
    ) {
        let [wanted, broker, age] = [wanted, broker, age].map(Duration::from_millis);
        match hold(wanted, broker, age) {
            Hold::Whole(time) => {
                prop_assert_eq!(time, wanted);
                prop_assert!(age + time < broker);
            }
            Hold::Cut(time) => prop_assert!(time < wanted && age + time < broker && !time.is_zero()),
            Hold::TooOld => prop_assert!(!age.is_zero(), "a fresh delivery is always started"),
        }
    }

    #[test]
    fn the_limit_that_is_named_is_enough_and_hardly_more(timeout in 1_000u64..172_000_000) {
        let timeout = Duration::from_millis(timeout);
        let enough = needed(timeout);
        prop_assert!(longest(enough) >= timeout);
        prop_assert!(longest(enough.saturating_sub(Duration::from_millis(1))) < timeout);
    }
}
