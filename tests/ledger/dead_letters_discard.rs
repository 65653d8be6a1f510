//! Discarding: only what is open, told of in the same transaction, and once whoever is at it.

use chrono::{DateTime, Utc};
use tidegate::{
    deadletter::{
        discard::{Discarded, Reason, discard},
        export, look,
    },
    store::{
        audit::{Wanted, what},
        dead_letters::groups::{Counts, GroupFilter},
    },
};
use tidegate_core::{dead_letter::DeadLetterState, dead_letter_filter::Filter};

use crate::{
    letters::{Letter, archive},
    support::Database,
};

fn at(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

fn filter(words: &[&str]) -> Filter {
    Filter::parse_words(words.iter().copied(), Utc::now()).unwrap()
}

fn reason() -> Reason {
    Reason::new("ann", "orders were refunded").unwrap()
}

async fn counts(db: &Database) -> Counts {
    db.store.dead_letters().count(&Filter::default()).await.unwrap()
}

/// Six over two days: four open, one replayed, one claimed.
async fn filled() -> (Database, Vec<Letter>) {
    let db = Database::create().await;
    let mut letters: Vec<Letter> = (0..6)
        .map(|n| {
            Letter::at(at(if n % 2 == 0 {
                "2026-03-01T10:00:00Z"
            } else {
                "2026-03-02T10:00:00Z"
            }))
        })
        .collect();
    letters[4].state = DeadLetterState::Replayed;
    letters[5].state = DeadLetterState::Replaying;
    archive(&db, &letters).await;
    (db, letters)
}

#[tokio::test]
async fn by_filter_what_is_open_goes_and_one_row_tells_of_each_batch() {
    let (db, letters) = filled().await;
    let done = discard(
        &db.store,
        &filter(&["type=order.#", "text=card declined"]),
        &reason(),
        |_| {},
    )
    .await
    .unwrap();
    assert_eq!(
        done,
        Discarded {
            discarded: 4,
            not_open: 2
        }
    );
    assert_eq!(
        counts(&db).await,
        Counts {
            replaying: 1,
            replayed: 1,
            discarded: 4,
            ..Counts::default()
        }
    );
    let told = db
        .store
        .audit()
        .list(
            &Wanted {
                full: true,
                ..Wanted::default()
            },
            None,
            10,
        )
        .await
        .unwrap();
    // A batch is of one day.
    assert_eq!(told.len(), 2);
    for row in &told {
        assert_eq!(
            (row.who.as_str(), row.what.as_str(), row.why.as_str()),
            ("ann", what::DISCARD, "orders were refunded")
        );
        assert_eq!(row.subject, "type=order.# text=\"card declined\"");
        assert_eq!(row.before.as_deref(), Some(&b"2 open"[..]));
    }
    // Each says which row tells of it.
    let linked: i64 = db
        .one("SELECT count(*) FROM tidegate.dead_letters d JOIN tidegate.audit_log a ON a.id = d.discarded_in WHERE d.state = 'DISCARDED'")
        .await;
    assert_eq!(linked, 4);
    let again = discard(&db.store, &filter(&["type=order.#"]), &reason(), |_| {})
        .await
        .unwrap();
    assert_eq!(
        again,
        Discarded {
            discarded: 0,
            not_open: 6
        }
    );
    assert_eq!(letters.len(), 6);
}

#[tokio::test]
async fn by_id_a_row_tells_of_each() {
    let (db, letters) = filled().await;
    let words: Vec<String> = [0, 1, 4]
        .iter()
        .map(|n: &usize| format!("id={}", letters[*n].dead_letter_id()))
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = discard(&db.store, &filter(&words), &reason(), |_| {})
        .await
        .unwrap();
    assert_eq!(
        done,
        Discarded {
            discarded: 2,
            not_open: 1
        }
    );
    for n in [0, 1] {
        let wanted = Wanted {
            subject: Some(letters[n].dead_letter_id().to_string()),
            ..Wanted::default()
        };
        let told = db.store.audit().list(&wanted, None, 10).await.unwrap();
        assert_eq!(told.len(), 1);
        let linked: Option<i64> =
            sqlx::query_scalar("SELECT discarded_in FROM tidegate.dead_letters WHERE id = $1")
                .bind(letters[n].id)
                .fetch_one(&db.sql)
                .await
                .unwrap();
        assert_eq!(linked, Some(told[0].id));
    }
}

/// If the audit log takes no row, nothing is discarded.
#[tokio::test]
async fn what_can_not_be_told_is_not_done() {
    let (db, letters) = filled().await;
    db.execute("ALTER TABLE tidegate.audit_log ADD CONSTRAINT closed CHECK (who <> 'ann')")
        .await;
    let id = format!("id={}", letters[0].dead_letter_id());
    for words in [&["type=#"][..], &[id.as_str()]] {
        assert!(
            discard(&db.store, &filter(words), &reason(), |_| {})
                .await
                .is_err()
        );
        assert_eq!(counts(&db).await.discarded, 0);
    }
}

/// Two who discard the same at once, beside one who claims: each dead letter is one's, and each is told of once.
#[tokio::test]
async fn of_several_at_once_one_has_each() {
    let db = Database::create().await;
    let letters: Vec<Letter> = (0..1_000)
        .map(|_| Letter::at(at("2026-03-01T10:00:00Z")))
        .collect();
    archive(&db, &letters).await;
    let (one, two) = (db.another_store(), db.another_store());
    let (all, reason) = (filter(&["state=open"]), reason());
    let claim = sqlx::query(
        "UPDATE tidegate.dead_letters SET state = 'REPLAYING', replay_id = gen_random_uuid() WHERE (day, id) IN \
         (SELECT day, id FROM tidegate.dead_letters WHERE state = 'OPEN' ORDER BY archived_at, id LIMIT 300 FOR UPDATE SKIP LOCKED)",
    );
    let (claimed, one, two) = tokio::join!(
        claim.execute(&db.sql),
        discard(&one, &all, &reason, |_| {}),
        discard(&two, &all, &reason, |_| {})
    );
    let (claimed, one, two) = (claimed.unwrap().rows_affected(), one.unwrap(), two.unwrap());
    assert_eq!(claimed + one.discarded + two.discarded, 1_000);
    let found = counts(&db).await;
    assert_eq!(
        (found.open, found.discarded),
        (0, i64::try_from(one.discarded + two.discarded).unwrap())
    );
    let told: i64 = db
        .one("SELECT sum(split_part(convert_from(after, 'UTF8'), ' ', 1)::int) FROM tidegate.audit_log")
        .await;
    assert_eq!(told, found.discarded);
}

/// The rights that docs/dead-letters.md names for who looks and discards, and no others.
#[tokio::test]
async fn a_role_with_the_documented_rights_looks_and_discards() {
    let (db, letters) = filled().await;
    let role = format!("operator_{}", uuid::Uuid::now_v7().simple());
    db.run(&format!(
        "CREATE ROLE {role}; GRANT USAGE ON SCHEMA tidegate TO {role}; \
         GRANT SELECT ON tidegate.dead_letters, tidegate.dead_letter_messages, tidegate.dead_letter_counts, tidegate.replays, tidegate.audit_log TO {role}"
    ))
    .await;
    let theirs = db.store_as(&role);
    let id = letters[4].dead_letter_id().to_string();
    let letter = look::one(&theirs, &id).await.unwrap();
    look::story(&theirs, letter).await.unwrap();
    theirs
        .dead_letters()
        .groups(&GroupFilter::default(), 10)
        .await
        .unwrap();
    theirs
        .dead_letters()
        .list(&Filter::default(), None, 10)
        .await
        .unwrap();
    export::export(&theirs, "2026-03-01".parse().unwrap(), false, Vec::new())
        .await
        .unwrap();
    assert!(
        discard(&theirs, &filter(&["type=#"]), &reason(), |_| {})
            .await
            .is_err()
    );
    db.run(&format!(
        "GRANT UPDATE ON tidegate.dead_letters TO {role}; GRANT INSERT ON tidegate.audit_log TO {role}"
    ))
    .await;
    let done = discard(&theirs, &filter(&["type=#"]), &reason(), |_| {})
        .await
        .unwrap();
    assert_eq!(done.discarded, 4);
    db.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}
