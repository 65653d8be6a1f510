//! Dead letters come into the archive each once, byte for byte, on the day of their archiving; what is refused is told apart from
//! what can't be done now.

use std::collections::HashSet;

use bytes::Bytes;
use chrono::{DateTime, TimeDelta, Utc};
use sqlx::Row;
use tidegate::store::{
    StoreError,
    dead_letters::archive::{ArchiveError, NewDeadLetter},
};
use tidegate_core::{dead_letter::DeadLetterId, dispose::DeadReason, fingerprint::Fingerprint, task::TaskId};
use uuid::Uuid;

use crate::{
    letters::{self, Letter},
    support::Database,
};

/// A dead letter that died now.
pub(crate) fn letter() -> NewDeadLetter {
    letter_of(Utc::now())
}

pub(crate) fn letter_of(died_at: DateTime<Utc>) -> NewDeadLetter {
    let millis = u64::try_from(died_at.timestamp_millis()).unwrap();
    let nanos = u32::try_from(millis % 1_000).unwrap() * 1_000_000;
    let id = Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, millis / 1_000, nanos));
    let task_id = format!("t-{}", id.simple());
    NewDeadLetter {
        id: DeadLetterId(id.into_bytes()),
        died_at,
        first_failed_at: Some(died_at - TimeDelta::minutes(1)),
        task_id: Some(task_id.clone()),
        task_type: Some("order.close".to_owned()),
        queue: "order.close.queue".to_owned(),
        routing_key: Some("order.close.timeout".to_owned()),
        reason: DeadReason::Rejected,
        error_kind: "declined".to_owned(),
        error: "card declined".to_owned(),
        attempts: 1,
        fingerprint: Fingerprint::of(
            Some("order.close"),
            DeadReason::Rejected,
            "declined",
            "card declined",
        ),
        body: Bytes::from(format!(r#"{{"taskId":"{task_id}"}}"#)),
        properties: r#"{"properties":{}}"#.to_owned(),
        replay_of: None,
        body_task_id: TaskId::parse(&task_id).ok(),
    }
}

fn ids(letters: &[NewDeadLetter]) -> HashSet<DeadLetterId> {
    letters.iter().map(|letter| letter.id).collect()
}

async fn archive(db: &Database, letters: &[NewDeadLetter]) -> HashSet<DeadLetterId> {
    let letters: Vec<&NewDeadLetter> = letters.iter().collect();
    db.store.dead_letters().archive(&letters).await.unwrap().new
}

async fn count(db: &Database) -> i64 {
    db.one("SELECT count(*) FROM tidegate.dead_letters").await
}

/// The first batch makes its day, if nobody has.
#[tokio::test]
async fn a_batch_is_archived_as_it_came() {
    let db = Database::create().await;
    let mut odd = letter();
    odd.body = Bytes::from_static(b"\0\xff{\"n\":1.0}\n");
    odd.first_failed_at = None;
    (odd.task_id, odd.task_type, odd.routing_key, odd.body_task_id) = (None, None, None, None);
    odd.attempts = u32::MAX;
    let mut large = letter();
    large.body = Bytes::from(vec![b'x'; 3 << 20]);
    let batch = [letter(), odd, large];
    assert_eq!(archive(&db, &batch).await, ids(&batch));
    for letter in &batch {
        let row = sqlx::query(
            "SELECT *, day = (archived_at AT TIME ZONE 'UTC')::date AS today \
             FROM tidegate.dead_letters JOIN tidegate.dead_letter_messages USING (day, id) WHERE id = $1",
        )
        .bind(Uuid::from_bytes(letter.id.0))
        .fetch_one(&db.sql)
        .await
        .unwrap();
        assert_eq!(row.get::<Vec<u8>, _>("body"), letter.body);
        assert_eq!(row.get::<Option<String>, _>("task_id"), letter.task_id);
        assert_eq!(row.get::<Option<String>, _>("task_type"), letter.task_type);
        assert_eq!(row.get::<Option<String>, _>("routing_key"), letter.routing_key);
        assert_eq!(row.get::<String, _>("queue"), letter.queue);
        assert_eq!(row.get::<String, _>("reason"), letter.reason.as_str());
        assert_eq!(row.get::<String, _>("error_kind"), letter.error_kind);
        assert_eq!(row.get::<String, _>("error"), letter.error);
        assert_eq!(row.get::<String, _>("properties"), letter.properties);
        assert_eq!(row.get::<Vec<u8>, _>("fingerprint"), letter.fingerprint.0);
        let attempts = i32::try_from(letter.attempts).unwrap_or(i32::MAX);
        assert_eq!(row.get::<i32, _>("attempts"), attempts);
        assert_eq!(
            row.get::<Option<DateTime<Utc>>, _>("first_failed_at").is_some(),
            letter.first_failed_at.is_some()
        );
        let (died, archived): (DateTime<Utc>, DateTime<Utc>) = (row.get("died_at"), row.get("archived_at"));
        assert!(died <= archived && (died - letter.died_at).abs() < TimeDelta::milliseconds(1));
        assert_eq!(
            (
                row.get::<String, _>("state").as_str(),
                row.get::<i32, _>("deaths")
            ),
            ("OPEN", 1)
        );
        assert!(row.get::<bool, _>("today"));
    }
}

/// As after a crash between the commit and the acknowledgement, also days later and across a retention of days.
#[tokio::test]
async fn a_second_delivery_is_no_second_row() {
    let db = Database::create().await;
    let batch = [letter(), letter()];
    archive(&db, &batch).await;
    let third = letter();
    let again = [batch[0].clone(), third.clone(), third.clone(), batch[1].clone()];
    assert_eq!(
        archive(&db, &again).await,
        ids(&[third]),
        "once, though it is twice in the batch"
    );
    assert_eq!(count(&db).await, 3);

    // Archived on an earlier day than today, and died before that.
    let now: DateTime<Utc> = db.one("SELECT now()").await;
    let old = letter_of(now - TimeDelta::days(40));
    let row = Letter {
        id: Uuid::from_bytes(old.id.0),
        died_at: old.died_at,
        ..Letter::at(now - TimeDelta::days(9))
    };
    letters::archive(&db, &[row]).await;
    assert_eq!(archive(&db, &[old]).await, HashSet::new());
    assert_eq!(count(&db).await, 4);
    assert_eq!(
        db.one::<i64>("SELECT sum(open)::bigint FROM tidegate.dead_letter_counts")
            .await,
        4
    );
}

/// Batches with the same messages at the same time, each in its own order: what an archivist holds, another one got when its
/// channel was lost. None is refused for a deadlock.
#[tokio::test(flavor = "multi_thread")]
async fn archivists_that_have_the_same_messages_archive_each_once() {
    let db = Database::create().await;
    let stores = [db.another_store(), db.another_store(), db.another_store()];
    let batches: Vec<Vec<NewDeadLetter>> = (0..20).map(|_| (0..50).map(|_| letter()).collect()).collect();
    let work = stores.iter().enumerate().map(|(n, store)| {
        let batches = &batches;
        async move {
            let mut new = 0;
            for batch in batches {
                let mut letters: Vec<&NewDeadLetter> = batch.iter().collect();
                letters.rotate_left(n * 17);
                if n == 1 {
                    letters.reverse();
                }
                new += store.dead_letters().archive(&letters).await.unwrap().new.len();
            }
            new
        }
    });
    let new: usize = futures::future::join_all(work).await.into_iter().sum();
    assert_eq!((new, count(&db).await), (1_000, 1_000));
    assert_eq!(
        db.one::<i64>("SELECT open FROM tidegate.dead_letter_counts")
            .await,
        1_000
    );
}

/// Clocks differ: nothing in the archive died after it came there.
#[tokio::test]
async fn a_death_ahead_of_the_database_is_now() {
    let db = Database::create().await;
    let ahead = letter_of(Utc::now() + TimeDelta::minutes(50));
    archive(&db, &[ahead]).await;
    assert!(
        db.one::<bool>(
            "SELECT died_at BETWEEN now() - interval '1 minute' AND archived_at FROM tidegate.dead_letters"
        )
        .await
    );
}

#[tokio::test]
async fn a_refused_row_is_told_apart_and_nothing_of_its_batch_is_there() {
    let db = Database::create().await;
    let (good, mut bad) = (letter(), letter());
    bad.error = "x".repeat(20_000);
    let failed = db.store.dead_letters().archive(&[&good, &bad]).await.unwrap_err();
    assert!(matches!(failed, ArchiveError::Row(_)), "{failed:?}");
    assert!(!failed.to_string().contains("xxx"), "no content in it: {failed}");
    assert_eq!(count(&db).await, 0);
    // A team's own rule, whatever it raises.
    db.execute(
        "CREATE FUNCTION public.no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = 'P0001'; END $$",
    )
    .await;
    db.execute("CREATE TRIGGER no BEFORE INSERT ON tidegate.dead_letters FOR EACH ROW WHEN (NEW.queue = 'no') EXECUTE FUNCTION public.no()")
        .await;
    let mut refused = letter();
    refused.queue = "no".to_owned();
    let failed = db.store.dead_letters().archive(&[&refused]).await.unwrap_err();
    assert!(matches!(failed, ArchiveError::Row(_)), "{failed:?}");
    archive(&db, &[good]).await;

    db.execute("ALTER TABLE tidegate.dead_letters RENAME TO gone")
        .await;
    let failed = db.store.dead_letters().archive(&[&letter()]).await.unwrap_err();
    assert!(
        matches!(failed, ArchiveError::Store(StoreError::SchemaMissing(_))),
        "{failed:?}"
    );
}

/// A run's message that dies again, before or after the run heard of its confirm; and a header that anybody can write.
#[tokio::test]
async fn a_second_death_knows_the_first() {
    let db = Database::create().await;
    let (first, run) = (letter(), Uuid::now_v7());
    archive(&db, std::slice::from_ref(&first)).await;
    let again = || NewDeadLetter {
        replay_of: Some(first.id.to_string()),
        body_task_id: first.body_task_id.clone(),
        ..letter()
    };
    let lineage = async |id: DeadLetterId| -> (Option<Uuid>, Option<Uuid>, i32) {
        sqlx::query_as("SELECT parent_id, sent_by, deaths FROM tidegate.dead_letters WHERE id = $1")
            .bind(Uuid::from_bytes(id.0))
            .fetch_one(&db.sql)
            .await
            .unwrap()
    };
    let claimed = |state: &'static str| {
        sqlx::query("UPDATE tidegate.dead_letters SET state = $1, replay_id = $2, sent_task_id = task_id WHERE id = $3")
            .bind(state)
            .bind(run)
            .bind(Uuid::from_bytes(first.id.0))
    };
    // Nobody has replayed it yet.
    let forged = again();
    archive(&db, std::slice::from_ref(&forged)).await;
    assert_eq!(lineage(forged.id).await, (None, None, 1));
    let parent = Some(Uuid::from_bytes(first.id.0));
    for state in ["REPLAYING", "REPLAYED"] {
        claimed(state).execute(&db.sql).await.unwrap();
        let second = again();
        let stranger = NewDeadLetter {
            body_task_id: TaskId::parse("another").ok(),
            ..again()
        };
        archive(&db, &[second.clone(), stranger.clone()]).await;
        assert_eq!(lineage(second.id).await, (parent, Some(run), 2), "{state}");
        assert_eq!(lineage(stranger.id).await, (None, None, 1), "{state}");
    }
    // The third knows the second.
    let second: Uuid = db
        .one("SELECT id FROM tidegate.dead_letters WHERE deaths = 2 LIMIT 1")
        .await;
    sqlx::query("UPDATE tidegate.dead_letters SET state = 'REPLAYED', replay_id = $1, sent_task_id = $2 WHERE id = $3")
        .bind(run)
        .bind(first.body_task_id.as_ref().map(TaskId::as_str))
        .bind(second)
        .execute(&db.sql)
        .await
        .unwrap();
    let third = NewDeadLetter {
        replay_of: Some(second.to_string()),
        ..again()
    };
    archive(&db, std::slice::from_ref(&third)).await;
    assert_eq!(lineage(third.id).await, (Some(second), Some(run), 3));
    for odd in [
        "",
        "no id",
        "00000000-0000-0000-0000-000000000000",
        "ffffffff-ffff-7fff-bfff-ffffffffffff",
    ] {
        let odd = NewDeadLetter {
            replay_of: Some(odd.to_owned()),
            ..again()
        };
        archive(&db, std::slice::from_ref(&odd)).await;
        assert_eq!(lineage(odd.id).await, (None, None, 1));
    }
}

