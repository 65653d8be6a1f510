//! The days of the archive: made ahead and on demand by any number at once, dropped when they are old enough, with a number of what
//! nobody had dealt with; by a role that owns no table.

use std::time::Duration;

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};
use tidegate::{
    deadletter::keeping::{KeepingSettings, keep},
    store::{StoreError, dead_letters::days::Dropped},
};
use tidegate_core::dead_letter::DeadLetterState;

use crate::{
    dead_letters::letter,
    guards::grants,
    letters::{Letter, archive, partition},
    support::{Database, eventually},
};

const DAY: Duration = Duration::from_secs(24 * 3600);

async fn days(db: &Database) -> Vec<NaiveDate> {
    sqlx::query_scalar("SELECT since FROM tidegate.dead_letters_days() ORDER BY since")
        .fetch_all(&db.sql)
        .await
        .unwrap()
}

async fn today(db: &Database) -> NaiveDate {
    db.one::<DateTime<Utc>>("SELECT now()").await.date_naive()
}

#[tokio::test(flavor = "multi_thread")]
async fn today_and_tomorrow_are_made_once_by_any_number() {
    let db = Database::create().await;
    let today = today(&db).await;
    let stores: Vec<_> = (0..6).map(|_| db.another_store()).collect();
    let make = stores.iter().map(|store| async {
        for _ in 0..3 {
            store.dead_letters().make_days().await.unwrap();
        }
        store.dead_letters().archive(&[&letter()]).await.unwrap();
    });
    futures::future::join_all(make).await;
    assert_eq!(days(&db).await, [today, today + TimeDelta::days(1)]);
}

#[tokio::test]
async fn a_day_made_by_hand_is_as_good() {
    let db = Database::create().await;
    let today = today(&db).await;
    db.run(&format!(
        "CREATE TABLE tidegate.by_hand PARTITION OF tidegate.dead_letters FOR VALUES FROM ('{}') TO ('{}')",
        today - TimeDelta::days(3),
        today + TimeDelta::days(1)
    ))
    .await;
    db.store.dead_letters().make_days().await.unwrap();
    db.store.dead_letters().archive(&[&letter()]).await.unwrap();
    assert_eq!(
        days(&db).await,
        [today - TimeDelta::days(3), today + TimeDelta::days(1)]
    );
}

