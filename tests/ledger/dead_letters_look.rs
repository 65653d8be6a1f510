//! Looking at dead letters: groups, pages, one by the beginning of its id, its deaths.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, TimeDelta, Utc};
use tidegate::store::dead_letters::{
    groups::{Counts, GroupFilter, Groups},
    look::Cursor,
    one::Found,
};
use tidegate_core::{
    dead_letter::{DeadLetterId, DeadLetterState},
    dead_letter_filter::Filter,
    dispose::DeadReason,
};
use uuid::Uuid;

use crate::{
    letters::{Letter, archive, partition},
    support::Database,
};

fn at(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

fn filter(words: &[&str]) -> Filter {
    Filter::parse_words(words.iter().copied(), Utc::now()).unwrap()
}

async fn groups(db: &Database, words: &[&str]) -> Groups {
    let wanted = GroupFilter::new(&filter(words)).unwrap();
    db.store.dead_letters().groups(&wanted, 100).await.unwrap()
}

/// Over three days: 30 closes declined with an amount each, 10 timeouts of the same type from two queues, 5 bodies of no type.
async fn filled() -> (Database, Vec<Letter>) {
    let db = Database::create().await;
    let start = at("2026-03-01T23:00:00Z");
    let mut letters = Vec::new();
    for n in 0..45_i64 {
        let mut letter = Letter::at(start + TimeDelta::hours(n));
        match n {
            0..30 => letter.error = format!("card declined, amount {n}"),
            30..40 => {
                letter.error_kind = "timeout".to_owned();
                letter.reason = DeadReason::RetriesExhausted;
                letter.queue = format!("order.close.queue{}", n % 2);
            }
            _ => {
                letter.task_type = None;
                letter.task_id = None;
                letter.reason = DeadReason::InvalidEnvelope;
            }
        }
        letters.push(letter);
    }
    archive(&db, &letters).await;
    (db, letters)
}

#[tokio::test]
async fn groups_are_by_what_dead_letters_have_in_common() {
    let (db, letters) = filled().await;
    let found = groups(&db, &[]).await;
    assert_eq!((found.total, found.open), (3, 45));
    let declined = &found.groups[0];
    assert_eq!(
        declined.counts,
        Counts {
            open: 30,
            ..Counts::default()
        }
    );
    assert_eq!((declined.of_type, declined.queues), (40, 1));
    assert_eq!(
        (declined.first_died_at, declined.last_died_at),
        (letters[0].died_at, letters[29].died_at)
    );
    assert_eq!(declined.sample, letters[29].dead_letter_id());
    assert_eq!(declined.sample_error.as_deref(), Some("card declined, amount 29"));
    assert_eq!(found.groups[1].queues, 2);
    assert_eq!(
        (found.groups[2].task_type.as_deref(), found.groups[2].of_type),
        (None, 5)
    );

    // By queue only those from there, by since from the beginning of its day.
    let of_queue = groups(&db, &["queue=order.close.queue1"]).await;
    assert_eq!(
        (of_queue.total, of_queue.open, of_queue.groups[0].of_type),
        (1, 5, 40)
    );
    let since = groups(&db, &["since=2026-03-02T12:00:00Z", "reason=rejected"]).await;
    assert_eq!((since.total, since.open), (1, 29));
    assert_eq!(groups(&db, &["type=-"]).await.open, 5);
    assert_eq!(groups(&db, &["type=nobody.#"]).await.total, 0);
    let digits = letters[0].fingerprint().to_string();
    assert_eq!(
        groups(&db, &[&format!("fingerprint={}", &digits[..8])])
            .await
            .open,
        30
    );
}

/// Whatever statements change states, the counts are those of the rows.
#[tokio::test]
async fn counts_follow_every_change() {
    let (db, _) = filled().await;
    db.execute(
        "UPDATE tidegate.dead_letters SET state = CASE WHEN queue LIKE '%1' THEN 'DISCARDED' ELSE 'REPLAYED' END, \
         replay_id = CASE WHEN queue LIKE '%1' THEN NULL ELSE gen_random_uuid() END, \
         discarded_in = CASE WHEN queue LIKE '%1' THEN 0 END WHERE reason = 'retries_exhausted'",
    )
    .await;
    db.execute(
        "DELETE FROM tidegate.dead_letters WHERE task_type IS NULL AND archived_at < '2026-03-03T17:00:00Z'",
    )
    .await;
    let found = groups(&db, &["reason=retries_exhausted"]).await;
    let counts = Counts {
        replayed: 5,
        discarded: 5,
        ..Counts::default()
    };
    assert_eq!((found.groups[0].counts, found.open), (counts, 0));
    for words in [
        &[][..],
        &["type=order.#"],
        &["type=-"],
        &["state=open"],
        &["state=replayed", "state=discarded"],
        &["queue=*.*.queue1", "state=discarded"],
    ] {
        // One more condition that all hold keeps it from being answered by the counts.
        let mut walked = words.to_vec();
        walked.push("since=2000-01-01T00:00:00Z");
        let letters = db.store.dead_letters();
        let (counted, walked) = (
            letters.count(&filter(words)).await.unwrap(),
            letters.count(&filter(&walked)).await.unwrap(),
        );
        assert_eq!(counted, walked, "{words:?}");
        assert!(counted.total() > 0, "{words:?}");
    }
}

#[tokio::test]
async fn pages_of_any_size_hold_each_once_newest_first() {
    let (db, letters) = filled().await;
    // A day without any, and one whose rows are gone, don't end a list.
    partition(&db, letters[0].day().pred_opt().unwrap()).await;
    let all: Vec<DeadLetterId> = letters.iter().rev().map(Letter::dead_letter_id).collect();
    for limit in [1, 7, 44, 45, 46, 1_000] {
        let (mut seen, mut after): (Vec<DeadLetterId>, Option<Cursor>) = (Vec::new(), None);
        loop {
            let page = db
                .store
                .dead_letters()
                .list(&filter(&["type=#", "type=-"]), after.as_ref(), limit)
                .await
                .unwrap();
            assert!(page.letters.len() <= limit as usize);
            seen.extend(page.letters.iter().map(|letter| letter.id));
            match page.next {
                // As it goes over the command line.
                Some(next) => after = Some(Cursor::parse(&next.to_string()).unwrap()),
                None => break,
            }
        }
        assert_eq!(seen, all, "limit {limit}");
    }
}

/// Those that share an instant are told apart by their ids.
#[tokio::test]
async fn a_page_goes_on_within_one_instant() {
    let db = Database::create().await;
    let letters: Vec<Letter> = (0..20).map(|_| Letter::at(at("2026-03-01T10:00:00Z"))).collect();
    archive(&db, &letters).await;
    let first = db
        .store
        .dead_letters()
        .list(&Filter::default(), None, 13)
        .await
        .unwrap();
    // What comes and goes between two pages neither hides nor doubles the rest.
    archive(&db, &[Letter::at(at("2026-03-01T10:00:01Z"))]).await;
    sqlx::query("DELETE FROM tidegate.dead_letters WHERE id = $1")
        .bind(Uuid::from_bytes(first.letters[12].id.0))
        .execute(&db.sql)
        .await
        .unwrap();
    let rest = db
        .store
        .dead_letters()
        .list(&Filter::default(), first.next.as_ref(), 100)
        .await
        .unwrap();
    let ids: BTreeSet<DeadLetterId> = first
        .letters
        .iter()
        .chain(&rest.letters)
        .map(|letter| letter.id)
        .collect();
    assert_eq!((rest.letters.len(), ids.len()), (7, 20));
}

#[tokio::test]
async fn one_is_found_by_the_beginning_of_its_id() {
    let db = Database::create().await;
    let ids = [
        "0196a5e0-7f20-7f1b-ae7d-00000000000f",
        "0196a5e0-7f20-7f1b-ae7d-000000000010",
        "0196a5e1-0000-7000-8000-000000000000",
    ];
    let letters: Vec<Letter> = ids
        .iter()
        .zip([
            "2026-03-01T10:00:00Z",
            "2026-03-02T10:00:00Z",
            "2026-03-03T10:00:00Z",
        ])
        .map(|(id, time)| Letter {
            id: id.parse().unwrap(),
            ..Letter::at(at(time))
        })
        .collect();
    archive(&db, &letters).await;
    let find = async |text: &str| {
        let (first, last) = DeadLetterId::between(text).unwrap();
        db.store.dead_letters().find(first, last).await.unwrap()
    };
    for (text, found) in [
        (ids[0], 0),
        (ids[1], 1),
        ("0196a5e1", 2),
        ("0196a5e0-7f20-7f1b-ae7d-00000000001", 1),
    ] {
        let Found::One(letter) = find(text).await else {
            panic!("{text}")
        };
        assert_eq!(letter.listed.id, letters[found].dead_letter_id());
        assert_eq!(
            (letter.body, letter.properties),
            (letters[found].body.clone(), letters[found].properties.clone())
        );
    }
    let Found::Many(many) = find("0196a5e0").await else {
        panic!()
    };
    assert_eq!(many.len(), 2);
    assert!(matches!(find("0196a5e2").await, Found::None));
}

/// A task that was replayed twice and died each time, once under another id, and its copy that nobody replayed.
#[tokio::test]
async fn all_deaths_of_a_task_are_found_from_each() {
    let db = Database::create().await;
    let mut letters: Vec<Letter> = (0..5)
        .map(|n| Letter::at(at("2026-03-01T10:00:00Z") + TimeDelta::days(n)))
        .collect();
    for (letter, task_id) in letters.iter_mut().zip(["t-1", "t-1", "t-2", "t-1", "t-9"]) {
        letter.task_id = Some(task_id.to_owned());
    }
    archive(&db, &letters).await;
    for (child, parent) in [(1, 0), (2, 1)] {
        sqlx::query("UPDATE tidegate.dead_letters SET parent_id = $2, deaths = $3 WHERE id = $1")
            .bind(letters[child].id)
            .bind(letters[parent].id)
            .bind(i32::try_from(child).unwrap() + 1)
            .execute(&db.sql)
            .await
            .unwrap();
    }
    let wanted: BTreeMap<usize, &[usize]> = [
        (0, &[0, 1, 2, 3][..]),
        (1, &[0, 1, 2, 3]),
        (2, &[0, 1, 2]),
        (3, &[0, 1, 3]),
        (4, &[4]),
    ]
    .into();
    for (of, deaths) in wanted {
        let id = letters[of].dead_letter_id();
        let Found::One(letter) = db.store.dead_letters().find(id, id).await.unwrap() else {
            panic!()
        };
        let found: Vec<DeadLetterId> = db
            .store
            .dead_letters()
            .deaths(&letter)
            .await
            .unwrap()
            .iter()
            .map(|death| death.id)
            .collect();
        let deaths: Vec<DeadLetterId> = deaths.iter().map(|n| letters[*n].dead_letter_id()).collect();
        assert_eq!(found, deaths, "from {of}");
    }
    // A circle, which only a hand could make, ends.
    sqlx::query("UPDATE tidegate.dead_letters SET parent_id = $2 WHERE id = $1")
        .bind(letters[0].id)
        .bind(letters[2].id)
        .execute(&db.sql)
        .await
        .unwrap();
    let id = letters[2].dead_letter_id();
    let Found::One(letter) = db.store.dead_letters().find(id, id).await.unwrap() else {
        panic!()
    };
    assert_eq!(db.store.dead_letters().deaths(&letter).await.unwrap().len(), 3);
    assert_eq!(letter.listed.state, DeadLetterState::Open);
}
