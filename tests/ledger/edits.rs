//! B62: edits by every route a client has. They take effect at once, from now: nothing fires at once, no old time is kept.

use chrono::{DateTime, Utc};

use crate::{scheduler::pass, support::Database};

/// `next_fire_at` of the row called `x`.
async fn next(db: &Database) -> Option<DateTime<Utc>> {
    db.one("SELECT next_fire_at::timestamptz FROM tidegate.cron_tasks WHERE name = 'x'")
        .await
}

/// Edited, disabled or enabled by any client: the next time is computed from now, nothing fires at once.
#[tokio::test]
async fn an_edit_computes_the_next_time_from_now() {
    let db = Database::create().await;
    db.execute(
        "INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression) VALUES ('x', 'a.b', '0 9 * * *')",
    )
    .await;
    pass(&db.store).await;
    let nine = next(&db).await.unwrap();
    assert_eq!(nine.format("%H:%M").to_string(), "09:00");

    db.execute("UPDATE tidegate.cron_tasks SET cron_expression = '0 17 * * *'")
        .await;
    assert_eq!(next(&db).await, None, "the old time is gone at once");
    pass(&db.store).await;
    assert_eq!(next(&db).await.unwrap().format("%H:%M").to_string(), "17:00");

    db.execute("UPDATE tidegate.cron_tasks SET cron_expression = '0 9 * * *'")
        .await;
    pass(&db.store).await;
    assert_eq!(next(&db).await, Some(nine));

    db.execute("UPDATE tidegate.cron_tasks SET time_zone = 'Asia/Tokyo'")
        .await;
    pass(&db.store).await;
    assert_eq!(next(&db).await.unwrap().format("%H:%M").to_string(), "00:00");

    // Due, but changed before anyone claimed it: the old tick is gone.
    db.execute("UPDATE tidegate.cron_tasks SET next_fire_at = now() - interval '1 hour'")
        .await;
    db.execute("UPDATE tidegate.cron_tasks SET cron_expression = '30 9 * * *'")
        .await;
    pass(&db.store).await;

    // Disabled past its due time, then enabled.
    db.execute("UPDATE tidegate.cron_tasks SET next_fire_at = now() - interval '1 hour'")
        .await;
    db.execute("UPDATE tidegate.cron_tasks SET enabled = false").await;
    assert_eq!(pass(&db.store).await, 0);
    db.execute("UPDATE tidegate.cron_tasks SET enabled = true").await;
    pass(&db.store).await;
    assert!(next(&db).await.unwrap() > Utc::now());

    // What it sends may change without losing its time: it is looked at anew, and has it again.
    let before = next(&db).await;
    db.execute("UPDATE tidegate.cron_tasks SET payload = '{\"n\": 1}'")
        .await;
    assert_eq!(next(&db).await, None);
    pass(&db.store).await;
    assert_eq!(next(&db).await, before);
    assert_eq!(db.one::<i64>("SELECT count(*) FROM tidegate.cron_fires").await, 0);
    assert_eq!(db.one::<i64>("SELECT count(*) FROM tidegate.tasks").await, 0);
}

