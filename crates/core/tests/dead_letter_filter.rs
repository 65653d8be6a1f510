//! What a filter takes, refuses and means.

#![allow(clippy::unwrap_used, reason = "a test may panic, its helper functions too")]

use chrono::{DateTime, TimeDelta, Utc};
use proptest::prelude::*;
use tidegate_core::{
    dead_letter::{DeadLetterId, DeadLetterState},
    dead_letter_filter::{Filter, FilterError, Row},
    dispose::DeadReason,
    fingerprint::Fingerprint,
};

fn now() -> DateTime<Utc> {
    "2025-04-02T12:00:00Z".parse().unwrap()
}

fn filter(words: &[&str]) -> Result<Filter, FilterError> {
    Filter::parse_words(words.iter().copied(), now())
}

fn row() -> Row<'static> {
    Row {
        id: DeadLetterId::parse("0196a5e0-7f20-4f1b-ae7d-00000000000f").unwrap(),
        task_id: Some("order-1"),
        task_type: Some("order.close.timeout"),
        queue: "order.close.queue",
        reason: DeadReason::Rejected,
        fingerprint: Fingerprint::parse("00ff00ff112233445566778899aabbcc").unwrap(),
        died_at: now() - TimeDelta::hours(1),
        error: "order 1001 100% gone (订单)",
        state: DeadLetterState::Open,
    }
}

#[test]
fn every_key_decides() {
    for (word, matches) in [
        ("type=order.close.timeout", true),
        ("type=order.#", true),
        ("type=order.*.timeout", true),
        ("type=*.close", false),
        ("type=order", false),
        ("type=-", false),
        ("queue=order.close.queue", true),
        ("queue=#.queue", true),
        ("queue=other.queue", false),
        ("reason=rejected", true),
        ("reason=expired", false),
        ("fingerprint=00ff00ff", true),
        ("fingerprint=00FF00FF112233445566778899AABBCC", true),
        ("fingerprint=00ff00ff112233445566778899aabbcd", false),
        ("fingerprint=10ff00ff", false),
        ("since=1h", true),
        ("since=3599s", false),
        ("since=2025-04-02T19:00:00+08:00", true),
        ("until=1h", false),
        ("until=59m", true),
        ("until=2025-04-02T11:00:00Z", false),
        ("text=1001 100% gone", true),
        ("text=订单", true),
        ("text=Order", false),
        ("text=_", false),
        ("text=1.*gone", false),
        ("state=open", true),
        ("state=OPEN", true),
        ("state=replayed", false),
        ("id=0196A5E0-7f20-4f1b-ae7d-00000000000f", true),
        ("id=0196a5e0-7f20-4f1b-ae7d-00000000000e", false),
        ("task-id=order-1", true),
        ("task-id=order", false),
    ] {
        assert_eq!(filter(&[word]).unwrap().matches(&row()), matches, "{word}");
    }
    let nameless = Row {
        task_type: None,
        task_id: None,
        ..row()
    };
    assert!(filter(&["type=-"]).unwrap().matches(&nameless));
    assert!(!filter(&["type=#"]).unwrap().matches(&nameless));
    assert!(!filter(&["task-id=order-1"]).unwrap().matches(&nameless));
}

#[test]
fn values_of_one_key_are_alternatives_and_all_keys_must_hold() {
    for (words, matches) in [
        (&[] as &[&str], true),
        (&["reason=expired", "reason=rejected"], true),
        (&["reason=rejected", "type=-", "type=order.#"], true),
        (&["reason=rejected", "type=-"], false),
        (&["text=gone", "text=absent"], true),
        (&["since=2h", "until=30m", "state=open"], true),
    ] {
        assert_eq!(filter(words).unwrap().matches(&row()), matches, "{words:?}");
    }
    assert_eq!(
        filter(&["state=open", "state=OPEN"]).unwrap(),
        filter(&["state=open"]).unwrap()
    );
    assert_eq!(
        filter(&["reason=rejected", "state=open"])
            .unwrap()
            .conditions()
            .len(),
        2
    );
}