/// Neither who reads for long nor who writes is waited for, or waits.
#[tokio::test]
async fn making_a_day_waits_for_no_reader_and_no_writer() {
    let db = Database::create().await;
    partition(&db, today(&db).await - TimeDelta::days(1)).await;
    let mut reading = db.sql.begin().await.unwrap();
    sqlx::query("SELECT count(*) FROM tidegate.dead_letters")
        .execute(&mut *reading)
        .await
        .unwrap();
    let mut writing = db.sql.begin().await.unwrap();
    sqlx::query("DELETE FROM tidegate.dead_letters")
        .execute(&mut *writing)
        .await
        .unwrap();
    tokio::time::timeout(Duration::from_secs(4), db.store.dead_letters().make_days())
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn days_that_were_kept_long_enough_go_with_their_counts() {
    let db = Database::create().await;
    let now: DateTime<Utc> = db.one("SELECT now()").await;
    let midnight = now.date_naive().and_time(chrono::NaiveTime::MIN).and_utc();
    let mut letters = Vec::new();
    // Each the last one of its day.
    for back in [0, 1, 29, 30, 31, 400] {
        let at =
            (midnight + TimeDelta::days(1) - TimeDelta::days(back) - TimeDelta::microseconds(1)).min(now);
        letters.push(Letter::at(at));
        letters.push(Letter {
            state: DeadLetterState::Discarded,
            ..Letter::at(at)
        });
    }
    archive(&db, &letters).await;
    let settings = |days: Option<u32>| KeepingSettings {
        keep: days.map(|days| DAY * days),
        ..KeepingSettings::default()
    };
    keep(&db.store, &settings(None)).await.unwrap();
    assert_eq!(days(&db).await.len(), 7, "never; and tomorrow was made");
    let gone = db.store.dead_letters().drop_day(30 * DAY).await.unwrap();
    let oldest = (now - TimeDelta::days(400)).date_naive();
    assert_eq!(
        gone,
        Some(Dropped {
            since: oldest,
            until: oldest + TimeDelta::days(1),
            letters: 2,
            open: 1
        })
    );
    keep(&db.store, &settings(Some(30))).await.unwrap();
    let left: Vec<i64> = days(&db)
        .await
        .into_iter()
        .map(|day| (now.date_naive() - day).num_days())
        .collect();
    // The whole of the day thirty days ago is not older than thirty days.
    assert_eq!(left, [30, 29, 1, 0, -1]);
    assert_eq!(
        db.one::<i64>("SELECT count(DISTINCT day) FROM tidegate.dead_letter_counts")
            .await,
        4
    );
    // Not even with nothing kept is today dropped.
    keep(&db.store, &settings(Some(0))).await.unwrap();
    assert_eq!(days(&db).await.len(), 2);
    // Messages go with what is known of them.
    let messages = "SELECT count(*) FROM tidegate.dead_letters_days('tidegate.dead_letter_messages')";
    assert_eq!(db.one::<i64>(messages).await, 2);
    let alone = "SELECT count(*) FROM tidegate.dead_letter_messages m WHERE NOT EXISTS \
                 (SELECT FROM tidegate.dead_letters d WHERE d.day = m.day AND d.id = m.id)";
    assert_eq!(db.one::<i64>(alone).await, 0);
}

#[tokio::test]
async fn what_a_replay_has_claimed_stays_until_the_run_is_over() {
    let db = Database::create().await;
    let old = Utc::now() - TimeDelta::days(50);
    let claimed = Letter {
        state: DeadLetterState::Replaying,
        ..Letter::at(old)
    };
    let next = Letter::at(old + TimeDelta::days(1));
    archive(&db, &[claimed, next]).await;
    let letters = db.store.dead_letters();
    let gone = letters.drop_day(30 * DAY).await.unwrap().unwrap();
    assert_eq!(
        gone.since,
        (old + TimeDelta::days(1)).date_naive(),
        "it holds up no other"
    );
    assert_eq!(letters.drop_day(30 * DAY).await.unwrap(), None);
    db.execute("UPDATE tidegate.dead_letters SET state = 'REPLAYED'")
        .await;
    assert!(letters.drop_day(30 * DAY).await.unwrap().is_some());
}

/// Somebody exports for an hour: the archive goes on, and the day is dropped afterwards.
#[tokio::test]
async fn dropping_a_day_gives_up_quickly_where_somebody_reads() {
    let db = Database::create().await;
    archive(&db, &[Letter::at(Utc::now() - TimeDelta::days(50))]).await;
    let letters = db.store.dead_letters();
    let mut reading = db.sql.begin().await.unwrap();
    sqlx::query("SELECT count(*) FROM tidegate.dead_letters")
        .execute(&mut *reading)
        .await
        .unwrap();
    let began = std::time::Instant::now();
    let busy = letters.drop_day(30 * DAY).await.unwrap_err();
    assert!(matches!(busy, StoreError::Busy(_)), "{busy:?}");
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    // What waited for it goes on, and so does the loop.
    letters.archive(&[&letter()]).await.unwrap();
    let settings = KeepingSettings {
        keep: Some(30 * DAY),
        ..KeepingSettings::default()
    };
    keep(&db.store, &settings).await.unwrap();
    assert_eq!(days(&db).await.len(), 3, "not this time");
    reading.rollback().await.unwrap();
    eventually(Duration::from_secs(10), "the day to be dropped", async || {
        keep(&db.store, &settings).await.unwrap();
        days(&db).await.len() == 2
    })
    .await;
}

/// The rights that docs/operations.md names, and no others.
#[tokio::test]
async fn an_archivist_owns_no_table() {
    let db = Database::create().await;
    let role = format!("archivist_{}", uuid::Uuid::now_v7().simple());
    db.run(&format!("CREATE ROLE {role}; {}", grants(&role))).await;
    archive(&db, &[Letter::at(Utc::now() - TimeDelta::days(50))]).await;
    let theirs = db.store_as(&role);
    let settings = KeepingSettings {
        keep: Some(30 * DAY),
        ..KeepingSettings::default()
    };
    keep(&theirs, &settings).await.unwrap();
    theirs.dead_letters().archive(&[&letter()]).await.unwrap();
    theirs.dead_letters().open_by_type().await.unwrap();
    assert_eq!(days(&db).await.len(), 2);
    let outsider = format!("{role}_outsider");
    db.run(&format!(
        "CREATE ROLE {outsider}; GRANT USAGE ON SCHEMA tidegate TO {outsider}"
    ))
    .await;
    let refused = db
        .store_as(&outsider)
        .dead_letters()
        .make_days()
        .await
        .unwrap_err();
    assert!(matches!(refused, StoreError::Forbidden(_)), "{refused:?}");
    for role in [&role, &outsider] {
        db.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
    }
}