/// An edit of what a row sends: a mistake shows within one scan, not when the row is due, and without one the time is the
/// same, even if it passes before anybody has looked, or was set by hand.
#[tokio::test]
async fn an_edit_of_what_it_sends_is_checked_at_once_and_moves_nothing() {
    let db = Database::create().await;
    db.execute(
        "INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression) VALUES ('x', 'a.b', '@yearly')",
    )
    .await;
    pass(&db.store).await;
    for broken in [
        "UPDATE tidegate.cron_tasks SET payload = '{\"a\": \"{{ nope }}\"}'",
        "UPDATE tidegate.cron_tasks SET payload = NULL",
        "UPDATE tidegate.cron_tasks SET task_type = 'NoType'",
    ] {
        db.execute(broken).await;
        pass(&db.store).await;
        let error: Option<String> = db.one("SELECT last_error FROM tidegate.cron_tasks").await;
        assert!(error.is_some() && next(&db).await.is_none(), "{broken}");
        db.execute("UPDATE tidegate.cron_tasks SET payload = '{}', task_type = 'a.b'")
            .await;
        pass(&db.store).await;
        assert!(next(&db).await.is_some(), "{broken}, put right");
    }

    db.execute(
        "UPDATE tidegate.cron_tasks SET next_fire_at = date_trunc('second', now()) + interval '1 hour'",
    )
    .await;
    let by_hand = next(&db).await;
    db.execute("UPDATE tidegate.cron_tasks SET priority = 7").await;
    db.execute("UPDATE tidegate.cron_tasks SET jitter_ms = 0, owner = 'x', max_retries = 2")
        .await;
    pass(&db.store).await;
    assert_eq!(next(&db).await, by_hand);

    // It passes before the scheduler has looked.
    db.execute("UPDATE tidegate.cron_tasks SET next_fire_at = now() + interval '300 ms'")
        .await;
    let soon = next(&db).await;
    db.execute("UPDATE tidegate.cron_tasks SET priority = 8").await;
    assert_eq!(next(&db).await, None);
    while !db
        .one::<bool>("SELECT kept_fire_at < now() FROM tidegate.cron_tasks")
        .await
    {}
    pass(&db.store).await;
    let fired: Option<DateTime<Utc>> = db
        .one("SELECT max(fire_at)::timestamptz FROM tidegate.cron_fires WHERE outcome = 'FIRED'")
        .await;
    assert_eq!(fired, soon);

    // An overdue one is left alone.
    db.execute("UPDATE tidegate.cron_tasks SET next_fire_at = now()")
        .await;
    let due = next(&db).await;
    db.execute("UPDATE tidegate.cron_tasks SET priority = 9").await;
    assert_eq!(next(&db).await, due);
}

/// Ways to say the same: the expression is another one. The row is due as they are tried.
const ROUTES: [(&str, &str); 9] = [
    (
        "UPDATE",
        "UPDATE tidegate.cron_tasks SET cron_expression = '30 17 * * *' WHERE name = 'x'",
    ),
    (
        "an ORM that writes every column, with a version that it counts itself",
        "UPDATE tidegate.cron_tasks SET name = name, task_type = task_type, cron_expression = '30 17 * * *', time_zone = time_zone, \
         payload = payload, enabled = enabled, next_fire_at = next_fire_at, version = version + 1 WHERE name = 'x'",
    ),
    (
        "and sets the time that it has read as well",
        "UPDATE tidegate.cron_tasks SET cron_expression = '30 17 * * *', next_fire_at = '2020-01-01Z', version = 1000 WHERE name = 'x'",
    ),
    (
        "upsert",
        "INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression) VALUES ('x', 'a.b', '30 17 * * *') \
         ON CONFLICT (name) DO UPDATE SET cron_expression = excluded.cron_expression",
    ),
    (
        "MERGE",
        "MERGE INTO tidegate.cron_tasks c USING (VALUES ('x', '30 17 * * *')) v (name, expression) ON c.name = v.name \
         WHEN MATCHED THEN UPDATE SET cron_expression = v.expression",
    ),
    (
        "UPDATE FROM",
        "UPDATE tidegate.cron_tasks c SET cron_expression = v.expression FROM (VALUES ('x', '30 17 * * *')) v (name, expression) WHERE c.name = v.name",
    ),
    (
        "a view",
        "UPDATE by_view SET cron_expression = '30 17 * * *' WHERE name = 'x'",
    ),
    ("a function", "SELECT by_function('x', '30 17 * * *')"),
    (
        "WITH",
        "WITH changed AS (UPDATE tidegate.cron_tasks SET cron_expression = '30 17 * * *' WHERE name = 'x' RETURNING id) SELECT id FROM changed",
    ),
];

