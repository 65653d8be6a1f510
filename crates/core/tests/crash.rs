//! What becomes of a task that worker processes died with.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use tidegate_core::crash::{FORGIVEN, Returns, Verdict, judge};

fn returns(v: &serde_json::Value) -> Returns {
    match v.as_u64() {
        Some(n) => Returns::Counted(n.try_into().unwrap()),
        None => {
            assert_eq!(v, "uncounted");
            Returns::Uncounted
        }
    }
}

#[test]
fn vectors() {
    let text = include_str!("../../../conformance/dispose/vectors.json");
    let vectors: serde_json::Value = serde_json::from_str(text).unwrap();
    for v in vectors["crash"].as_array().unwrap() {
        let deaths = v["deaths"].as_u64().map(|n| u32::try_from(n).unwrap());
        let expected = match (v["expect"].as_str().unwrap(), deaths) {
            ("start", None) => Verdict::Start,
            ("suspect", Some(deaths)) => Verdict::Suspect { deaths },
            ("alone", Some(deaths)) => Verdict::Alone { deaths },
            ("dead", Some(deaths)) => Verdict::Dead { deaths },
            other => panic!("{other:?}"),
        };
        let allowed = u32::try_from(v["allowed"].as_u64().unwrap()).unwrap();
        assert_eq!(
            judge(v["header"].as_i64(), returns(&v["returns"]), allowed),
            expected,
            "{v}"
        );
    }
}

/// Starts of a task that kills its process each time, where the broker also takes it back unseen `unseen[n]` times
/// around the n-th look at it; and what the dead letter says.
fn starts_of_a_killer(allowed: u32, counts: bool, unseen: &[u32]) -> (u32, u32) {
    let (mut header, mut returned, mut starts) = (None, 0_u32, 0);
    for look in 0.. {
        returned += unseen.get(look).copied().unwrap_or(0);
        let returns = if counts || returned == 0 {
            Returns::Counted(returned)
        } else {
            Returns::Uncounted
        };
        match judge(header, returns, allowed) {
            Verdict::Start | Verdict::Alone { .. } => {
                starts += 1;
                returned += 1;
            }
            Verdict::Suspect { deaths } => (header, returned) = (Some(i64::from(deaths)), 0),
            Verdict::Dead { deaths } => return (starts, deaths),
        }
    }
    unreachable!()
}

proptest! {
    #[test]
    fn a_killer_ends_after_its_limit(allowed in 0..=1000u32, counts: bool) {
        let bound = allowed.max(FORGIVEN) + 1;
        prop_assert_eq!(starts_of_a_killer(allowed, counts, &[]), (bound, bound));
    }

    #[test]
    fn returns_unseen_never_give_a_killer_more_starts(
        allowed in 0..=20u32, counts: bool, unseen in proptest::collection::vec(0..5u32, 0..60),
    ) {
        prop_assert!(starts_of_a_killer(allowed, counts, &unseen).0 <= allowed.max(FORGIVEN) + 1);
    }

    #[test]
    fn returns_alone_end_no_task(returned: u32, allowed in 0..=1000u32, header in proptest::option::of(i64::MIN..2)) {
        for returns in [Returns::Counted(returned), Returns::Uncounted] {
            let verdict = judge(header, returns, allowed);
            let ends = matches!(verdict, Verdict::Dead { .. });
            prop_assert!(!ends, "{verdict:?}");
        }
    }

    #[test]
    fn no_header_ends_a_task_that_was_not_taken_back(header: i64, allowed in 0..=1000u32) {
        let verdict = judge(Some(header), Returns::Counted(0), allowed);
        let runs = matches!(verdict, Verdict::Start | Verdict::Alone { .. });
        prop_assert!(runs, "{verdict:?}");
    }
}
