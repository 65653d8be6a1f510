//! Which dead letters a run may take, and how a second death is recognised.

#![allow(clippy::unwrap_used, reason = "a test may panic, its helper functions too")]

use chrono::{DateTime, TimeDelta, Utc};
use tidegate_core::{
    dead_letter::{DeadLetterId, DeadLetterState},
    replay::link::{Candidate, Claim, Cut, Lineage, Parent, ReplayId, claim, lineage, named_parent},
};

fn after(seconds: i64) -> DateTime<Utc> {
    now() + TimeDelta::seconds(seconds)
}

fn now() -> DateTime<Utc> {
    "2025-04-02T12:00:00Z".parse().unwrap()
}

#[test]
fn a_run_takes_what_was_dead_before_it_and_never_its_own() {
    let (ours, others) = (ReplayId([1; 16]), ReplayId([2; 16]));
    let cut = Cut {
        run: ours,
        began_at: now(),
    };
    let (open, replaying, replayed) = (
        DeadLetterState::Open,
        DeadLetterState::Replaying,
        DeadLetterState::Replayed,
    );
    for (state, taken_by, archived, sent_by, expected) in [
        (open, None, -1, None, Claim::Take),
        (open, None, 0, None, Claim::Later),
        (open, None, 1, Some(ours), Claim::Later),
        // Whatever the clocks say.
        (open, None, -1, Some(ours), Claim::Later),
        (open, None, -1, Some(others), Claim::Take),
        (replaying, Some(ours), -1, None, Claim::Again),
        (replaying, Some(others), -1, None, Claim::Lost),
        (replayed, Some(ours), -1, None, Claim::Sent),
        (replayed, Some(others), -1, None, Claim::Lost),
        (DeadLetterState::Discarded, None, -1, None, Claim::Lost),
        (DeadLetterState::Discarded, Some(ours), -1, None, Claim::Lost),
    ] {
        let candidate = Candidate {
            state,
            taken_by,
            archived_at: after(archived),
            sent_by,
        };
        assert_eq!(claim(&candidate, &cut), expected, "{candidate:?}");
    }
}

#[test]
fn a_second_death_is_recognised_by_its_link_and_a_forged_link_is_not() {
    let id = DeadLetterId([7; 16]);
    let header = id.to_string();
    let parent = Parent {
        id,
        state: DeadLetterState::Replayed,
        deaths: 1,
        sent_task_id: Some("t-1"),
    };
    let again = |deaths| Lineage::Again { parent: id, deaths };
    for (header, parent, task_id, expected) in [
        (None, None, Some("t-1"), Lineage::First),
        (None, Some(parent), Some("t-1"), Lineage::First),
        (Some(&*header), Some(parent), Some("t-1"), again(2)),
        (
            Some(&header),
            Some(Parent { deaths: 4, ..parent }),
            Some("t-1"),
            again(5),
        ),
        (
            Some(&header),
            Some(Parent {
                deaths: u32::MAX,
                ..parent
            }),
            Some("t-1"),
            again(u32::MAX),
        ),
        (
            Some(&header),
            Some(Parent { deaths: 0, ..parent }),
            Some("t-1"),
            again(2),
        ),
        (
            Some(&header),
            Some(Parent {
                state: DeadLetterState::Replaying,
                ..parent
            }),
            Some("t-1"),
            again(2),
        ),
        (
            Some(&header),
            Some(Parent {
                sent_task_id: None,
                ..parent
            }),
            None,
            again(2),
        ),
        (Some(&header), None, Some("t-1"), Lineage::Unproven),
        (Some(&header), Some(parent), Some("t-2"), Lineage::Unproven),
        (Some(&header), Some(parent), None, Lineage::Unproven),
        (
            Some(&header),
            Some(Parent {
                state: DeadLetterState::Open,
                ..parent
            }),
            Some("t-1"),
            Lineage::Unproven,
        ),
        (
            Some(&header),
            Some(Parent {
                state: DeadLetterState::Discarded,
                ..parent
            }),
            Some("t-1"),
            Lineage::Unproven,
        ),
        (Some("x"), Some(parent), Some("t-1"), Lineage::Unproven),
    ] {
        let found = lineage(header, parent.as_ref(), task_id);
        assert_eq!(found, expected, "{header:?} {parent:?} {task_id:?}");
        assert!(found.deaths() >= 1);
    }
    assert_eq!(
        (
            named_parent(Some(&header)),
            named_parent(Some("x")),
            named_parent(None)
        ),
        (Some(id), None, None)
    );
}
