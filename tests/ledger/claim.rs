//! Every occurrence is enqueued once, across any number of instances, kills and races.

use std::{collections::HashMap, time::Duration};

use chrono::{DateTime, Utc};
use tidegate::store::cron_tasks::{Decision, Fire, Verdict};
use tidegate_core::cron::{FireOutcome, Schedule, Span};

use crate::{
    scheduler::{ClaimLoop, pass},
    support::{Database, eventually},
};

/// Asserts that the fires of each row are exactly the occurrences of its schedule between its first and its next,
/// and that each has its task.
async fn assert_nothing_missing_or_double(db: &Database, at_least: usize) {
    let rows: Vec<(i64, String, DateTime<Utc>)> =
        sqlx::query_as("SELECT id, cron_expression, next_fire_at::timestamptz FROM tidegate.cron_tasks")
            .fetch_all(&db.sql)
            .await
            .unwrap();
    let fires: Vec<(i64, DateTime<Utc>, String)> = sqlx::query_as(
        "SELECT f.cron_task_id, f.fire_at::timestamptz, f.task_id FROM tidegate.cron_fires f ORDER BY f.fire_at",
    )
    .fetch_all(&db.sql)
    .await
    .unwrap();
    let mut by_row: HashMap<i64, Vec<DateTime<Utc>>> = HashMap::new();
    for (id, at, _) in &fires {
        by_row.entry(*id).or_default().push(*at);
    }
    for (id, expression, next) in rows {
        let fired = by_row.remove(&id).unwrap_or_default();
        assert!(
            fired.len() >= at_least,
            "row {id} {expression:?} fired {} times",
            fired.len()
        );
        let schedule = Schedule::parse(&expression, "UTC").unwrap();
        let mut expected = vec![fired[0]];
        expected.extend(
            std::iter::successors(schedule.next_after(fired[0]), |at| schedule.next_after(*at))
                .take_while(|at| *at < next),
        );
        assert_eq!(fired, expected, "row {id} {expression:?}");
    }
    let tasks: i64 = db.one("SELECT count(*) FROM tidegate.tasks").await;
    let joined: i64 = db
        .one("SELECT count(*) FROM tidegate.cron_fires f JOIN tidegate.tasks t ON t.task_id = f.task_id AND t.due_at = f.fire_at")
        .await;
    assert_eq!(
        (tasks, joined),
        (fires.len() as i64, fires.len() as i64),
        "one task per occurrence"
    );
}

