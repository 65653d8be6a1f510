//! The retry policy and the one decision after an attempt.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::HashSet;
use std::time::Duration;

use chrono::{TimeZone, Utc};
use proptest::prelude::*;
use tidegate_core::dispose::{Attempt, DeadReason, Disposition, Outcome, dispose, early_by};
use tidegate_core::ladder;
use tidegate_core::policy::{PolicyError, RetryPolicy};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn outcome(v: &serde_json::Value) -> Outcome {
    let number = |key: &str| v[key].as_u64();
    match v["outcome"].as_str().unwrap() {
        "done" => Outcome::Done,
        "retry" => Outcome::Retry {
            after: number("after_ms").map(ms),
        },
        "rejected" => Outcome::Reject,
        "timed_out" => Outcome::TimedOut,
        "panicked" => Outcome::Panicked,
        "interrupted" => Outcome::Interrupted,
        "refused" => Outcome::Refused,
        "expired" => Outcome::Expired,
        "delivery_limit" => Outcome::DeliveryLimit,
        "overflowed" => Outcome::Overflowed {
            times: number("times").unwrap() as u32,
        },
        "crashed" => Outcome::Crashed {
            count: number("count").unwrap() as u32,
        },
        "unknown_task_type" => Outcome::UnknownTaskType,
        "invalid_envelope" => Outcome::InvalidEnvelope,
        "too_large" => Outcome::TooLarge,
        "contract_violation" => Outcome::ContractViolation,
        "canceled" => Outcome::Canceled,
        "canceled_in_flight" => Outcome::CanceledInFlight,
        "duplicate" => Outcome::Duplicate,
        other => panic!("{other}"),
    }
}

fn policy(v: &serde_json::Value) -> RetryPolicy {
    let number = |key: &str| v[key].as_u64().unwrap();
    RetryPolicy {
        max_retries: number("max_retries") as u32,
        max_retries_cap: number("max_retries_cap") as u32,
        initial: ms(number("initial_ms")),
        multiplier: v["multiplier"].as_f64().unwrap(),
        max: ms(number("max_ms")),
        jitter: v["jitter"].as_f64().unwrap(),
    }
}

#[test]
fn a_task_waits_for_its_time_unless_its_sender_has_seen_to_that() {
    let now = Utc.with_ymd_and_hms(2025, 4, 2, 12, 0, 0).unwrap();
    let at = |seconds: i64| Some((now + chrono::Duration::seconds(seconds)).fixed_offset());
    assert_eq!(early_by(at(90), false, now), Some(Duration::from_secs(90)));
    assert_eq!(early_by(at(90), true, now), None);
    for due in [at(0), at(-1), at(-100_000_000), None] {
        assert_eq!(early_by(due, false, now), None, "{due:?}");
    }
}

#[test]
fn vectors() {
    let text = include_str!("../../../conformance/dispose/vectors.json");
    let vectors: serde_json::Value = serde_json::from_str(text).unwrap();
    let policies = |v: &serde_json::Value| {
        let policy = policy(&vectors["policies"][v["policy"].as_str().unwrap()]);
        assert_eq!(policy.validate(), Ok(()), "{v}");
        policy
    };
    let mut seen = HashSet::new();
    for v in vectors["dispose"].as_array().unwrap() {
        let attempt = Attempt {
            number: v["attempt"].as_u64().unwrap() as u32,
            max_retries: v["max_retries"].as_u64().map(|n| n as u32),
            jitter: v["sample"].as_f64().unwrap_or(0.5),
        };
        let outcome = outcome(v);
        assert_eq!(outcome.as_str(), v["outcome"].as_str().unwrap());
        seen.insert(outcome.as_str());
        let expected = match v["expect"].as_str().unwrap() {
            "ack" => Disposition::Ack,
            "give_back" => Disposition::GiveBack,
            "put_off" => Disposition::PutOff {
                delay: ms(v["delay_ms"].as_u64().unwrap()),
            },
            "retry" => Disposition::Retry {
                delay: ms(v["delay_ms"].as_u64().unwrap()),
            },
            dead => Disposition::Dead {
                reason: DeadReason::parse(dead).expect(dead),
            },
        };
        assert_eq!(dispose(&attempt, &policies(v), outcome), expected, "{v}");
    }
    assert_eq!(seen.len(), 18, "every outcome has a vector");
    for v in vectors["backoff"].as_array().unwrap() {
        let retry = v["retry"].as_u64().unwrap() as u32;
        let got = policies(v).backoff(retry, v["sample"].as_f64().unwrap());
        assert_eq!(got, ms(v["delay_ms"].as_u64().unwrap()), "{v}");
    }
}