/// Counts are what is there, whatever is done to the rows and in whatever order.
#[tokio::test]
async fn counts_follow_what_happens() {
    let db = Database::create().await;
    let agree = async |when: &str| {
        let wrong: i64 = db
            .one(
                "SELECT count(*) FROM (SELECT day, fingerprint, queue, count(*) FILTER (WHERE state = 'OPEN') AS open, \
                   count(*) FILTER (WHERE state = 'REPLAYING') AS replaying, count(*) FILTER (WHERE state = 'REPLAYED') AS replayed, \
                   count(*) FILTER (WHERE state = 'DISCARDED') AS discarded, max(died_at) AS last, min(died_at) AS first \
                 FROM tidegate.dead_letters GROUP BY day, fingerprint, queue) d \
                 FULL JOIN tidegate.dead_letter_counts c USING (day, fingerprint, queue) \
                 WHERE (d.open, d.replaying, d.replayed, d.discarded) IS DISTINCT FROM (c.open, c.replaying, c.replayed, c.discarded) \
                   OR d.first < c.first_died_at OR d.last > c.last_died_at",
            )
            .await;
        assert_eq!(wrong, 0, "{when}");
    };
    let mut all = Vec::new();
    for n in 0..60 {
        let mut letter = letter();
        letter.queue = format!("q{}", n % 3);
        letter.fingerprint = Fingerprint([n % 4; 16]);
        all.push(letter);
    }
    for chunk in all.chunks(25) {
        archive(&db, chunk).await;
        archive(&db, chunk).await;
    }
    agree("archived").await;
    for (change, when) in [
        (
            "UPDATE tidegate.dead_letters SET state = 'REPLAYING', replay_id = id WHERE right(task_id, 1) < '8'",
            "claimed",
        ),
        (
            "UPDATE tidegate.dead_letters SET state = 'REPLAYED' WHERE state = 'REPLAYING' AND queue = 'q1'",
            "replayed",
        ),
        (
            "UPDATE tidegate.dead_letters SET state = 'OPEN', replay_id = NULL WHERE state = 'REPLAYING'",
            "given back",
        ),
        (
            "UPDATE tidegate.dead_letters SET state = 'DISCARDED', discarded_in = 0 WHERE state = 'OPEN' AND queue = 'q2'",
            "discarded",
        ),
        (
            "UPDATE tidegate.dead_letters SET refused_by = id",
            "no change of state",
        ),
    ] {
        db.execute(change).await;
        agree(when).await;
    }
    db.execute("DELETE FROM tidegate.dead_letters WHERE queue = 'q0' AND state = 'OPEN'")
        .await;
    let (rows, counted): (i64, i64) = sqlx::query_as(
        "SELECT (SELECT count(*) FROM tidegate.dead_letters), (SELECT sum(open + replaying + replayed + discarded)::bigint FROM tidegate.dead_letter_counts)",
    )
    .fetch_one(&db.sql)
    .await
    .unwrap();
    assert_eq!(rows, counted, "deleted by hand");
    assert_eq!(
        rows,
        db.one::<i64>("SELECT count(*) FROM tidegate.dead_letter_messages")
            .await,
        "messages go with them"
    );
}
