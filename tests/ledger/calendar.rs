//! What `cron_fires` accounts for, compared with the calendar.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use tidegate_core::cron::Schedule;

use crate::support::Database;

/// Rows of `cron_fires`, spans written out one by one.
async fn fires(sql: &mut PgConnection) -> HashMap<i64, Vec<DateTime<Utc>>> {
    type Fire = (i64, String, DateTime<Utc>, DateTime<Utc>, i64);
    let spans: Vec<Fire> = sqlx::query_as(
        "SELECT c.id, c.cron_expression, f.fire_at::timestamptz, coalesce(f.last_at, f.fire_at)::timestamptz, f.occurrences \
         FROM tidegate.cron_fires f JOIN tidegate.cron_tasks c ON c.id = f.cron_task_id \
         WHERE f.outcome <> 'MANUAL' ORDER BY f.fire_at",
    )
    .fetch_all(sql)
    .await
    .unwrap();
    let mut by_row: HashMap<i64, Vec<DateTime<Utc>>> = HashMap::new();
    for (id, expression, first, last, occurrences) in spans {
        let schedule = Schedule::parse(&expression, "UTC").unwrap();
        let all = by_row.entry(id).or_default();
        let before = all.len();
        all.extend(
            std::iter::successors(Some(first), |at| schedule.next_after(*at)).take_while(|at| *at <= last),
        );
        assert_eq!(
            (all.len() - before) as i64,
            occurrences,
            "row {id}: {first} to {last}"
        );
    }
    by_row
}

/// Asserts that what is recorded of each row is exactly the occurrences of its schedule between its first and its
/// next, at least so many, and that each that fired has its task.
pub(crate) async fn assert_nothing_missing_or_double(db: &Database, at_least: usize) {
    // At one moment: the last statement of an instance that was ended may still be under way.
    let mut sql = db.sql.begin().await.unwrap();
    sqlx::query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        .execute(&mut *sql)
        .await
        .unwrap();
    let rows: Vec<(i64, String, DateTime<Utc>)> =
        sqlx::query_as("SELECT id, cron_expression, next_fire_at::timestamptz FROM tidegate.cron_tasks")
            .fetch_all(&mut *sql)
            .await
            .unwrap();
    let mut recorded = fires(&mut sql).await;
    for (id, expression, next) in rows {
        let found = recorded.remove(&id).unwrap_or_default();
        assert!(
            found.len() >= at_least,
            "row {id} {expression:?} has {} occurrences",
            found.len()
        );
        let schedule = Schedule::parse(&expression, "UTC").unwrap();
        let expected: Vec<_> = std::iter::successors(found.first().copied(), |at| schedule.next_after(*at))
            .take_while(|at| *at < next)
            .collect();
        assert_eq!(found, expected, "row {id} {expression:?}");
    }
    let doubtful = "SELECT count(*) FROM tidegate.cron_fires f FULL JOIN tidegate.tasks t ON t.task_id = f.task_id \
         LEFT JOIN tidegate.cron_tasks c ON c.id = f.cron_task_id \
         WHERE f.cron_task_id IS NULL OR (f.outcome IN ('FIRED', 'CAUGHT_UP')) <> (t.task_id IS NOT NULL) \
            OR t.due_at NOT BETWEEN f.fire_at AND f.fire_at + c.jitter_ms * interval '1 ms'";
    let doubtful: i64 = sqlx::query_scalar(doubtful).fetch_one(&mut *sql).await.unwrap();
    assert_eq!(
        doubtful, 0,
        "one task per occurrence that fired, at its time, and no other task"
    );
    let behind = "SELECT count(*) FROM tidegate.cron_tasks c WHERE c.accounted_until IS DISTINCT FROM \
         (SELECT max(coalesce(f.last_at, f.fire_at)) FROM tidegate.cron_fires f WHERE f.cron_task_id = c.id AND f.outcome <> 'MANUAL')";
    let behind: i64 = sqlx::query_scalar(behind).fetch_one(&mut *sql).await.unwrap();
    assert_eq!(behind, 0, "accounted_until is the last occurrence on record");
}