#[test]
fn what_is_no_filter_says_what_would_be_one() {
    for (words, says) in [
        (&["order"] as &[&str], "KEY=VALUE"),
        (&["typ=x"], "type, queue, reason"),
        (&["Type=order.#"], "type, queue, reason"),
        (&["type="], "pattern such as"),
        (&["type=#.#.#"], "at most 2"),
        (&["queue=a\0"], "U+0000"),
        (&["reason=gone"], "retries_exhausted, rejected"),
        (&["fingerprint=00ff00f"], "first 8"),
        (&["fingerprint=00ff00fg"], "first 8"),
        (&["fingerprint=00ff00ff112233445566778899aabbcc0"], "first 8"),
        (&["since=yesterday"], "age such as"),
        (&["since=1.5h"], "age such as"),
        (&["since=-1h"], "age such as"),
        (&["since=99999999999999999999d"], "age such as"),
        (&["since=4000d"], "age such as"),
        (&["since=é"], "age such as"),
        (&["until=2025-04-02T12:00:00"], "+08:00"),
        (&["since=2h", "since=3h"], "twice"),
        (&["since=1h", "until=2h"], "not before"),
        (&["text="], "1 to 256"),
        (&["text=a\0"], "\\u0000"),
        (&["state=solved"], "open, replaying"),
        (&["id=17"], "36 characters"),
        (&["task-id=a b"], "1 to 128"),
    ] {
        let error = filter(words).unwrap_err().to_string();
        assert!(error.contains(says), "{words:?}: {error}");
        assert!(!error.contains('\0') && error.len() < 400, "{error}");
    }
    let long = format!("text={}", "x".repeat(257));
    assert!(filter(&[&long]).unwrap_err().to_string().len() < 200);
    assert_eq!(filter(&vec!["reason=rejected"; 1_001]), Err(FilterError::TooMany));
}

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        r"type=([a-z]{1,5}|\*|#)(\.[a-z]{1,5}){0,3}",
        Just("type=-".to_owned()),
        r"queue=[a-z.é#*]{1,20}",
        "fingerprint=[0-9a-f]{8,32}",
        "text=[^\0]{1,40}",
        "since=[0-9]{1,3}[smhd]",
        "until=20[0-9]{2}-0[1-9]-1[0-9]T0[0-9]:00:00(\\.[0-9]{1,9})?[+-]0[0-9]:00",
        prop::sample::select(DeadReason::ALL.to_vec()).prop_map(|reason| format!("reason={reason}")),
        prop::sample::select(DeadLetterState::ALL.to_vec())
            .prop_map(|state| format!("state={}", state.as_str())),
        any::<[u8; 16]>().prop_map(|id| format!("id={}", DeadLetterId(id))),
        "task-id=[A-Za-z0-9._:-]{1,20}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// A replay that is taken over later must mean the same dead letters.
    #[test]
    fn a_filter_survives_being_written_down(words in prop::collection::vec(word(), 0..8)) {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        if let Ok(filter) = filter(&words) {
            let pairs = filter.pairs();
            let later = now() + TimeDelta::days(3);
            let again = Filter::parse(pairs.iter().map(|(key, value)| (*key, value.as_str())), later);
            prop_assert_eq!(again, Ok(filter));
        }
    }

    #[test]
    fn any_words_are_a_filter_or_a_short_error(words in prop::collection::vec(any::<String>(), 0..4), value in any::<String>(), other in word()) {
        let keys = ["type", "queue", "reason", "fingerprint", "since", "until", "text", "state", "id", "task-id"];
        let pairs = keys.map(|key| format!("{key}={value}"));
        for word in words.iter().chain(&pairs).chain([&other]) {
            match filter(&[word]) {
                Ok(filter) => {
                    filter.matches(&row());
                }
                Err(error) => prop_assert!(error.to_string().len() < 1_000),
            }
        }
    }

    #[test]
    fn another_condition_never_matches_more(words in prop::collection::vec(word(), 0..4), more in word()) {
        let key = |word: &str| word.split('=').next().unwrap().to_owned();
        prop_assume!(words.iter().all(|word| key(word) != key(&more)));
        let mut all: Vec<&str> = words.iter().map(String::as_str).collect();
        let few = filter(&all);
        all.push(&more);
        if let (Ok(few), Ok(many)) = (few, filter(&all)) {
            prop_assert!(!many.matches(&row()) || few.matches(&row()));
        }
    }
}