#[test]
fn the_standard_policy_is_valid_and_documented() {
    let standard = RetryPolicy::standard();
    assert_eq!(standard.validate(), Ok(()));
    assert_eq!(standard, RetryPolicy::default());
    let delays: Vec<_> = (1..=3).map(|n| standard.backoff(n, 0.5)).collect();
    assert_eq!(delays, [ms(1000), ms(2000), ms(4000)]);
}

#[test]
fn invalid_policies_name_the_key() {
    type Change = fn(&mut RetryPolicy);
    let table: [(Change, &str); 13] = [
        (|p| p.multiplier = 0.5, "multiplier"),
        (|p| p.multiplier = f64::NAN, "multiplier"),
        (|p| p.multiplier = f64::INFINITY, "multiplier"),
        (|p| p.jitter = -0.1, "jitter"),
        (|p| p.jitter = 1.1, "jitter"),
        (|p| p.jitter = f64::NAN, "jitter"),
        (|p| p.initial = Duration::ZERO, "initial"),
        (|p| p.initial = Duration::from_micros(999), "initial"),
        (|p| p.initial = Duration::from_secs(601), "initial"),
        (|p| p.max = ladder::MAX_DELAY + ms(1), "max"),
        (|p| p.max_retries = 1001, "max_retries"),
        (|p| p.max_retries_cap = 2, "max_retries_cap"),
        (|p| p.max_retries_cap = 1001, "max_retries_cap"),
    ];
    for (change, key) in table {
        let mut policy = RetryPolicy::standard();
        change(&mut policy);
        let error: PolicyError = policy.validate().unwrap_err();
        assert!(error.to_string().starts_with(&format!("{key} = ")), "{error}");
    }
    let longest = RetryPolicy {
        max: ladder::MAX_DELAY,
        ..RetryPolicy::standard()
    };
    assert_eq!(longest.validate(), Ok(()));
}

#[test]
fn after_a_request_to_cancel_nothing_is_tried_again() {
    let another_attempt = [
        Outcome::Retry { after: Some(ms(5)) },
        Outcome::TimedOut,
        Outcome::Panicked,
    ];
    for outcome in another_attempt {
        assert_eq!(outcome.after_cancel(), Outcome::Canceled);
    }
    // The next worker asks the ledger again before it starts what was given back.
    let others = [
        Outcome::Done,
        Outcome::Reject,
        Outcome::Interrupted,
        Outcome::Canceled,
    ];
    for outcome in others {
        assert_eq!(outcome.after_cancel(), outcome);
    }
}

#[test]
fn reasons_round_trip() {
    for reason in DeadReason::ALL {
        assert_eq!(DeadReason::parse(reason.as_str()), Some(reason));
        assert_eq!(reason.to_string(), reason.as_str());
    }
    for text in ["", "Rejected", "maxlen", "retries-exhausted"] {
        assert_eq!(DeadReason::parse(text), None, "{text:?}");
    }
}

