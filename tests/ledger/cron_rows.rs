//! What teams do to `tidegate.cron_tasks` with plain SQL, and what comes of it.

use std::time::Duration;

use chrono::{DateTime, Utc};
use tidegate_core::{
    envelope::{Envelope, Limits},
    task::TaskId,
};

use crate::{
    scheduler::{ClaimLoop, pass},
    support::{Database, SOON, eventually},
};

/// `next_fire_at` of the row called `x`.
async fn next(db: &Database) -> Option<DateTime<Utc>> {
    db.one("SELECT next_fire_at::timestamptz FROM tidegate.cron_tasks WHERE name = 'x'")
        .await
}

#[tokio::test]
async fn a_plain_insert_registers_a_job_and_it_fires() {
    let db = Database::create().await;
    let scheduler = ClaimLoop::start(&db.store);
    db.execute(
        "INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression, payload) \
         VALUES ('recall', 'member.recall', '* * * * * *', '{\"days\": 30, \"big\": 9007199254740991, \"s\": \"é\"}')",
    )
    .await;
    let (task_id, envelope, due_at, origin): (String, String, DateTime<Utc>, String) =
        eventually(SOON, "the first task", || async {
            sqlx::query_as("SELECT task_id, envelope, due_at::timestamptz, origin FROM tidegate.tasks ORDER BY due_at LIMIT 1")
                .fetch_optional(&db.sql)
                .await
                .unwrap()
        })
        .await;
    scheduler.stop().await;

    let now = Utc::now();
    let parsed = Envelope::parse(envelope.as_bytes(), &Limits::standard(), now).unwrap();
    assert_eq!(parsed.task_id.as_str(), task_id);
    assert_eq!(
        task_id,
        format!("cron:recall:{}", due_at.format("%Y%m%dT%H%M%SZ"))
    );
    assert_eq!(parsed.task_type.as_str(), "member.recall");
    assert_eq!(parsed.schedule_time.unwrap(), due_at);
    assert_eq!(parsed.producer.as_deref(), Some("tidegate"));
    assert_eq!(origin, "cron");
    assert_eq!(
        parsed.payload.as_str(),
        r#"{"s": "é", "big": 9007199254740991, "days": 30}"#,
        "spliced as jsonb writes it"
    );

    let (fires, tasks): (i64, i64) = sqlx::query_as(
        "SELECT (SELECT count(*) FROM tidegate.cron_fires f JOIN tidegate.tasks t USING (task_id) \
         WHERE f.outcome = 'FIRED' AND f.fire_at = t.due_at), (SELECT count(*) FROM tidegate.tasks)",
    )
    .fetch_one(&db.sql)
    .await
    .unwrap();
    assert_eq!(fires, tasks, "each task belongs to one recorded occurrence");
}

#[tokio::test]
async fn settings_of_the_row_reach_the_task() {
    let db = Database::create().await;
    db.execute(
        "INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression, payload, payload_version, routing_key, \
         exchange, max_retries, timeout_ms, priority, time_zone) VALUES \
         ('x', 'a.b', '@daily', '{}', 3, 'a.special', 'other', 0, 1500, 210, 'Asia/Shanghai')",
    )
    .await;
    pass(&db.store).await;
    let at = next(&db).await.unwrap();
    assert_eq!(
        at.format("%H:%M:%S").to_string(),
        "16:00:00",
        "midnight in Shanghai"
    );
    db.execute("UPDATE tidegate.cron_tasks SET next_fire_at = date_trunc('second', now())")
        .await;
    pass(&db.store).await;
    let task = db.store.tasks().lock_due(10).await.unwrap();
    let task = &task.tasks()[0];
    assert_eq!(
        (task.routing_key.as_deref(), task.exchange.as_deref()),
        (Some("a.special"), Some("other"))
    );
    assert_eq!(task.priority, 210);
    let parsed = Envelope::parse(task.envelope.as_bytes(), &Limits::standard(), Utc::now()).unwrap();
    assert_eq!(
        (parsed.payload_version, parsed.max_retries, parsed.priority),
        (3, Some(0), 210)
    );
    assert_eq!(parsed.timeout, Some(Duration::from_millis(1_500)));
}

