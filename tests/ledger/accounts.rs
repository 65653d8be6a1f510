//! What was accounted for does not fire again, whatever an edit says; templates and jitter on their way to a task.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use crate::{
    calendar::assert_nothing_missing_or_double,
    scheduler::{ClaimLoop, pass},
    support::{Database, eventually},
};

#[tokio::test]
async fn a_time_set_by_hand_fires_once_and_never_again() {
    let db = Database::create().await;
    db.execute(
        "INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression) VALUES ('x', 'a.b', '0 0 1 1 *')",
    )
    .await;
    pass(&db.store).await;
    let fires = async || db.one::<i64>("SELECT count(*) FROM tidegate.cron_fires").await;
    // Run it now: an instant after whatever was accounted for.
    db.execute("UPDATE tidegate.cron_tasks SET next_fire_at = date_trunc('second', now())")
        .await;
    pass(&db.store).await;
    assert_eq!(fires().await, 1);
    let accounted: DateTime<Utc> = db
        .one("SELECT accounted_until::timestamptz FROM tidegate.cron_tasks")
        .await;
    for back in [
        "UPDATE tidegate.cron_tasks SET next_fire_at = accounted_until",
        "UPDATE tidegate.cron_tasks SET next_fire_at = accounted_until - interval '1 day'",
        "UPDATE tidegate.cron_tasks SET next_fire_at = '1970-01-01Z'",
    ] {
        db.execute(back).await;
        pass(&db.store).await;
        assert_eq!(fires().await, 1, "{back}");
        assert!(
            db.one::<bool>("SELECT next_fire_at > now() AND last_error IS NULL FROM tidegate.cron_tasks")
                .await,
            "{back}"
        );
    }
    assert_eq!(
        db.one::<DateTime<Utc>>("SELECT accounted_until::timestamptz FROM tidegate.cron_tasks")
            .await,
        accounted
    );
}

/// A row that fires each second is edited all the time, to and fro, by hand and by name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edits_under_fire_double_nothing() {
    let db = Database::create().await;
    db.execute(
        "INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression) \
         SELECT 'job-' || n, 'a.b', '* * * * * *' FROM generate_series(1, 10) n",
    )
    .await;
    let stores = [db.another_store(), db.another_store()];
    let loops = stores.each_ref().map(ClaimLoop::start);
    let edits = [
        "UPDATE tidegate.cron_tasks SET cron_expression = '*/2 * * * * *'",
        "UPDATE tidegate.cron_tasks SET next_fire_at = now() - interval '3 s'",
        "UPDATE tidegate.cron_tasks SET time_zone = 'Asia/Kathmandu', name = name || '+'",
        "UPDATE tidegate.cron_tasks SET next_fire_at = date_trunc('second', now() - interval '2 s')",
        "UPDATE tidegate.cron_tasks SET enabled = false",
        "UPDATE tidegate.cron_tasks SET enabled = true, time_zone = 'UTC'",
        "UPDATE tidegate.cron_tasks SET cron_expression = '* * * * * *'",
    ];
    for round in 0..28 {
        db.execute(edits[round % edits.len()]).await;
        tokio::time::sleep(Duration::from_millis(130 + 71 * (round as u64 % 5))).await;
    }
    let before: i64 = db.one("SELECT count(*) FROM tidegate.cron_fires").await;
    eventually(Duration::from_secs(10), "fires after the last edit", async || {
        db.one::<i64>("SELECT count(*) FROM tidegate.cron_fires").await > before + 20
    })
    .await;
    for running in loops {
        running.stop().await;
    }
    // The names changed on the way: an instant that fired twice would have two tasks with different ids.
    let (fires, instants, tasks): (i64, i64, i64) = sqlx::query_as(
        "SELECT count(*), count(DISTINCT (cron_task_id, fire_at)), (SELECT count(*) FROM tidegate.tasks) FROM tidegate.cron_fires",
    )
    .fetch_one(&db.sql)
    .await
    .unwrap();
    assert_eq!((instants, tasks), (fires, fires));
    // In the order in which they were recorded their instants only grow.
    let backwards: i64 = db
        .one(
            "SELECT count(*) FROM (SELECT fire_at <= lag(fire_at) OVER (PARTITION BY cron_task_id ORDER BY recorded_at, fire_at) AS back \
             FROM tidegate.cron_fires) f WHERE back",
        )
        .await;
    assert_eq!(backwards, 0);
}

