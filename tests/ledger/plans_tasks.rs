//! The statements that are run again and again read what they need by an index and sort nothing, at any size of the
//! table: 200,000 rows here, a million with `TIDEGATE_LONG`.

use sqlx::{Executor, PgConnection};

use crate::support::Database;

/// A session as the store's.
async fn session(db: &Database) -> PgConnection {
    let mut session = db.sql.acquire().await.unwrap().detach();
    session
        .execute("SET enable_bitmapscan = off; SET plan_cache_mode = force_custom_plan")
        .await
        .unwrap();
    session
}

async fn plan(session: &mut PgConnection, sql: &str) -> String {
    let lines: Vec<String> = sqlx::query_scalar(sqlx::AssertSqlSafe(format!(
        "EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off) {sql}"
    )))
    .fetch_all(session)
    .await
    .unwrap();
    lines.join("\n")
}

/// Rows: nine of ten wait, due from yesterday to tomorrow; the others have gone in all ways.
async fn fill(db: &Database, rows: i64) {
    sqlx::query(
        "INSERT INTO tidegate.tasks (task_id, task_type, envelope, due_at, state, published_at, finished_at) \
         SELECT 't' || n, 'a.b', '{\"taskId\":\"t' || n || '\",\"taskType\":\"a.b\",\"payload\":{}}', \
           now() + (n - $1 / 2) * interval '172800 s' / $1, \
           CASE WHEN n % 10 > 0 THEN 'PENDING' WHEN n % 20 = 0 THEN 'SUCCESS' ELSE 'PUBLISHED' END, \
           CASE WHEN n % 10 = 0 THEN now() - n * interval '1 ms' END, CASE WHEN n % 20 = 0 THEN now() END \
         FROM generate_series(1, $1) n",
    )
    .bind(rows)
    .execute(&db.sql)
    .await
    .unwrap();
}

#[tokio::test]
async fn the_relay_reads_by_index_and_sorts_nothing() {
    let rows = if std::env::var_os("TIDEGATE_LONG").is_some() {
        1_000_000
    } else {
        200_000
    };
    let db = Database::create().await;
    let mut session = session(&db).await;
    let lock_due = "SELECT task_id, task_type, exchange, routing_key, envelope, priority, producer, trace_id, origin, due_at, publish_attempts, next_try_at \
                    FROM tidegate.tasks WHERE ready_at <= now() AND task_id <> ALL ('{}') ORDER BY ready_at LIMIT 500 FOR UPDATE SKIP LOCKED";
    let next_due = "SELECT ready_at, clock_timestamp() FROM tidegate.tasks WHERE ready_at IS NOT NULL AND task_id <> ALL ('{}') ORDER BY ready_at LIMIT 1";
    let ids = "ARRAY(SELECT 't' || n FROM generate_series(1, 500) n)";
    let settle = format!(
        "UPDATE tidegate.tasks SET state = 'PUBLISHED', published_at = clock_timestamp(), next_try_at = NULL, last_error = NULL, \
         maybe_sent = false WHERE task_id = ANY ({ids}) AND state = 'PENDING'"
    );
    let wait = format!(
        "UPDATE tidegate.tasks t SET last_error = f.error, next_try_at = clock_timestamp() + interval '1 second' * f.wait \
         FROM unnest({ids}, {ids}, array_fill(1::float8, ARRAY[500])) AS f (task_id, error, wait) \
         WHERE t.task_id = f.task_id AND t.state = 'PENDING'"
    );
    let forget = "SELECT h.id, ARRAY(SELECT t.task_id FROM tidegate.tasks t WHERE t.task_id = ANY (h.task_ids) AND t.ready_at IS NOT NULL) \
                  FROM tidegate.handovers h WHERE h.started_at < clock_timestamp() - interval '2 minutes' FOR UPDATE OF h SKIP LOCKED";
    let waiting = "SELECT * FROM tidegate.tasks WHERE ready_at IS NOT NULL AND (ready_at, task_id) > (now(), 't') ORDER BY ready_at, task_id LIMIT 51";
    let gone = "SELECT * FROM tidegate.tasks WHERE ready_at IS NULL AND (coalesce(finished_at, published_at), task_id) < (now(), 't') \
                ORDER BY coalesce(finished_at, published_at) DESC, task_id DESC LIMIT 51";
    fill(&db, rows).await;
    // Before the first look of autovacuum the planner knows nothing, and that is when a backlog is largest.
    for analysed in [false, true] {
        if analysed {
            session.execute("ANALYZE tidegate.tasks").await.unwrap();
        }
        for (sql, index) in [
            (lock_due, "tasks_pending"),
            (next_due, "tasks_pending"),
            (settle.as_str(), "tasks_pkey"),
            (wait.as_str(), "tasks_pkey"),
            (waiting, "tasks_pending"),
            (gone, "tasks_settled"),
        ] {
            session.execute("BEGIN").await.unwrap();
            let plan = plan(&mut session, sql).await;
            session.execute("ROLLBACK").await.unwrap();
            assert!(plan.contains(index), "analysed: {analysed}\n{sql}\n{plan}");
            assert!(
                !plan.contains("Seq Scan on tasks"),
                "analysed: {analysed}\n{sql}\n{plan}"
            );
            // Putting the few that share an instant in order is none of the table.
            let sorts = plan
                .lines()
                .any(|line| line.trim_start_matches([' ', '-', '>']).starts_with("Sort ("));
            assert!(!sorts, "analysed: {analysed}\n{sql}\n{plan}");
        }
    }
    session
        .execute(
            "INSERT INTO tidegate.handovers (task_ids, started_at) \
             SELECT array_agg('t' || n), now() - interval '1 hour' FROM generate_series(1, 1000) n GROUP BY n % 2",
        )
        .await
        .unwrap();
    let plan = plan(&mut session, forget).await;
    assert!(
        plan.contains("tasks_pkey") && !plan.contains("Seq Scan on tasks"),
        "{plan}"
    );
}

/// A life from hand-over to success touches no index: each step is a new version of the row on the same page.
#[tokio::test]
async fn states_after_the_hand_over_are_updates_in_place() {
    let db = Database::create().await;
    fill(&db, 2_000).await;
    let mut session = session(&db).await;
    for state in ["RUNNING", "RETRYING", "RUNNING"] {
        sqlx::query("UPDATE tidegate.tasks SET state = $1, attempts = attempts + 1 WHERE state <> 'PENDING'")
            .bind(state)
            .execute(&mut session)
            .await
            .unwrap();
    }
    session
        .execute("SELECT pg_stat_force_next_flush()")
        .await
        .unwrap();
    drop(session);
    let (updates, in_place): (i64, i64) =
        sqlx::query_as("SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'tasks'")
            .fetch_one(&db.sql)
            .await
            .unwrap();
    assert_eq!(updates, 600);
    assert!(in_place >= updates * 8 / 10, "{in_place} of {updates}");
}
