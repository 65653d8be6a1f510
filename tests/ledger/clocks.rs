//! B58: clocks that are wrong. The instances' own are never asked; the database's may step.

use crate::{calendar::assert_nothing_missing_or_double, scheduler::pass, support::Database};

/// Lets every session opened from here on see a clock that [`shift`] sets.
async fn own_clock(db: &Database) {
    for sql in [
        "CREATE SCHEMA fake",
        "CREATE TABLE fake.clock AS SELECT interval '0' AS shift",
        "CREATE FUNCTION fake.now() RETURNS timestamptz LANGUAGE sql STABLE AS \
         'SELECT pg_catalog.now() + (SELECT shift FROM fake.clock)'",
        "CREATE FUNCTION fake.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS \
         'SELECT pg_catalog.clock_timestamp() + (SELECT shift FROM fake.clock)'",
        // What the search path names before pg_catalog hides what is there.
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = fake, pg_catalog, public', current_database()); END $$",
    ] {
        db.execute(sql).await;
    }
}

async fn shift(db: &Database, by: &str) {
    sqlx::query("UPDATE fake.clock SET shift = $1::interval")
        .bind(by)
        .execute(&db.sql)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_clock_that_steps_misses_and_doubles_nothing() {
    let db = Database::create().await;
    own_clock(&db).await;
    db.execute(
        "INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression, misfire_policy, catch_up_limit) VALUES \
         ('caught up', 'a.b', '*/10 * * * * *', 'catch_up', 1000), ('skipped', 'a.b', '*/7 * * * * *', 'skip', 1)",
    )
    .await;
    let store = db.another_store();
    pass(&store).await;
    let accounted = async || {
        db.one::<i64>("SELECT coalesce(sum(occurrences), 0)::bigint FROM tidegate.cron_fires")
            .await
    };
    let before = accounted().await;
    shift(&db, "1 hour").await;
    pass(&store).await;
    let forward = accounted().await;
    assert!(forward >= before + 895, "an hour of both: {forward}");
    for back in ["59 minutes 30 s", "0", "-1 hour"] {
        shift(&db, back).await;
        pass(&store).await;
        assert_eq!(accounted().await, forward, "{back}");
        // An edit meanwhile, to an expression that matches the same instants, or another one.
        for expression in [
            "*/20 * * * * *",
            "* * * * * *",
            "0-59/10 * * * * *",
            "*/10 * * * * *",
        ] {
            sqlx::query("UPDATE tidegate.cron_tasks SET cron_expression = $1 WHERE name = 'caught up'")
                .bind(expression)
                .execute(&db.sql)
                .await
                .unwrap();
            pass(&store).await;
        }
        db.execute("UPDATE tidegate.cron_tasks SET enabled = false").await;
        db.execute("UPDATE tidegate.cron_tasks SET enabled = true").await;
        pass(&store).await;
        assert_eq!(accounted().await, forward, "{back}, after edits");
        assert!(
            db.one::<bool>("SELECT bool_and(next_fire_at > accounted_until) FROM tidegate.cron_tasks")
                .await,
            "what comes next comes after what was"
        );
    }
    shift(&db, "2 hours").await;
    pass(&store).await;
    assert!(accounted().await >= forward + 895, "the hour after it");
    assert_nothing_missing_or_double(&db, 700).await;
}
