//! A replay that is killed anywhere, with whatever its batches come to.

#![allow(clippy::unwrap_used, reason = "a test may panic, its helper functions too")]

use std::{num::NonZeroU32, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use proptest::prelude::*;
use tidegate_core::replay::{
    plan::{Batch, Canary, End, OnFailure, Options, Outcomes, Step},
    run::Run,
};

fn now() -> DateTime<Utc> {
    "2025-04-02T12:00:00Z".parse().unwrap()
}

fn options() -> Options {
    Options {
        limit: None,
        rate: None,
        canary: None,
        dry_run: false,
        batch: NonZeroU32::new(100).unwrap(),
    }
}

fn canary(percent: u8, on_failure: OnFailure) -> Option<Canary> {
    Some(Canary {
        percent,
        watch: Duration::from_secs(60),
        on_failure,
    })
}

fn all(count: u64) -> Batch {
    Batch {
        found: count,
        sent: count,
        refused: 0,
    }
}

/// One thing that happens to a run.
#[derive(Clone, Copy, Debug)]
struct Event {
    sent: u8,
    refused: u8,
    succeeded: u8,
    millis: i64,
    is_killed: bool,
}

fn event() -> impl Strategy<Value = Event> {
    (any::<[u8; 3]>(), 0_i64..500, any::<bool>()).prop_map(
        |([sent, refused, succeeded], millis, is_killed)| Event {
            sent,
            refused,
            succeeded,
            millis,
            is_killed,
        },
    )
}

/// `of` in proportion to `share`.
fn part(of: u64, share: u8) -> u64 {
    (of * u64::from(share)).div_ceil(255)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn killed_anywhere_every_dead_letter_is_settled_once_and_no_rate_is_broken(
        events in prop::collection::vec(event(), 20..200),
        matching in 0_u64..3_000,
        limit in prop::option::of(0_u64..2_000),
        rate in prop::option::of(1_u32..2_000),
        percent in prop::option::of(1_u8..=100),
        batch in 1_u32..200,
    ) {
        let options = Options {
            limit,
            rate: rate.and_then(NonZeroU32::new),
            canary: percent.and_then(|percent| canary(percent, OnFailure::Stop)),
            dry_run: false,
            batch: NonZeroU32::new(batch).unwrap(),
        };
        let mut run = Run::begin(options, matching, now());
        let planned = run.planned();
        prop_assert!(planned <= matching && planned <= limit.unwrap_or(u64::MAX));
        let canary_size = percent.map_or(0, |percent| (planned * u64::from(percent)).div_ceil(100));
        let (mut at, mut published, mut has_watched, mut kills) = (now(), 0_u64, percent.is_none(), 0_u64);
        let calm = Event { sent: 255, refused: 0, succeeded: 255, millis: 1_000, is_killed: false };
        let ending = events.into_iter().chain(std::iter::repeat_n(calm, 100_000));
        for event in ending {
            at += TimeDelta::milliseconds(event.millis);
            if event.is_killed {
                // Whoever takes it over knows what the database knows, and does what it would have done.
                let again = Run::resume(options, planned, run.counts(), at);
                let differs_by_rate_only = matches!(run.step(at), Step::Wait { .. }) || has_watched;
                prop_assert!(differs_by_rate_only || again.step(at) == run.step(at), "{:?} {:?}", again, run);
                run = again;
                kills += 1;
            }
            let settle = |count: u64| {
                let sent = part(count, event.sent);
                Batch { found: count, sent, refused: part(count - sent, event.refused) }
            };
            match run.step(at) {
                Step::Take { count } => {
                    prop_assert!(count > 0 && count <= u64::from(batch));
                    let taken = settle(count);
                    published += taken.found;
                    run.took(count, taken, at);
                }
                Step::Again { count } => {
                    prop_assert!(count > 0 && count <= u64::from(batch));
                    let taken = settle(count);
                    published += taken.found;
                    run.took_again(taken, at);
                }
                Step::Wait { until } => prop_assert!(until > at),
                Step::Watch { .. } => {
                    prop_assert_eq!(run.counts().sent, canary_size);
                    run.watched(Outcomes { succeeded: part(canary_size, event.succeeded), died: 0 }, at);
                    has_watched |= !matches!(run.step(at), Step::Watch { .. });
                }
                Step::End(end) => {
                    prop_assert_eq!(end, End::Done);
                    break;
                }
            }
            let counts = run.counts();
            prop_assert!(counts.sent + counts.refused + counts.unsettled <= planned, "{counts:?}");
            prop_assert!(has_watched || counts.sent <= canary_size, "{counts:?}");
            if let Some(rate) = rate {
                // A quarter of a second's worth at the beginning, and again for each that took the run over.
                let micros = u64::try_from((at - now()).num_microseconds().unwrap()).unwrap();
                let allowed = u64::from(rate) * micros / 1_000_000 + (kills + 1) * (u64::from(rate) / 4 + 2);
                prop_assert!(published <= allowed, "{published} of {allowed}");
            }
        }
        let counts = run.counts();
        prop_assert_eq!(run.step(at), Step::End(End::Done));
        prop_assert_eq!((counts.sent + counts.refused, counts.unsettled), (planned, 0));
    }

    #[test]
    fn a_failed_canary_never_lets_more_than_its_share_out(
        matching in 1_u64..100_000, percent in 1_u8..=100, batch in 1_u32..1_000, fails_after in 0_u64..20,
    ) {
        let options = Options {
            canary: canary(percent, OnFailure::Stop),
            batch: NonZeroU32::new(batch).unwrap(),
            ..options()
        };
        let mut run = Run::begin(options, matching, now());
        for round in 0.. {
            match run.step(now()) {
                Step::Take { count } => run.took(count, all(count), now()),
                Step::Watch { .. } => run.watched(Outcomes { succeeded: 0, died: 1 }, now()),
                Step::End(_) => break,
                step => prop_assert!(false, "{:?}", step),
            }
            if round == fails_after {
                run.watched(Outcomes { succeeded: 0, died: 1 }, now());
            }
        }
        prop_assert!(run.counts().sent <= (matching * u64::from(percent)).div_ceil(100));
    }
}
