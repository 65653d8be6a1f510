//! Lists of tasks: every task once, in the stated order, page by page.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use tidegate::store::tasks::{
    TaskRecord,
    list::{Cursor, Filter},
};
use tidegate_core::lifecycle::TaskState;

use crate::support::Database;

/// Thirty tasks in each state; many share their instants.
async fn filled() -> Database {
    let db = Database::create().await;
    db.execute(
        "INSERT INTO tidegate.tasks (task_id, task_type, envelope, due_at, state, published_at, finished_at, last_error) \
         SELECT state || n, CASE WHEN n % 2 = 0 THEN 'a.even' ELSE 'a.odd' END, '{}', \
           '2026-01-01T00:00:00Z'::timestamptz + (n / 7) * interval '1 hour', state, \
           CASE WHEN state NOT IN ('PENDING', 'CANCELED') AND n % 5 > 0 THEN now() + (n / 4) * interval '1 minute' END, \
           CASE WHEN state IN ('SUCCESS', 'FAILED', 'CANCELED') THEN now() + (n / 3) * interval '1 minute' END, \
           CASE WHEN state = 'FAILED' THEN 'why' END \
         FROM generate_series(1, 30) n, \
           unnest(ARRAY['PENDING', 'PUBLISHED', 'RUNNING', 'RETRYING', 'SUCCESS', 'FAILED', 'CANCELED']) state",
    )
    .await;
    db
}

async fn all(db: &Database, filter: &Filter, limit: u32) -> Vec<TaskRecord> {
    let (mut all, mut after): (_, Option<Cursor>) = (Vec::new(), None);
    loop {
        let page = db
            .store
            .tasks()
            .list(filter, after.as_ref(), limit)
            .await
            .unwrap();
        assert!(page.tasks.len() <= limit as usize);
        all.extend(page.tasks);
        match page.next {
            // As it goes over the command line.
            Some(next) => after = Some(Cursor::parse(&next.to_string()).unwrap()),
            None => return all,
        }
    }
}

fn place(task: &TaskRecord) -> (bool, i64) {
    let micros = |at: Option<DateTime<Utc>>| at.map_or(i64::MIN, |at| at.timestamp_micros());
    if task.state == "PENDING" {
        (false, micros(task.next_try_at.or(Some(task.due_at))))
    } else {
        // Latest first; those without a time before all.
        let at = task.finished_at.or(task.published_at);
        (true, at.map_or(i64::MIN, |at| -at.timestamp_micros()))
    }
}

#[tokio::test]
async fn pages_of_any_size_hold_every_task_once_in_order() {
    let db = filled().await;
    for limit in [1, 7, 30, 209, 210, 1_000] {
        let tasks = all(&db, &Filter::default(), limit).await;
        let ids: BTreeSet<&str> = tasks.iter().map(|task| task.task_id.as_str()).collect();
        assert_eq!((tasks.len(), ids.len()), (210, 210), "limit {limit}");
        assert!(
            tasks.windows(2).all(|pair| place(&pair[0]) <= place(&pair[1])),
            "limit {limit}"
        );
    }
}

#[tokio::test]
async fn every_filter_holds() {
    let db = filled().await;
    for state in TaskState::ALL {
        let filter = Filter {
            states: vec![*state],
            ..Filter::default()
        };
        let tasks = all(&db, &filter, 11).await;
        assert_eq!(tasks.len(), 30, "{state}");
        assert!(tasks.iter().all(|task| task.state == state.as_str()));
    }
    let at = |hour: u32| {
        format!("2026-01-01T{hour:02}:00:00Z")
            .parse::<DateTime<Utc>>()
            .unwrap()
    };
    let filter = Filter {
        states: vec![TaskState::Pending, TaskState::Failed],
        task_type: Some("a.even".to_owned()),
        due_after: Some(at(1)),
        due_before: Some(at(3)),
        with_error: false,
    };
    // n from 7 to 20, the even ones of two states.
    let tasks = all(&db, &filter, 3).await;
    assert_eq!(tasks.len(), 14, "{tasks:?}");
    assert!(
        tasks
            .iter()
            .all(|task| task.due_at >= at(1) && task.due_at < at(3) && task.task_type == "a.even")
    );
    let filter = Filter {
        with_error: true,
        ..Filter::default()
    };
    assert_eq!(all(&db, &filter, 100).await.len(), 30);
}

/// What comes and goes between two pages neither hides nor doubles the rest.
#[tokio::test]
async fn a_page_goes_on_where_the_last_one_ended() {
    let db = filled().await;
    let filter = Filter {
        states: vec![TaskState::Pending],
        ..Filter::default()
    };
    let first = db.store.tasks().list(&filter, None, 10).await.unwrap();
    let last = first.tasks.last().unwrap().task_id.clone();
    sqlx::query("DELETE FROM tidegate.tasks WHERE task_id = $1")
        .bind(&last)
        .execute(&db.sql)
        .await
        .unwrap();
    db.execute("INSERT INTO tidegate.tasks (task_id, task_type, envelope, due_at) VALUES ('first', 'a.b', '{}', '2020-01-01')").await;
    let rest = db
        .store
        .tasks()
        .list(&filter, first.next.as_ref(), 100)
        .await
        .unwrap();
    assert_eq!(rest.tasks.len(), 20);
    assert!(rest.next.is_none());
}
