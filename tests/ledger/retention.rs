//! What has been kept long enough goes, by state and age, and nothing else does.

use std::{collections::BTreeMap, time::Duration};

use tidegate::{
    scheduler::retention::{ROLE, RetentionSettings, Walks, prune, run},
    store::retention::Kept,
    telemetry::health::{Health, Part},
};
use tokio_util::sync::CancellationToken;

use crate::support::{Database, SOON, eventually};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Tasks of every state that ended, or were handed over, `days` ago.
async fn insert(db: &Database, days: i32) {
    sqlx::query(
        "INSERT INTO tidegate.tasks (task_id, task_type, envelope, state, due_at, published_at, started_at, finished_at) \
         SELECT lower(state) || '.' || $1, 'a.b', '{}', state, now() - interval '1 day' * $1, \
           CASE WHEN state <> 'PENDING' THEN now() - interval '1 day' * $1 END, \
           CASE WHEN state NOT IN ('PENDING', 'PUBLISHED') THEN now() - interval '1 day' * $1 END, \
           CASE WHEN state IN ('SUCCESS', 'FAILED', 'CANCELED') THEN now() - interval '1 day' * $1 END \
         FROM unnest(ARRAY['PENDING', 'PUBLISHED', 'RUNNING', 'SUCCESS', 'RETRYING', 'FAILED', 'CANCELED']) AS s (state)",
    )
    .bind(days)
    .execute(&db.sql)
    .await
    .unwrap();
}

async fn ids(db: &Database) -> Vec<String> {
    sqlx::query_scalar("SELECT task_id FROM tidegate.tasks ORDER BY task_id")
        .fetch_all(&db.sql)
        .await
        .unwrap()
}

async fn pruned(db: &Database, settings: &RetentionSettings, walks: &mut Walks) -> BTreeMap<Kept, u64> {
    prune(&db.store, settings, walks).await.unwrap()
}

fn keeping(keep: &[(Kept, Duration)]) -> RetentionSettings {
    RetentionSettings {
        keep: keep.iter().copied().collect(),
        ..RetentionSettings::default()
    }
}

#[tokio::test]
async fn each_state_is_kept_as_long_as_its_setting_says() {
    let db = Database::create().await;
    for days in [1, 8, 31] {
        insert(&db, days).await;
    }
    let mut walks = Walks::default();
    let settings = RetentionSettings::default();
    let deleted = pruned(&db, &settings, &mut walks).await;
    let expected = [
        (Kept::Success, 2),
        (Kept::Failed, 1),
        (Kept::Canceled, 2),
        (Kept::Unreported, 3),
    ];
    assert_eq!(deleted, BTreeMap::from(expected));
    let expected = [
        "canceled.1",
        "failed.1",
        "failed.8",
        "pending.1",
        "pending.31",
        "pending.8",
        "published.1",
        "published.8",
        "retrying.1",
        "retrying.8",
        "running.1",
        "running.8",
        "success.1",
    ];
    assert_eq!(ids(&db).await, expected, "whatever waits stays");
    assert_eq!(pruned(&db, &settings, &mut walks).await, BTreeMap::new());
}

#[tokio::test]
async fn never_keeps_and_zero_does_not() {
    let db = Database::create().await;
    insert(&db, 3_000).await;
    sqlx::query(
        "INSERT INTO tidegate.tasks (task_id, task_type, envelope, state, finished_at) \
         VALUES ('now', 'a.b', '{}', 'SUCCESS', now())",
    )
    .execute(&db.sql)
    .await
    .unwrap();
    let settings = keeping(&[(Kept::Success, Duration::ZERO)]);
    let deleted = pruned(&db, &settings, &mut Walks::default()).await;
    assert_eq!(deleted, BTreeMap::from([(Kept::Success, 2)]));
    assert_eq!(ids(&db).await.len(), 6, "what is not named is kept for ever");
}

/// A task that is tried again for weeks is alive.
#[tokio::test]
async fn the_last_start_counts_where_nobody_told_of_an_end() {
    let db = Database::create().await;
    insert(&db, 40).await;
    db.execute("UPDATE tidegate.tasks SET started_at = now() WHERE task_id = 'retrying.40'")
        .await;
    let settings = keeping(&[(Kept::Unreported, 30 * DAY)]);
    pruned(&db, &settings, &mut Walks::default()).await;
    let left = ids(&db).await;
    assert!(left.contains(&"retrying.40".to_owned()) && !left.contains(&"running.40".to_owned()));
}

#[tokio::test]
async fn many_go_in_batches_and_a_locked_one_later() {
    let db = Database::create().await;
    // Many ended at the same instant: a batch may end within it.
    db.execute(
        "INSERT INTO tidegate.tasks (task_id, task_type, envelope, state, finished_at) \
         SELECT 't' || n, 'a.b', '{}', CASE WHEN n % 5 = 0 THEN 'FAILED' ELSE 'SUCCESS' END, \
           now() - interval '10 days' - interval '1 s' * (n / 2000) \
         FROM generate_series(1, 5000) n",
    )
    .await;
    let mut other = db.sql.begin().await.unwrap();
    sqlx::query("SELECT FROM tidegate.tasks WHERE task_id = 't1' FOR UPDATE")
        .execute(&mut *other)
        .await
        .unwrap();
    let (mut walks, settings) = (Walks::default(), keeping(&[(Kept::Success, 7 * DAY)]));
    let run = tokio::time::timeout(Duration::from_secs(30), pruned(&db, &settings, &mut walks));
    assert_eq!(
        run.await.expect("it waits for no lock"),
        BTreeMap::from([(Kept::Success, 3_999)])
    );
    other.rollback().await.unwrap();
    assert_eq!(
        pruned(&db, &settings, &mut walks).await,
        BTreeMap::from([(Kept::Success, 1)])
    );
    assert_eq!(ids(&db).await.len(), 1_000, "those that failed are kept longer");
}

