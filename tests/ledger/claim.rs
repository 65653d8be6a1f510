//! Every occurrence is enqueued once, across any number of instances, kills and races.

use std::time::Duration;

use chrono::{DateTime, Utc};
use rand::{Rng, SeedableRng, rngs::StdRng};
use tidegate::{
    scheduler::claim::{ClaimSettings, Claimer},
    telemetry::health::Health,
};

use crate::{
    calendar::assert_nothing_missing_or_double,
    scheduler::{ClaimLoop, pass},
    support::{Database, eventually},
};

async fn insert_rows(db: &Database) {
    db.execute(
        "INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression, payload) \
         SELECT 'every-' || n, 'a.b', CASE n % 3 WHEN 0 THEN '*/2 * * * * *' ELSE '* * * * * *' END, '{}' \
         FROM generate_series(1, 120) n",
    )
    .await;
}

/// Small batches, so that instances meet on the same rows.
fn small_batches() -> ClaimSettings {
    ClaimSettings {
        batch: 7,
        ..ClaimSettings::default()
    }
}

/// For what takes a second or two on a machine that has nothing else to do.
const PATIENCE: Duration = Duration::from_secs(90);

async fn now(db: &Database) -> DateTime<Utc> {
    db.one("SELECT now()").await
}

async fn every_row_has(db: &Database, fires: i64) -> bool {
    let least: i64 = db
        .one(
            "SELECT coalesce(min((SELECT count(*) FROM tidegate.cron_fires f WHERE f.cron_task_id = c.id)), 0) \
             FROM tidegate.cron_tasks c",
        )
        .await;
    least >= fires
}

/// Whether everything up to `instant` is accounted for.
async fn caught_up(db: &Database, instant: DateTime<Utc>) -> bool {
    sqlx::query_scalar(
        "SELECT coalesce(bool_and(coalesce(next_fire_at > $1, false)), false) FROM tidegate.cron_tasks",
    )
    .bind(instant)
    .fetch_one(&db.sql)
    .await
    .unwrap()
}

/// B57. Nothing tells the instances apart, and there is no lock row, lease or leader that could be lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_schedulers_miss_and_double_nothing() {
    let db = Database::create().await;
    insert_rows(&db).await;
    let stores: Vec<_> = (0..5).map(|_| db.another_store()).collect();
    let loops: Vec<_> = stores
        .iter()
        .map(|store| ClaimLoop::start_with(store, small_batches()))
        .collect();
    let mut idle_in_transaction = 0_i64;
    eventually(PATIENCE, "four fires of every row", async || {
        idle_in_transaction += db
            .one::<i64>(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                 AND application_name = 'tidegate' AND state LIKE 'idle in transaction%'",
            )
            .await;
        every_row_has(&db, 4).await
    })
    .await;
    for running in loops {
        running.stop().await;
    }
    assert_nothing_missing_or_double(&db, 3).await;
    assert_eq!(
        idle_in_transaction, 0,
        "no instance holds anything between two statements"
    );
    let late: f64 = db
        .one("SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM recorded_at - fire_at))::float8 FROM tidegate.cron_fires")
        .await;
    println!("median lag {late} s");
    assert!(
        late < 5.0,
        "far from what the regular scan alone would give: {late} s"
    );
}

/// B57, B59: each of five instances is ended at any moment, between a read and its write too, and some connections
/// are cut.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schedulers_killed_anywhere_miss_and_double_nothing() {
    let db = Database::create().await;
    insert_rows(&db).await;
    let stores: Vec<_> = (0..5).map(|_| db.another_store()).collect();
    let seed = rand::random::<u32>();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed.into());
    let mut loops: Vec<_> = stores
        .iter()
        .map(|store| ClaimLoop::start_with(store, small_batches()))
        .collect();
    for round in 1..=200 {
        // Any instant will do: a pass lasts some milliseconds.
        tokio::time::sleep(Duration::from_micros(random.random_range(0..60_000))).await;
        let victim = random.random_range(0..loops.len());
        loops[victim] = ClaimLoop::start_with(&stores[victim], small_batches());
        if round % 10 == 0 {
            // The way a killed process looks to Postgres.
            db.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                 WHERE datname = current_database() AND application_name = 'tidegate' AND random() < 0.5",
            )
            .await;
        }
    }
    let ended = now(&db).await;
    eventually(
        PATIENCE,
        "two fires of every row after the last end",
        async || every_row_has(&db, 2).await && caught_up(&db, ended).await,
    )
    .await;
    for running in loops {
        running.stop().await;
    }
    assert_nothing_missing_or_double(&db, 2).await;
}

