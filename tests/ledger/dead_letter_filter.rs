//! A filter means the same in SQL as in the core, whatever names, errors and times rows and filters hold.

use std::collections::BTreeSet;

use chrono::{DateTime, TimeDelta, Utc};
use proptest::{
    prelude::*,
    strategy::{Strategy, ValueTree},
    test_runner::TestRunner,
};
use tidegate_core::{
    dead_letter::{DeadLetterId, DeadLetterState},
    dead_letter_filter::{Filter, Row},
    dispose::DeadReason,
};

use crate::{
    letters::{Letter, archive},
    support::Database,
};

const ROWS: usize = 300;
const FILTERS: usize = 600;

fn start() -> DateTime<Utc> {
    "2026-03-01T23:59:00Z".parse().unwrap()
}

/// Names as rows have them: words of few kinds, so that patterns meet them.
fn name() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "a", "b", "order", "Order", "close", "", "订单", "x(y)|z", "a*", "*", "#", "\\d", "o\nr", "order/",
        "order-", "[^.]",
    ]);
    prop::collection::vec(word, 0..5).prop_map(|words| words.join("."))
}

fn error() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        "timeout", "Timeout", " ", "%", "_", "\\", "'", "订单", "é", "e\u{301}", "\u{202e}",
    ]);
    prop::collection::vec(part, 0..6).prop_map(|parts| parts.concat())
}

/// Microseconds over three midnights; the same few come again.
fn instant() -> impl Strategy<Value = DateTime<Utc>> {
    (0..3_i64, 0..240_i64, 0..3_i64).prop_map(|(days, seconds, micros)| {
        start() + TimeDelta::days(days) + TimeDelta::seconds(seconds) + TimeDelta::microseconds(micros)
    })
}

prop_compose! {
    fn letter()(
        archived_at in instant(),
        waited in 0..200_i64,
        task_id in prop::option::of("t[0-3]"),
        task_type in prop::option::of(name()),
        queue in name(),
        reason in prop::sample::select(DeadReason::ALL.to_vec()),
        error_kind in "[ab]",
        error in error(),
        state in prop::sample::select(DeadLetterState::ALL.to_vec()),
    ) -> Letter {
        Letter {
            died_at: archived_at - TimeDelta::seconds(waited),
            task_id, task_type, queue, reason, error_kind, error, state,
            ..Letter::at(archived_at)
        }
    }
}

/// One condition, made to fit some of `rows` where chance would not.
fn pair(rows: Vec<Letter>) -> impl Strategy<Value = (&'static str, String)> {
    let some = prop::sample::select(rows);
    let time = instant().prop_flat_map(|time| (Just(time), 0..1_500_i64));
    prop_oneof![
        3 => name().prop_map(|name| ("type", name)),
        1 => Just(("type", "-".to_owned())),
        3 => name().prop_map(|name| ("queue", name)),
        1 => some.clone().prop_map(|row| ("type", row.task_type.unwrap_or_default())),
        1 => some.clone().prop_map(|row| ("queue", row.queue)),
        2 => prop::sample::select(DeadReason::ALL.to_vec()).prop_map(|reason| ("reason", reason.to_string())),
        2 => (some.clone(), 8..33_usize)
            .prop_map(|(row, digits)| ("fingerprint", row.fingerprint().to_string()[..digits].to_owned())),
        2 => (time, any::<bool>()).prop_map(|((time, nanos), since)| {
            let time = time + TimeDelta::nanoseconds(nanos);
            (if since { "since" } else { "until" }, time.to_rfc3339())
        }),
        2 => error().prop_map(|text| ("text", text)),
        2 => prop::sample::select(DeadLetterState::ALL.to_vec()).prop_map(|state| ("state", state.as_str().to_owned())),
        1 => some.prop_map(|row| ("id", row.dead_letter_id().to_string())),
        1 => "t[0-4]".prop_map(|id| ("task-id", id)),
    ]
}

fn row(letter: &Letter) -> Row<'_> {
    Row {
        id: letter.dead_letter_id(),
        task_id: letter.task_id.as_deref(),
        task_type: letter.task_type.as_deref(),
        queue: &letter.queue,
        reason: letter.reason,
        fingerprint: letter.fingerprint(),
        died_at: letter.died_at,
        error: &letter.error,
        state: letter.state,
    }
}

#[tokio::test]
async fn sql_and_predicate_agree() {
    let db = Database::create().await;
    let mut runner = TestRunner::deterministic();
    let mut some = |_| letter().new_tree(&mut runner).unwrap().current();
    let rows: Vec<Letter> = (0..ROWS).map(&mut some).collect();
    archive(&db, &rows).await;

    let pairs = prop::collection::vec(pair(rows.clone()), 0..6);
    let (mut told, mut apart) = (0, 0);
    while told < FILTERS {
        let pairs = pairs.new_tree(&mut runner).unwrap().current();
        let words = pairs.iter().map(|(key, value)| (*key, value.as_str()));
        // E.g. a pattern of too many `#`, or an empty range.
        let Ok(filter) = Filter::parse(words, Utc::now()) else {
            continue;
        };
        told += 1;
        let meant: BTreeSet<DeadLetterId> = rows
            .iter()
            .filter(|letter| filter.matches(&row(letter)))
            .map(Letter::dead_letter_id)
            .collect();
        let page = db.store.dead_letters().list(&filter, None, 1_000).await;
        let found: BTreeSet<DeadLetterId> = page.unwrap().letters.iter().map(|letter| letter.id).collect();
        assert_eq!(found, meant, "{pairs:?}");
        apart += usize::from(!meant.is_empty() && meant.len() < ROWS);
    }
    // Filters that mean none or all would agree by chance.
    assert!(apart > FILTERS / 4, "{apart} of {FILTERS} tell rows apart");
}