#[tokio::test]
async fn every_route_of_an_edit_counts() {
    let db = Database::create().await;
    db.execute("CREATE VIEW by_view AS SELECT name, cron_expression FROM tidegate.cron_tasks")
        .await;
    db.execute(
        "CREATE FUNCTION by_function(text, text) RETURNS void LANGUAGE sql AS \
         'UPDATE tidegate.cron_tasks SET cron_expression = $2 WHERE name = $1'",
    )
    .await;
    for (route, sql) in ROUTES {
        db.execute("DELETE FROM tidegate.cron_tasks").await;
        db.execute("INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression) VALUES ('x', 'a.b', '0 9 * * *')")
            .await;
        pass(&db.store).await;
        db.execute("UPDATE tidegate.cron_tasks SET next_fire_at = now() - interval '1 s'")
            .await;
        let before: i64 = db.one("SELECT version FROM tidegate.cron_tasks").await;
        db.execute(sql).await;
        assert_eq!(next(&db).await, None, "{route}: the old time is gone at once");
        assert!(
            db.one::<i64>("SELECT version FROM tidegate.cron_tasks").await > before,
            "{route}"
        );
        pass(&db.store).await;
        assert_eq!(
            next(&db).await.unwrap().format("%H:%M:%S").to_string(),
            "17:30:00",
            "{route}"
        );
        assert!(next(&db).await.unwrap() > Utc::now(), "{route}");
        assert_eq!(
            db.one::<i64>("SELECT count(*) FROM tidegate.cron_fires").await,
            0,
            "{route}: nothing fires"
        );
    }
}

/// Each part of what decides when a row fires, changed alone.
#[tokio::test]
async fn every_part_of_the_schedule_counts() {
    let db = Database::create().await;
    for part in [
        "cron_expression = '1 9 * * *'",
        "time_zone = 'Asia/Tokyo'",
        "starts_at = now() + interval '2 days'",
        "ends_at = now() + interval '20 days'",
    ] {
        db.execute("DELETE FROM tidegate.cron_tasks").await;
        db.execute(
            "INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression, next_fire_at) VALUES ('x', 'a.b', '0 9 * * *', now() - interval '1 s')",
        )
        .await;
        sqlx::query(sqlx::AssertSqlSafe(format!(
            "UPDATE tidegate.cron_tasks SET {part}"
        )))
        .execute(&db.sql)
        .await
        .unwrap();
        assert_eq!(next(&db).await, None, "{part}");
        pass(&db.store).await;
        assert!(next(&db).await.unwrap() > Utc::now(), "{part}");
        assert_eq!(
            db.one::<i64>("SELECT count(*) FROM tidegate.cron_fires").await,
            0,
            "{part}"
        );
    }
}

/// B57: two rows can't have one name, so two tasks can't have one id.
#[tokio::test]
async fn a_name_is_there_once() {
    let db = Database::create().await;
    let insert =
        "INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression) VALUES ('x', 'a.b', '@daily')";
    db.execute(insert).await;
    let error = sqlx::query(insert)
        .execute(&db.sql)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("cron_tasks_name_key"), "{error}");
}

/// However rows are deleted, by whoever may, their history goes with them.
#[tokio::test]
async fn the_history_goes_with_its_row() {
    let db = Database::create().await;
    let mut team = db.sql.acquire().await.unwrap();
    let role = format!("team_{}", uuid::Uuid::now_v7().simple());
    let run = async |connection: &mut sqlx::PgConnection, sql: String| {
        sqlx::query(sqlx::AssertSqlSafe(sql))
            .execute(connection)
            .await
            .unwrap();
    };
    run(&mut team, format!("CREATE ROLE {role}")).await;
    run(&mut team, format!("GRANT USAGE ON SCHEMA tidegate TO {role}")).await;
    run(
        &mut team,
        format!("GRANT SELECT, DELETE ON tidegate.cron_tasks TO {role}"),
    )
    .await;
    let insert = "INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression, next_fire_at) \
         SELECT 'job-' || n, 'a.b', '@yearly', date_trunc('second', now()) FROM generate_series(1, 5) n";
    let fires = async || db.one::<i64>("SELECT count(*) FROM tidegate.cron_fires").await;
    db.execute(insert).await;
    pass(&db.store).await;
    assert_eq!(fires().await, 5);
    run(&mut team, format!("SET ROLE {role}")).await;
    run(
        &mut team,
        "DELETE FROM tidegate.cron_tasks WHERE name IN ('job-1', 'job-2')".to_owned(),
    )
    .await;
    run(&mut team, "RESET ROLE".to_owned()).await;
    assert_eq!(fires().await, 3);
    run(&mut team, "TRUNCATE tidegate.cron_tasks".to_owned()).await;
    assert_eq!(fires().await, 0);
    run(&mut team, format!("DROP OWNED BY {role}")).await;
    run(&mut team, format!("DROP ROLE {role}")).await;
}
