//! After an outage: as many runs as the policy says, and every occurrence accounted for.

use std::time::Instant;

use crate::{scheduler::pass, support::Database};

/// Outcomes with their numbers after a schedule of every ten seconds was down for an hour.
async fn after_an_hour(db: &Database, columns: &str, values: &str) -> Vec<(String, i64)> {
    sqlx::query(sqlx::AssertSqlSafe(format!(
        "INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression, next_fire_at{columns}) VALUES ('x', 'a.b', \
         '*/10 * * * * *', date_bin('10 s', now() - interval '1 hour', '2000-01-01Z'){values})"
    )))
    .execute(&db.sql)
    .await
    .unwrap();
    pass(&db.store).await;
    let doubtful: i64 = db
        .one(
            "SELECT count(*) FROM tidegate.cron_fires f LEFT JOIN tidegate.tasks t USING (task_id) \
              WHERE (t.task_id IS NULL) = (f.outcome IN ('FIRED', 'CAUGHT_UP'))",
        )
        .await;
    assert_eq!(doubtful, 0, "tasks exist for what fired, and for nothing else");
    sqlx::query_as(
        "SELECT outcome, sum(occurrences)::bigint FROM tidegate.cron_fires GROUP BY outcome ORDER BY outcome",
    )
    .fetch_all(&db.sql)
    .await
    .unwrap()
}

fn number(outcomes: &[(String, i64)], of: &str) -> i64 {
    outcomes
        .iter()
        .find(|(outcome, _)| outcome == of)
        .map_or(0, |(_, number)| *number)
}

#[tokio::test]
async fn each_policy_makes_up_for_what_it_says() {
    // What is at most a minute late is on time, whatever the policy.
    for (values, caught_up) in [
        (", 'skip', 100", 0),
        (", 'fire_once', 100", 0),
        (", 'catch_up', 50", 50),
    ] {
        let db = Database::create().await;
        let outcomes = after_an_hour(&db, ", misfire_policy, catch_up_limit", values).await;
        let (fired, late) = (number(&outcomes, "FIRED"), number(&outcomes, "CAUGHT_UP"));
        assert!((5..=7).contains(&fired), "{outcomes:?}");
        if caught_up == 0 {
            assert_eq!(late, 0, "{values}: {outcomes:?}");
        } else {
            assert_eq!(fired + late, caught_up, "{values}: {outcomes:?}");
        }
        let all: i64 = outcomes.iter().map(|(_, number)| number).sum();
        assert!(
            (360..=362).contains(&all),
            "every occurrence of the hour is accounted for: {outcomes:?}"
        );
    }
}

#[tokio::test]
async fn a_rare_schedule_that_was_missed_fires_once_or_not() {
    for (policy, outcome) in [
        ("fire_once", "CAUGHT_UP"),
        ("skip", "SKIPPED_MISFIRE"),
        ("catch_up", "CAUGHT_UP"),
    ] {
        let db = Database::create().await;
        sqlx::query(
            "INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression, misfire_policy, next_fire_at) \
             VALUES ('x', 'a.b', '0 0 1 1 *', $1, date_trunc('year', now()))",
        )
        .bind(policy)
        .execute(&db.sql)
        .await
        .unwrap();
        pass(&db.store).await;
        assert_eq!(
            db.one::<String>("SELECT outcome FROM tidegate.cron_fires").await,
            outcome,
            "{policy}"
        );
        pass(&db.store).await;
        assert_eq!(
            db.one::<i64>("SELECT count(*) FROM tidegate.cron_fires").await,
            1,
            "{policy}"
        );
    }
}

/// A month of a row of every five seconds is half a million occurrences, and a handful of rows in one statement.
#[tokio::test]
async fn a_month_of_five_second_ticks_is_worked_off_at_once() {
    let db = Database::create().await;
    db.execute(
        "INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression, next_fire_at) VALUES ('x', 'a.b', \
         '*/5 * * * * *', date_bin('5 s', now() - interval '30 days', '2000-01-01Z'))",
    )
    .await;
    let started = Instant::now();
    assert_eq!(pass(&db.store).await, 1);
    assert!(started.elapsed().as_secs() < 5, "{:?}", started.elapsed());
    let tasks: i64 = db.one("SELECT count(*) FROM tidegate.tasks").await;
    assert!((11..=14).contains(&tasks), "only the last minute fires: {tasks}");
    let (rows, occurrences): (i64, i64) =
        sqlx::query_as("SELECT count(*), sum(occurrences)::bigint FROM tidegate.cron_fires")
            .fetch_one(&db.sql)
            .await
            .unwrap();
    assert_eq!(rows, tasks + 1, "all that were missed are one row");
    assert!((518_400..=518_402).contains(&occurrences), "{occurrences}");
    assert!(
        db.one::<bool>(
            "SELECT bool_and(fire_at <= accounted_until) FROM tidegate.cron_fires, tidegate.cron_tasks"
        )
        .await
    );
}