/// One bad row stops nobody else, and says what is wrong with it.
#[tokio::test]
async fn bad_rows_are_flagged_while_a_good_one_fires() {
    let db = Database::create().await;
    db.execute(
        "INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression, payload, time_zone) VALUES \
         ('bad zone', 'a.b', '* * * * * *', '{}', 'Mars/Phobos'), \
         ('bad minute', 'a.b', '61 * * * *', '{}', 'UTC'), \
         ('bad date', 'a.b', '0 0 30 2 *', '{}', 'UTC'), \
         ('bad words', 'a.b', 'every day', '{}', 'UTC'), \
         ('bad empty', 'a.b', '', '{}', 'UTC'), \
         ('bad sql null', 'a.b', '* * * * * *', NULL, 'UTC'), \
         ('bad json null', 'a.b', '* * * * * *', 'null', 'UTC'), \
         ('bad array', 'a.b', '* * * * * *', '[1]', 'UTC'), \
         ('bad number', 'a.b', '* * * * * *', '{\"n\": 9007199254740993}', 'UTC'), \
         ('bad depth', 'a.b', '* * * * * *', '{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{}}}}}}', 'UTC'), \
         ('bad type', 'Not A Type', '* * * * * *', '{}', 'UTC'), \
         ('good', 'a.b', '* * * * * *', '{}', 'UTC')",
    )
    .await;
    // Rows whose time was set by hand, and which turn out to be bad only when they are due.
    db.execute(
        "INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression, payload, next_fire_at) VALUES \
         ('bad and due', 'a.b', 'nonsense', '{}', '1999-12-31T23:59:59Z'), \
         ('bad and future', 'a.b', 'nonsense', '{}', '9999-01-01T00:00:00Z')",
    )
    .await;
    let scheduler = ClaimLoop::start(&db.store);
    eventually(SOON, "three fires of the good row", || async {
        let fires: i64 = db
            .one("SELECT count(*) FROM tidegate.cron_fires f JOIN tidegate.cron_tasks c ON c.id = cron_task_id WHERE name = 'good'")
            .await;
        (fires >= 3).then_some(())
    })
    .await;
    let flagged: Vec<(String, String)> = sqlx::query_as(
        "SELECT name, last_error FROM tidegate.cron_tasks WHERE last_error IS NOT NULL ORDER BY name",
    )
    .fetch_all(&db.sql)
    .await
    .unwrap();
    let names: Vec<&str> = flagged.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "bad and due",
            "bad array",
            "bad date",
            "bad depth",
            "bad empty",
            "bad json null",
            "bad minute",
            "bad number",
            "bad sql null",
            "bad type",
            "bad words",
            "bad zone"
        ],
        "{flagged:#?}"
    );
    assert!(
        flagged
            .iter()
            .any(|(name, why)| name == "bad zone" && why.contains("Mars/Phobos")),
        "{flagged:#?}"
    );
    assert_eq!(db.store.cron_tasks().in_error().await.unwrap(), 12);
    let others: i64 = db
        .one("SELECT count(*) FROM tidegate.cron_fires f JOIN tidegate.cron_tasks c ON c.id = cron_task_id WHERE name <> 'good'")
        .await;
    assert_eq!(others, 0);

    db.execute("UPDATE tidegate.cron_tasks SET time_zone = 'Europe/Berlin' WHERE name = 'bad zone'")
        .await;
    eventually(SOON, "the corrected row fires", || async {
        let fires: i64 = db
            .one("SELECT count(*) FROM tidegate.cron_fires f JOIN tidegate.cron_tasks c ON c.id = cron_task_id WHERE name = 'bad zone'")
            .await;
        (fires > 0).then_some(())
    })
    .await;
    scheduler.stop().await;
}