#[tokio::test]
async fn one_instance_at_a_time_deletes() {
    let db = Database::create().await;
    insert(&db, 100).await;
    let settings = RetentionSettings::default();
    let mut other = db.sql.begin().await.unwrap();
    // What another instance holds while it deletes.
    sqlx::query("SELECT pg_advisory_xact_lock($1)")
        .bind(0x7469_6465_7072_756e_i64)
        .execute(&mut *other)
        .await
        .unwrap();
    assert_eq!(
        pruned(&db, &settings, &mut Walks::default()).await,
        BTreeMap::new()
    );
    other.rollback().await.unwrap();
    let (first, second) = (db.another_store(), db.another_store());
    let (mut one, mut two) = (Walks::default(), Walks::default());
    let (a, b) = tokio::join!(
        prune(&first, &settings, &mut one),
        prune(&second, &settings, &mut two)
    );
    let total: u64 = a.unwrap().values().chain(b.unwrap().values()).sum();
    assert!((1..=6).contains(&total), "each row goes once at most: {total}");
    pruned(&db, &settings, &mut Walks::default()).await;
    assert_eq!(ids(&db).await, ["pending.100"]);
}

#[tokio::test]
async fn the_record_of_occurrences_goes_too() {
    let db = Database::create().await;
    db.execute(
        "WITH job AS (INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression) VALUES ('j', 'a.b', '@daily') \
           RETURNING id) \
         INSERT INTO tidegate.cron_fires (cron_task_id, fire_at, outcome, recorded_at) \
         SELECT id, now() - interval '1 hour' * n, 'SKIPPED_MISFIRE', now() - interval '1 hour' * n \
         FROM job, generate_series(1, 3000) n",
    )
    .await;
    let settings = keeping(&[(Kept::CronFires, 30 * DAY)]);
    let deleted = pruned(&db, &settings, &mut Walks::default()).await;
    let left: i64 = db.one("SELECT count(*) FROM tidegate.cron_fires").await;
    // 720 hours are 30 days; the last of them passes while the test runs.
    assert_eq!((deleted[&Kept::CronFires], left), (2_281, 719));
}

#[tokio::test]
async fn it_reads_by_age_and_not_the_whole_table() {
    let db = Database::create().await;
    db.execute(
        "INSERT INTO tidegate.tasks (task_id, task_type, envelope, state, published_at, finished_at, due_at) \
         SELECT 't' || n, 'a.b', '{}', CASE WHEN n % 2 = 0 THEN 'PENDING' ELSE 'SUCCESS' END, \
           CASE WHEN n % 2 = 1 THEN now() - interval '1 minute' * n END, \
           CASE WHEN n % 2 = 1 THEN now() - interval '1 minute' * n END, now() + interval '1 day' \
         FROM generate_series(1, 30000) n",
    )
    .await;
    let scans = "SELECT coalesce(seq_scan, 0) FROM pg_stat_user_tables WHERE relname = 'tasks'";
    let before: i64 = db.one(scans).await;
    let store = db.another_store();
    let settings = keeping(&[(Kept::Success, 20 * DAY)]);
    let deleted = prune(&store, &settings, &mut Walks::default()).await.unwrap();
    // 28,800 minutes are 20 days; every second row has ended.
    assert!(deleted[&Kept::Success].abs_diff(600) <= 1, "{deleted:?}");
    store.close().await;
    eventually(SOON, "the counts", async || {
        db.one::<i64>("SELECT n_tup_del FROM pg_stat_user_tables WHERE relname = 'tasks'")
            .await
            > 0
    })
    .await;
    assert_eq!(db.one::<i64>(scans).await, before);
    let used: i64 = db
        .one("SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'tasks_settled'")
        .await;
    assert!(used > 0);
}

#[tokio::test]
async fn the_loop_goes_on_until_it_is_told_to_stop() {
    let db = Database::create().await;
    let (health, cancel) = (Health::default(), CancellationToken::new());
    let settings = RetentionSettings {
        interval: Duration::from_millis(100),
        ..keeping(&[(Kept::Success, Duration::from_millis(300))])
    };
    let running = tokio::spawn(run(db.store.clone(), settings, health.clone(), cancel.clone()));
    for _ in 0..2 {
        db.execute(
            "INSERT INTO tidegate.tasks (task_id, task_type, envelope, state, finished_at) \
             SELECT 't' || n, 'a.b', '{}', 'SUCCESS', clock_timestamp() FROM generate_series(1, 50) n",
        )
        .await;
        eventually(SOON, "all that ended to be deleted", async || {
            ids(&db).await.is_empty()
        })
        .await;
    }
    eventually(SOON, "green", async || {
        health.parts().get(ROLE) == Some(&Part::Up)
    })
    .await;
    cancel.cancel();
    tokio::time::timeout(SOON, running)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
}