#[test]
fn even_a_policy_nobody_validated_never_gives_zero_or_panics() {
    let wild = [0.0, -1.0, 1e308, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    for multiplier in wild {
        for jitter in wild {
            for initial in [Duration::ZERO, ms(1), Duration::MAX] {
                for max in [Duration::ZERO, ms(5), Duration::MAX] {
                    let policy = RetryPolicy {
                        initial,
                        multiplier,
                        max,
                        jitter,
                        ..RetryPolicy::standard()
                    };
                    for retry in [0, 1, 2, 63, 64, 65, 1100, u32::MAX] {
                        for sample in [0.0, 0.5, f64::NAN, 1e300] {
                            let delay = policy.backoff(retry, sample);
                            assert!(
                                delay >= ms(1) && delay <= ladder::MAX_DELAY,
                                "{policy:?} {retry} {sample}"
                            );
                        }
                    }
                }
            }
        }
    }
}

fn policies() -> impl Strategy<Value = RetryPolicy> {
    (
        0..=50u32,
        0..=50u32,
        1..=86_400_000u64,
        1.0..10.0f64,
        0..=864_000_000u64,
        0.0..=1.0f64,
    )
        .prop_map(
            |(max_retries, more, initial, multiplier, longer, jitter)| RetryPolicy {
                max_retries,
                max_retries_cap: max_retries + more,
                initial: ms(initial),
                multiplier,
                max: ms(initial + longer),
                jitter,
            },
        )
}

fn failures() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        proptest::option::of(0..=1u64 << 40).prop_map(|after| Outcome::Retry {
            after: after.map(Duration::from_millis)
        }),
        Just(Outcome::TimedOut),
        Just(Outcome::Panicked),
        Just(Outcome::Refused),
        Just(Outcome::UnknownTaskType),
    ]
}

proptest! {
    #[test]
    fn attempts_are_retries_plus_one(
        policy in policies(),
        asked in proptest::option::of(0..=100u32),
        outcomes in proptest::collection::vec(failures(), 1..8),
        interruptions in proptest::collection::vec(any::<bool>(), 1..8),
        jitter in 0.0..1.0f64,
    ) {
        prop_assert_eq!(policy.validate(), Ok(()));
        let allowed = policy.allowed_retries(asked);
        prop_assert_eq!(allowed, asked.unwrap_or(policy.max_retries).min(policy.max_retries_cap));
        let (mut number, mut failed) = (0u32, 0u32);
        loop {
            let attempt = Attempt { number, max_retries: asked, jitter };
            if interruptions[failed as usize % interruptions.len()] {
                // A shutdown costs no attempt.
                prop_assert_eq!(dispose(&attempt, &policy, Outcome::Interrupted), Disposition::GiveBack);
            }
            let outcome = outcomes[failed as usize % outcomes.len()];
            failed += 1;
            match dispose(&attempt, &policy, outcome) {
                Disposition::Retry { delay } => {
                    prop_assert!(delay >= ms(1) && delay <= ladder::MAX_DELAY);
                    if let Outcome::Retry { after: Some(after) } = outcome {
                        prop_assert!(delay >= after.min(ladder::MAX_DELAY));
                    }
                    // An attempt header of 0 is the first attempt.
                    number = number.max(1) + 1;
                }
                Disposition::Dead { reason } => {
                    let unknown = outcome == Outcome::UnknownTaskType;
                    let expected = if unknown { DeadReason::UnknownTaskType } else { DeadReason::RetriesExhausted };
                    prop_assert_eq!(reason, expected);
                    break;
                }
                other => prop_assert!(false, "{:?}", other),
            }
        }
        prop_assert_eq!(failed, allowed + 1);
    }

    #[test]
    fn backoff_is_monotone_without_jitter_and_near_it_with(
        policy in policies(), retry in 1..=2000u32, sample in 0.0..1.0f64,
    ) {
        let plain = RetryPolicy { jitter: 0.0, ..policy };
        let (this, next) = (plain.backoff(retry, sample), plain.backoff(retry + 1, sample));
        prop_assert!(this <= next && next <= policy.max && this >= policy.initial.min(policy.max));
        let jittered = policy.backoff(retry, sample).as_secs_f64();
        let (low, high) = (1.0 - policy.jitter, 1.0 + policy.jitter);
        let plain = this.as_secs_f64();
        prop_assert!(jittered >= (plain * low - 1e-6) && jittered <= (plain * high).max(0.001) + 1e-6);
    }
}