/// What the tables refuse at the door.
#[tokio::test]
async fn values_that_no_client_could_read_are_refused() {
    let db = Database::create().await;
    for bad in [
        "INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression, next_fire_at) VALUES ('x', 'a.b', '@daily', 'infinity')",
        "INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression, starts_at) VALUES ('x', 'a.b', '@daily', '-infinity')",
        "INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression, misfire_policy) VALUES ('x', 'a.b', '@daily', 'maybe')",
        "INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression, priority) VALUES ('x', 'a.b', '@daily', 256)",
        "INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression, payload) VALUES ('x', 'a.b', '@daily', '{\"a\": \"\\u0000\"}')",
        "INSERT INTO tidegate.tasks (task_id, task_type, envelope) VALUES ('a b', 'a.b', '{}')",
        "INSERT INTO tidegate.tasks (task_id, task_type, envelope, state) VALUES ('a', 'a.b', '{}', 'LOST')",
        "INSERT INTO tidegate.tasks (task_id, task_type, envelope, due_at) VALUES ('a', 'a.b', '{}', '200000-01-01T00:00:00Z')",
        "INSERT INTO tidegate.tasks (task_id, task_type, envelope) VALUES ('a', 'a.b', repeat('x', 65537))",
    ] {
        assert!(sqlx::query(bad).execute(&db.sql).await.is_err(), "{bad}");
    }
}

#[tokio::test]
async fn an_edit_wakes_a_sleeping_scheduler() {
    let db = Database::create().await;
    db.execute(
        "INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression) VALUES ('x', 'a.b', '@yearly')",
    )
    .await;
    let scheduler = ClaimLoop::start(&db.store);
    eventually(SOON, "the first time", || next(&db)).await;
    db.execute("UPDATE tidegate.cron_tasks SET cron_expression = '* * * * * *'")
        .await;
    // Far below the regular scan of 15 s.
    eventually(Duration::from_secs(5), "a fire", || async {
        (db.one::<i64>("SELECT count(*) FROM tidegate.cron_fires").await > 0).then_some(())
    })
    .await;
    scheduler.stop().await;
}

#[tokio::test]
async fn nothing_fires_outside_starts_at_and_ends_at() {
    let db = Database::create().await;
    db.execute(
        "INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression, starts_at, ends_at) VALUES \
         ('x', 'a.b', '* * * * * *', date_trunc('second', now()) + interval '2 s', date_trunc('second', now()) + interval '5 s')",
    )
    .await;
    let scheduler = ClaimLoop::start(&db.store);
    eventually(SOON, "the end", || async {
        db.one::<bool>("SELECT exhausted FROM tidegate.cron_tasks")
            .await
            .then_some(())
    })
    .await;
    scheduler.stop().await;
    let fired: Vec<bool> = sqlx::query_scalar(
        "SELECT fire_at >= starts_at AND fire_at < ends_at FROM tidegate.cron_fires JOIN tidegate.cron_tasks ON id = cron_task_id",
    )
    .fetch_all(&db.sql)
    .await
    .unwrap();
    assert_eq!(fired, [true; 3]);

    db.execute("UPDATE tidegate.cron_tasks SET ends_at = NULL").await;
    pass(&db.store).await;
    assert!(next(&db).await.is_some(), "a later end wakes it again");
}

#[tokio::test]
async fn overlap_skip_waits_for_the_task_before() {
    let db = Database::create().await;
    db.execute(
        "INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression, overlap_policy) VALUES ('x', 'a.b', '@hourly', 'skip')",
    )
    .await;
    pass(&db.store).await;
    let due = "UPDATE tidegate.cron_tasks SET next_fire_at = date_trunc('second', now())";
    let outcomes = || async {
        sqlx::query_scalar::<_, String>("SELECT outcome FROM tidegate.cron_fires ORDER BY fire_at")
            .fetch_all(&db.sql)
            .await
            .unwrap()
    };
    let mut expected = Vec::new();
    for (state, outcome) in [
        ("", "FIRED"),
        ("RUNNING", "SKIPPED_OVERLAP"),
        ("SUCCESS", "FIRED"),
        ("PENDING", "SKIPPED_OVERLAP"),
    ] {
        if !state.is_empty() {
            sqlx::query("UPDATE tidegate.tasks SET state = $1")
                .bind(state)
                .execute(&db.sql)
                .await
                .unwrap();
        }
        // Each occurrence needs a second of its own.
        eventually(SOON, "the next second", || async {
            sqlx::query(due).execute(&db.sql).await.unwrap();
            pass(&db.store).await;
            (outcomes().await.len() > expected.len()).then_some(())
        })
        .await;
        expected.push(outcome);
        assert_eq!(outcomes().await, expected);
    }
}