#[tokio::test]
async fn templates_and_jitter_reach_the_task() {
    let db = Database::create().await;
    db.execute(
        "INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression, time_zone, jitter_ms, payload, next_fire_at) VALUES \
         ('täglich', 'a.b', '0 0 1 1 *', 'Asia/Tokyo', 3600000, \
          '{\"day\": \"{{ scheduled_date | add_days(-1) }}\", \"key\": \"{{attempt_id}}\", \"by\": \"{{name}}\", \"n\": 1.50}', \
          date_trunc('second', now()))",
    )
    .await;
    pass(&db.store).await;
    let (fire_at, task_id, due_at, envelope): (DateTime<Utc>, String, DateTime<Utc>, String) =
        sqlx::query_as(
            "SELECT f.fire_at::timestamptz, task_id, t.due_at::timestamptz, t.envelope \
         FROM tidegate.cron_fires f JOIN tidegate.tasks t USING (task_id)",
        )
        .fetch_one(&db.sql)
        .await
        .unwrap();
    assert!(
        task_id.ends_with(&fire_at.format(":%Y%m%dT%H%M%SZ").to_string()),
        "{task_id}"
    );
    assert!(
        (fire_at..=fire_at + TimeDelta::hours(1)).contains(&due_at),
        "{fire_at} {due_at}"
    );
    let envelope: serde_json::Value = serde_json::from_str(&envelope).unwrap();
    assert_eq!(
        envelope["scheduleTime"]
            .as_str()
            .unwrap()
            .parse::<DateTime<Utc>>()
            .unwrap(),
        due_at
    );
    let yesterday = (fire_at + TimeDelta::hours(9) - TimeDelta::days(1))
        .format("%Y-%m-%d")
        .to_string();
    assert_eq!(envelope["payload"]["day"], yesterday);
    assert_eq!(envelope["payload"]["key"], task_id);
    assert_eq!(envelope["payload"]["by"], "täglich");
    assert!(
        db.one::<bool>("SELECT envelope LIKE '%\"n\": 1.50%' FROM tidegate.tasks")
            .await
    );
    assert_nothing_missing_or_double(&db, 1).await;
}

#[tokio::test]
async fn a_bad_template_marks_its_row_and_stops_no_other() {
    let db = Database::create().await;
    db.execute(
        "INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression, payload) VALUES \
         ('bad name', 'a.b', '* * * * * *', '{\"a\": \"{{ nme }}\"}'), \
         ('bad syntax', 'a.b', '* * * * * *', '{\"a\": \"{{ name\"}'), \
         ('bad and heavy', 'a.b', '* * * * * *', '{\"a\": \"{{ [name] * 9999999 }}\"}'), \
         ('good', 'a.b', '* * * * * *', '{\"a\": \"{{ name }}\"}')",
    )
    .await;
    let scheduler = ClaimLoop::start(&db.store);
    eventually(Duration::from_secs(10), "two fires of the good one", async || {
        db.one::<i64>("SELECT count(*) FROM tidegate.cron_fires").await >= 2
    })
    .await;
    scheduler.stop().await;
    let flagged: Vec<String> = sqlx::query_scalar(
        "SELECT name FROM tidegate.cron_tasks WHERE last_error LIKE 'payload template%' ORDER BY name",
    )
    .fetch_all(&db.sql)
    .await
    .unwrap();
    assert_eq!(flagged, ["bad and heavy", "bad name", "bad syntax"]);
    assert_eq!(
        db.one::<i64>("SELECT count(*) FROM tidegate.tasks WHERE task_id NOT LIKE 'cron:good:%'")
            .await,
        0
    );
}
