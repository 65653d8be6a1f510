//! The vectors of `conformance/fingerprint/`: which messages fall together, which don't, and hashes that last.

#![allow(clippy::unwrap_used, reason = "a test may panic, its helper functions too")]

use std::{collections::HashSet, fs};

use proptest::prelude::*;
use serde_json::Value;
use tidegate_core::{
    dispose::DeadReason,
    fingerprint::{Fingerprint, MAX_CHARS, normalise},
};

fn vectors(list: &str) -> Vec<Value> {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../conformance/fingerprint/vectors.json"
    );
    let all: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    all[list].as_array().unwrap().clone()
}

#[test]
fn alike_messages_fall_together_and_no_others() {
    let groups = vectors("groups");
    let (mut failures, mut seen) = (Vec::new(), HashSet::new());
    for group in &groups {
        let want = group["normalised"].as_str().unwrap();
        assert!(seen.insert(want), "two groups are one: {want}");
        for message in group["messages"].as_array().unwrap() {
            let got = normalise(message.as_str().unwrap());
            if got != want {
                failures.push(format!("{message}\n   want {want}\n    got {got}"));
            }
        }
    }
    assert!(groups.len() > 70, "only {} groups", groups.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn long_messages_are_cut_between_characters() {
    for row in vectors("cut") {
        let times = row["times"].as_u64().unwrap().try_into().unwrap();
        let normalised = normalise(&row["part"].as_str().unwrap().repeat(times));
        assert_eq!(
            Some(normalised.chars().count() as u64),
            row["characters"].as_u64()
        );
        assert!(
            normalised.ends_with(row["ends"].as_str().unwrap()),
            "{normalised}"
        );
    }
}

#[test]
fn fingerprints_last() {
    let rows = vectors("fingerprints");
    let mut different = HashSet::new();
    for row in &rows {
        let reason = DeadReason::parse(row["reason"].as_str().unwrap()).unwrap();
        let text = |name: &str| row[name].as_str().unwrap();
        let got = Fingerprint::of(
            row["task_type"].as_str(),
            reason,
            text("error_kind"),
            text("message"),
        );
        assert_eq!(got.to_string(), text("fingerprint"), "{row}");
        assert_eq!(Fingerprint::parse(&text("fingerprint").to_uppercase()), Some(got));
        different.insert(got);
    }
    // The first two differ in an order's number only.
    assert_eq!(different.len(), rows.len() - 1);
    for no_fingerprint in [
        "",
        "0",
        "+0000000000000000000000000000000",
        &"g".repeat(32),
        &"é".repeat(16),
    ] {
        assert_eq!(Fingerprint::parse(no_fingerprint), None);
    }
}

#[test]
fn text_cannot_move_from_one_field_into_the_next() {
    let of = |kind: &str, message: &str| Fingerprint::of(Some("a.b"), DeadReason::Rejected, kind, message);
    assert_ne!(of("ab", "c"), of("a", "bc"));
    assert_ne!(of("a", ",1:b"), of("a,1:b", ""));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_message_gives_one_bounded_line(
        text in any::<String>(),
        near in r#"([a-f0-9]{1,4}|[.:/@\[\]"'`#,+-]|http|status| |\n\t?|µ|é|订|://|::|\x00|~/|C:\\){0,60}"#,
    ) {
        for message in [text, near] {
            let normalised = normalise(&message);
            prop_assert!(normalised.chars().count() <= MAX_CHARS);
            prop_assert!(!normalised.contains(|c: char| c.is_ascii_control()));
            prop_assert!(!normalised.starts_with(' ') && !normalised.ends_with(' ') && !normalised.contains("  "));
        }
    }

    #[test]
    fn the_number_of_an_order_changes_nothing(
        one in "[0-9]{1,20}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{11}[0-9]|[A-Z]{1,5}-?[0-9]{1,9}|[a-zA-Z0-9]{0,9}[0-9]",
        text in "[a-z ]{0,20}",
    ) {
        // What stands before must be no word that a code follows.
        let message = |id: &str| format!("{text} order {id} is closed");
        prop_assert_eq!(normalise(&message(&one)), normalise(&message("1001")));
    }
}