/// Two instances with a backlog take different rows of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_schedulers_share_a_backlog() {
    let db = Database::create().await;
    db.execute(
        "INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression, next_fire_at) \
         SELECT 'job-' || n, 'a.b', '@yearly', date_trunc('second', now()) FROM generate_series(1, 8000) n",
    )
    .await;
    let one = async || {
        let settings = ClaimSettings {
            batch: 50,
            ..ClaimSettings::default()
        };
        Claimer::new(settings)
            .pass(&db.another_store(), &Health::default())
            .await
            .unwrap()
    };
    let (a, b) = tokio::join!(one(), one());
    println!("{a:?} {b:?}");
    assert_eq!(a.written + b.written, 8000);
    assert!(a.written > 2000 && b.written > 2000, "both work: {a:?} {b:?}");
    assert!(a.lost + b.lost < 1200, "few races are lost: {a:?} {b:?}");
    assert_eq!(db.one::<i64>("SELECT count(*) FROM tidegate.tasks").await, 8000);
}

/// Teams update many rows in a transaction, in any order, while the rows fire.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_deadlocks_or_waits_for_a_client() {
    let db = Database::create().await;
    insert_rows(&db).await;
    let stores = [db.another_store(), db.another_store()];
    let loops = stores
        .each_ref()
        .map(|store| ClaimLoop::start_with(store, small_batches()));
    // One holds a row all the time.
    let mut held = db.sql.begin().await.unwrap();
    sqlx::query("UPDATE tidegate.cron_tasks SET owner = 'me' WHERE name = 'every-1'")
        .execute(&mut *held)
        .await
        .unwrap();
    let before: i64 = db.one("SELECT count(*) FROM tidegate.cron_fires").await;
    for round in 0..60 {
        let mut tx = db.sql.begin().await.unwrap();
        for step in 0..10 {
            let name = format!("every-{}", 2 + (round * 37 + step * 53) % 119);
            sqlx::query("UPDATE tidegate.cron_tasks SET owner = 'team' WHERE name = $1")
                .bind(name)
                .execute(&mut *tx)
                .await
                .unwrap();
        }
        tx.commit().await.unwrap();
    }
    eventually(PATIENCE, "the others to fire", async || {
        db.one::<i64>("SELECT count(DISTINCT cron_task_id) FROM tidegate.cron_fires")
            .await
            >= 119
    })
    .await;
    assert!(db.one::<i64>("SELECT count(*) FROM tidegate.cron_fires").await > before);
    held.rollback().await.unwrap();
    eventually(PATIENCE, "the one that was held", async || {
        db.one::<bool>("SELECT EXISTS (SELECT FROM tidegate.cron_fires JOIN tidegate.cron_tasks ON id = cron_task_id WHERE name = 'every-1')")
            .await
    })
    .await;
    for running in loops {
        running.stop().await;
    }
    assert_nothing_missing_or_double(&db, 1).await;
    let deadlocks: i64 = db
        .one("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        .await;
    assert_eq!(deadlocks, 0);
}

/// B65: every connection is cut each second for a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_cut_every_second_are_survived() {
    let db = Database::create().await;
    insert_rows(&db).await;
    let store = db.another_store();
    let health = Health::default();
    let running = ClaimLoop::start_on(&store, ClaimSettings::default(), health.clone());
    for _ in 0..8 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        db.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE datname = current_database() AND application_name = 'tidegate'",
        )
        .await;
    }
    let ended = now(&db).await;
    eventually(PATIENCE, "it to be on time again", async || {
        every_row_has(&db, 3).await && caught_up(&db, ended).await && health.is_ready()
    })
    .await;
    running.stop().await;
    assert_nothing_missing_or_double(&db, 3).await;
}

/// A claim is one statement: if the task can't be inserted, the row has not moved on, and is flagged instead.
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
    // Postgres tells of a refusal before it lets go of the rows: the next statement may pass over some, which stay due.
    eventually(PATIENCE, "all but the refused one", async || {
        pass(&db.store).await;
        db.one::<i64>("SELECT count(*) FROM tidegate.tasks").await == 19
    })
    .await;
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

/// Missing rights are nobody's definition: no row is flagged for them, and all go on once they are there.
#[tokio::test]
async fn what_is_wrong_with_the_database_is_blamed_on_no_row() {
    let db = Database::create().await;
    db.execute(
        "INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression, next_fire_at) \
         SELECT 'job-' || n, 'a.b', '@yearly', date_trunc('second', now()) FROM generate_series(1, 20) n",
    )
    .await;
    db.execute("ALTER TABLE tidegate.tasks RENAME COLUMN producer TO maker")
        .await;
    let settings = ClaimSettings::default();
    let error = tidegate::scheduler::claim::pass(&db.store, &settings, &Health::default())
        .await
        .unwrap_err();
    assert!(error.to_string().contains("tidegate migrate"), "{error}");
    assert_eq!(db.store.cron_tasks().in_error().await.unwrap(), 0);
    db.execute("ALTER TABLE tidegate.tasks RENAME COLUMN maker TO producer")
        .await;
    assert_eq!(pass(&db.store).await, 20);
}