#[tokio::test]
async fn any_name_makes_a_valid_and_stable_task_id() {
    let db = Database::create().await;
    let names = [
        "täglich um neun",
        "a/b",
        &"n".repeat(255),
        "plain.name_1",
        "x'; DROP TABLE tidegate.tasks; --",
    ];
    for name in names {
        sqlx::query("INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression, next_fire_at) VALUES ($1, 'a.b', '@daily', '2026-01-01Z')")
            .bind(name)
            .execute(&db.sql)
            .await
            .unwrap();
    }
    db.execute("UPDATE tidegate.cron_tasks SET next_fire_at = date_trunc('second', now())")
        .await;
    pass(&db.store).await;
    let ids: Vec<String> = sqlx::query_scalar("SELECT task_id FROM tidegate.tasks")
        .fetch_all(&db.sql)
        .await
        .unwrap();
    assert_eq!(ids.len(), names.len());
    for id in &ids {
        assert!(TaskId::parse(id).is_ok(), "{id}");
    }
    // The same row again at the same instant is the same task, even after it was deleted and registered anew.
    db.execute("CREATE TABLE kept AS SELECT name, max(fire_at) AS at FROM tidegate.cron_fires JOIN tidegate.cron_tasks ON id = cron_task_id GROUP BY name").await;
    db.execute("DELETE FROM tidegate.cron_tasks").await;
    db.execute("INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression, next_fire_at) SELECT name, 'a.b', '@daily', at FROM kept").await;
    pass(&db.store).await;
    assert_eq!(
        db.one::<i64>("SELECT count(*) FROM tidegate.tasks").await,
        names.len() as i64
    );
}

/// A row that takes neither what was decided nor a flag was tried without a pause, and the log claimed that it was flagged.
#[tokio::test]
async fn a_row_that_takes_nothing_is_left_alone_for_a_while() {
    let db = Database::create().await;
    db.execute(
        "INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression, next_fire_at, version) VALUES \
         ('counted-out', 'a.b', '* * * * * *', date_trunc('second', now()), 9223372036854775807), \
         ('vetoed', 'a.b', '* * * * * *', date_trunc('second', now()), 0), \
         ('well', 'a.b', '@daily', date_trunc('second', now()), 0)",
    )
    .await;
    db.execute(
        "CREATE FUNCTION veto() RETURNS trigger LANGUAGE plpgsql AS \
         $$BEGIN PERFORM nextval('tries'); RAISE EXCEPTION 'no' USING ERRCODE = 'SHOP1'; END$$",
    )
    .await;
    db.execute("CREATE SEQUENCE tries").await;
    db.execute("CREATE TRIGGER veto BEFORE UPDATE ON tidegate.cron_tasks FOR EACH ROW WHEN (OLD.name = 'vetoed') EXECUTE FUNCTION veto()")
        .await;
    let running = crate::scheduler::ClaimLoop::start(&db.store);
    crate::support::eventually(crate::support::SOON, "the row beside them", async || {
        db.one::<bool>("SELECT EXISTS (SELECT FROM tidegate.cron_fires)")
            .await
    })
    .await;
    // Two tries, each a write in halves and a flag; without a rest there are hundreds by now.
    crate::support::eventually(crate::support::SOON, "another try", async || {
        db.one::<i64>("SELECT last_value FROM tries").await >= 5
    })
    .await;
    let started = db
        .one::<chrono::DateTime<chrono::Utc>>("SELECT recorded_at FROM tidegate.cron_fires")
        .await;
    let now = db
        .one::<chrono::DateTime<chrono::Utc>>("SELECT clock_timestamp()")
        .await;
    assert!(
        now - started > chrono::TimeDelta::milliseconds(800),
        "it was tried again after {}",
        now - started
    );
    assert_eq!(
        db.one::<i64>(
            "SELECT count(*) FROM tidegate.cron_tasks WHERE last_error IS NULL AND next_fire_at IS NOT NULL"
        )
        .await,
        3
    );
    running.stop().await;
}