async fn insert_rows(db: &Database) {
    db.execute(
        "INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression, payload) \
         SELECT 'every-' || n, 'a.b', CASE n % 3 WHEN 0 THEN '*/2 * * * * *' ELSE '* * * * * *' END, '{}' \
         FROM generate_series(1, 120) n",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_schedulers_miss_and_double_nothing() {
    let db = Database::create().await;
    insert_rows(&db).await;
    let stores: Vec<_> = (0..5).map(|_| db.another_store()).collect();
    // Small batches, so that they meet on the same rows.
    let settings = tidegate::scheduler::claim::ClaimSettings {
        batch: 7,
        ..Default::default()
    };
    let loops: Vec<_> = stores
        .iter()
        .map(|store| ClaimLoop::start_with(store, settings.clone()))
        .collect();
    eventually(Duration::from_secs(40), "ten seconds of fires", || async {
        let fires: i64 = db.one("SELECT count(*) FROM tidegate.cron_fires").await;
        (fires >= 1_000).then_some(())
    })
    .await;
    for running in loops {
        running.stop().await;
    }
    assert_nothing_missing_or_double(&db, 3).await;
    let late: f64 = db
        .one("SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM recorded_at - fire_at))::float8 FROM tidegate.cron_fires")
        .await;
    assert!(late < 1.0, "median lag of {late} s");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schedulers_killed_anywhere_miss_and_double_nothing() {
    let db = Database::create().await;
    insert_rows(&db).await;
    let stores = [db.another_store(), db.another_store()];
    let settings = tidegate::scheduler::claim::ClaimSettings {
        batch: 7,
        ..Default::default()
    };
    let mut loops: Vec<_> = stores
        .iter()
        .map(|store| ClaimLoop::start_with(store, settings.clone()))
        .collect();
    for round in 0..150_u64 {
        // Any instant will do; this spreads them over a second.
        tokio::time::sleep(Duration::from_millis(round * 37 % 61)).await;
        let victim = (round % 2) as usize;
        loops[victim] = ClaimLoop::start_with(&stores[victim], settings.clone());
        if round % 10 == 0 {
            // The way a killed process looks to Postgres.
            db.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                 WHERE datname = current_database() AND application_name = 'tidegate' AND random() < 0.5",
            )
            .await;
            for (running, store) in loops.iter_mut().zip(&stores) {
                *running = ClaimLoop::start_with(store, settings.clone());
            }
        }
    }
    // On a busy machine no scheduler may have lived long enough for a single pass, so they get time for two occurrences.
    eventually(Duration::from_secs(20), "the rest", || async {
        db.one::<bool>(
            "SELECT coalesce(bool_and(coalesce(c.next_fire_at > now(), false) AND \
               (SELECT count(*) >= 2 FROM tidegate.cron_fires f WHERE f.cron_task_id = c.id)), false) \
             FROM tidegate.cron_tasks c",
        )
        .await
        .then_some(())
    })
    .await;
    for running in loops {
        running.stop().await;
    }
    assert_nothing_missing_or_double(&db, 2).await;
}

#[tokio::test]
async fn whoever_holds_an_old_version_does_nothing() {
    let db = Database::create().await;
    db.execute("INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression, next_fire_at) VALUES ('x', 'a.b', '@daily', '2026-01-01T00:00:00Z')").await;
    let locked = db.store.cron_tasks().lock_due(10).await.unwrap();
    assert!(
        db.another_store()
            .cron_tasks()
            .lock_due(10)
            .await
            .unwrap()
            .rows()
            .is_empty(),
        "locked rows are passed over"
    );
    let row = &locked.rows()[0];
    let planned = row.next_fire_at.unwrap();
    let fire = Fire {
        span: Span {
            first: planned,
            last: planned,
            occurrences: 1,
            outcome: FireOutcome::SkippedMisfire,
        },
        task: None,
    };
    let stale = Decision {
        id: row.id,
        version: row.version - 1,
        verdict: Verdict::Next(Utc::now()),
        fires: vec![fire.clone()],
    };
    let committed = locked.commit(vec![stale]).await.unwrap();
    assert_eq!((committed.rows, committed.lost), (0, 1));
    assert_eq!(db.one::<i64>("SELECT count(*) FROM tidegate.cron_fires").await, 0);

    let locked = db.store.cron_tasks().lock_due(10).await.unwrap();
    let row = &locked.rows()[0];
    assert_eq!(row.next_fire_at.unwrap(), planned, "untouched");
    let fresh = Decision {
        id: row.id,
        version: row.version,
        verdict: Verdict::Next(Utc::now()),
        fires: vec![fire],
    };
    assert_eq!(locked.commit(vec![fresh]).await.unwrap().rows, 1);
    assert_eq!(db.one::<i64>("SELECT count(*) FROM tidegate.cron_fires").await, 1);
}

/// A claim is one transaction: if the task can't be inserted, the row has not moved on, and is flagged instead.
#[tokio::test]
async fn a_row_whose_task_is_refused_by_the_tables_stops_nobody() {
    let db = Database::create().await;
    db.execute("ALTER TABLE tidegate.tasks ADD CONSTRAINT refuse CHECK (task_type <> 'refused.type')")
        .await;
    db.execute(
        "INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression, next_fire_at) \
         SELECT 'job-' || n, CASE n WHEN 5 THEN 'refused.type' ELSE 'a.b' END, '@yearly', date_trunc('second', now()) \
         FROM generate_series(1, 20) n",
    )
    .await;
    pass(&db.store).await;
    assert_eq!(db.one::<i64>("SELECT count(*) FROM tidegate.tasks").await, 19);
    assert_eq!(
        db.one::<i64>("SELECT count(*) FROM tidegate.cron_fires").await,
        19
    );
    let error: String = db
        .one("SELECT last_error FROM tidegate.cron_tasks WHERE name = 'job-5'")
        .await;
    assert!(error.contains("refuse"), "{error}");
    assert_eq!(db.store.cron_tasks().in_error().await.unwrap(), 1);
}
