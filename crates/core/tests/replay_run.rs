//! A replay of many: what goes when, and what the canary decides.

#![allow(clippy::unwrap_used, reason = "a test may panic, its helper functions too")]

use std::{num::NonZeroU32, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use tidegate_core::replay::{
    plan::{Batch, Canary, Counts, End, OnFailure, Options, Outcomes, Step},
    run::Run,
};

fn now() -> DateTime<Utc> {
    "2025-04-02T12:00:00Z".parse().unwrap()
}

fn after(seconds: i64) -> DateTime<Utc> {
    now() + TimeDelta::seconds(seconds)
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

#[test]
fn a_run_takes_batches_until_all_are_out() {
    let mut run = Run::begin(options(), 250, now());
    for expected in [100, 100, 50] {
        assert_eq!(run.step(now()), Step::Take { count: expected });
        run.took(expected, all(expected), now());
    }
    assert_eq!(run.step(now()), Step::End(End::Done));
    assert_eq!(run.counts().sent, 250);
}

#[test]
fn a_limit_and_a_dry_run_are_kept() {
    let options = Options {
        limit: Some(30),
        canary: canary(1, OnFailure::Stop),
        ..options()
    };
    let run = Run::begin(options, 1_000, now());
    assert_eq!((run.planned(), run.step(now())), (30, Step::Take { count: 1 }));
    let run = Run::begin(
        Options {
            dry_run: true,
            ..options
        },
        1_000,
        now(),
    );
    assert_eq!(
        run.step(now()),
        Step::End(End::DryRun {
            would_take: 30,
            canary: 1
        })
    );
    assert_eq!(Run::begin(options, 0, now()).step(now()), Step::End(End::Done));
}

#[test]
fn a_canary_that_dies_again_ends_the_run_and_one_that_lives_lets_it_go_on() {
    let with = |on_failure| {
        let mut run = Run::begin(
            Options {
                canary: canary(2, on_failure),
                ..options()
            },
            500,
            now(),
        );
        assert_eq!(run.step(now()), Step::Take { count: 10 });
        run.took(10, all(10), after(1));
        assert_eq!(run.step(after(1)), Step::Watch { until: after(61) });
        run
    };
    let outcomes = |succeeded, died| Outcomes { succeeded, died };
    for (on_failure, seen, at, expected) in [
        (
            OnFailure::Stop,
            outcomes(9, 1),
            2,
            Step::End(End::CanaryFailed { died: 1 }),
        ),
        (OnFailure::Stop, outcomes(10, 0), 2, Step::Take { count: 100 }),
        (
            OnFailure::Stop,
            outcomes(9, 0),
            2,
            Step::Watch { until: after(61) },
        ),
        // No news of the last one: its consumer reports none.
        (OnFailure::Stop, outcomes(0, 0), 61, Step::Take { count: 100 }),
        (
            OnFailure::Stop,
            outcomes(0, 10),
            61,
            Step::End(End::CanaryFailed { died: 10 }),
        ),
        (
            OnFailure::GoOn,
            outcomes(0, 3),
            2,
            Step::Watch { until: after(61) },
        ),
        (OnFailure::GoOn, outcomes(7, 3), 2, Step::Take { count: 100 }),
    ] {
        let mut run = with(on_failure);
        run.watched(seen, after(at));
        assert_eq!(run.step(after(at)), expected, "{on_failure:?} {seen:?}");
    }
    // Whoever dies later than that ends nothing: the run has gone on.
    let mut run = with(OnFailure::Stop);
    run.watched(outcomes(0, 0), after(61));
    run.watched(outcomes(0, 1), after(62));
    assert_eq!(run.step(after(62)), Step::Take { count: 100 });
    run.stop();
    assert_eq!(run.step(after(62)), Step::End(End::Stopped));
}

#[test]
fn a_canary_that_is_everything_is_not_watched() {
    let mut run = Run::begin(
        Options {
            canary: canary(100, OnFailure::Stop),
            ..options()
        },
        3,
        now(),
    );
    run.took(3, all(3), now());
    assert_eq!(run.step(now()), Step::End(End::Done));
}

#[test]
fn what_is_not_confirmed_is_published_again_before_anything_else() {
    let mut run = Run::begin(options(), 250, now());
    run.took(
        100,
        Batch {
            found: 100,
            sent: 60,
            refused: 5,
        },
        now(),
    );
    assert_eq!(run.step(now()), Step::Again { count: 35 });
    run.took_again(all(35), now());
    assert_eq!(
        run.counts(),
        Counts {
            sent: 95,
            refused: 5,
            unsettled: 0,
            last_sent_at: Some(now())
        }
    );
    assert_eq!(run.step(now()), Step::Take { count: 100 });
    // Taken over by somebody else, who has settled them.
    run.took(
        100,
        Batch {
            found: 100,
            sent: 0,
            refused: 0,
        },
        now(),
    );
    run.took_again(Batch::default(), now());
    assert_eq!(run.step(now()), Step::Take { count: 100 });
    run.took(100, all(3), now());
    assert_eq!(
        run.step(now()),
        Step::End(End::Done),
        "fewer were found than asked for"
    );
}

#[test]
fn a_rate_spreads_small_batches_and_makes_up_for_no_lost_time() {
    let options = Options {
        rate: NonZeroU32::new(40),
        ..options()
    };
    let mut run = Run::begin(options, 1_000, now());
    assert_eq!(run.step(now()), Step::Take { count: 10 });
    run.took(10, all(10), now());
    let until = now() + TimeDelta::milliseconds(250);
    assert_eq!(run.step(now()), Step::Wait { until });
    assert_eq!(run.step(until), Step::Take { count: 10 });
    run.took(10, all(10), after(3_600));
    assert_eq!(
        run.step(after(3_600)),
        Step::Wait {
            until: after(3_600) + TimeDelta::milliseconds(250)
        }
    );
    let slow = Options {
        rate: NonZeroU32::new(1),
        ..options
    };
    let mut run = Run::begin(slow, u64::MAX, now());
    run.took(
        1,
        Batch {
            found: u64::MAX,
            sent: u64::MAX,
            refused: u64::MAX,
        },
        now(),
    );
    run.step(now());
}
