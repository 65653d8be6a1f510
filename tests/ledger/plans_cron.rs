//! How Postgres carries out what a scheduler asks all the time, beside very many rows: by an index, in its order.
//!
//! `TIDEGATE_LONG=1` makes it a million rows instead of 100,000.

use serde_json::Value;
use sqlx::{AssertSqlSafe, PgConnection};
use tidegate::store::cron_tasks::STATEMENTS;

use crate::support::Database;

/// Rows that are far from due, some that are due, new or in error, and the statistics of an empty table.
async fn large(db: &Database) {
    let rows = if std::env::var_os("TIDEGATE_LONG").is_some() {
        1_000_000
    } else {
        100_000
    };
    for sql in [
        "ALTER TABLE tidegate.cron_tasks SET (autovacuum_enabled = off)".to_owned(),
        "ANALYZE tidegate.cron_tasks".to_owned(),
        // A notification per row is not what is looked at here.
        "ALTER TABLE tidegate.cron_tasks DISABLE TRIGGER USER".to_owned(),
        format!(
            "INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression, next_fire_at, last_error) \
             SELECT 'job-' || n, 'a.b', '@yearly', \
               CASE WHEN n % 1000 = 1 THEN now() - n * interval '1 ms' WHEN n % 1000 IN (2, 3) THEN NULL \
                 ELSE now() + interval '1 day' + n * interval '1 s' END, \
               CASE WHEN n % 1000 = 3 THEN 'broken' END FROM generate_series(1, {rows}) n"
        ),
        "ALTER TABLE tidegate.cron_tasks ENABLE TRIGGER USER".to_owned(),
    ] {
        sqlx::query(AssertSqlSafe(sql)).execute(&db.sql).await.unwrap();
    }
}

/// Nodes of the plan of the statement called `name`, as it was carried out.
async fn plan(connection: &mut PgConnection, name: &str, limit: i64) -> Vec<Value> {
    let (_, statement) = STATEMENTS.iter().find(|(known, _)| *known == name).unwrap();
    let explain = AssertSqlSafe(format!("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}"));
    let mut query = sqlx::query_scalar::<_, Value>(explain);
    match name {
        "due" | "uninitialised" => {
            query = query
                .bind((0..16_i64).collect::<Vec<_>>())
                .bind(limit)
                .bind(Vec::<i64>::new());
        }
        "next_due" => query = query.bind(true).bind(Vec::<i64>::new()),
        _ => {}
    }
    let mut plan = query.fetch_one(connection).await.unwrap();
    let (mut open, mut nodes) = (vec![plan[0]["Plan"].take()], Vec::new());
    while let Some(mut node) = open.pop() {
        if let Value::Array(inner) = node["Plans"].take() {
            open.extend(inner);
        }
        nodes.push(node);
    }
    nodes
}

fn assert_by_index(name: &str, index: &str, nodes: &[Value]) {
    for node in nodes {
        let kind = node["Node Type"].as_str().unwrap();
        assert!(
            !kind.contains("Sort") && !kind.contains("Bitmap") && !kind.contains("Seq Scan"),
            "{name}: {nodes:#?}"
        );
    }
    let on_table: Vec<&Value> = nodes
        .iter()
        .filter(|node| node["Relation Name"] == "cron_tasks")
        .collect();
    assert!(!on_table.is_empty(), "{name}: {nodes:#?}");
    for node in on_table {
        assert_eq!(node["Index Name"], index, "{name}: {nodes:#?}");
        assert_eq!(
            node["Rows Removed by Filter"].as_i64().unwrap_or_default(),
            0,
            "{name}: {node:#?}"
        );
    }
}

fn pages(nodes: &[Value]) -> i64 {
    // The root counts what is below it.
    nodes[0]["Shared Hit Blocks"].as_i64().unwrap() + nodes[0]["Shared Read Blocks"].as_i64().unwrap()
}

#[tokio::test]
async fn the_loop_reads_by_index_and_sorts_nothing() {
    let db = Database::create().await;
    large(&db).await;
    for statistics in ["of an empty table", "fresh"] {
        if statistics == "fresh" {
            db.execute("VACUUM ANALYZE tidegate.cron_tasks").await;
        }
        let mut connection = db.sql.acquire().await.unwrap();
        // As every session of the store is set.
        sqlx::query("SET enable_bitmapscan = off")
            .execute(&mut *connection)
            .await
            .unwrap();
        for (name, index) in [
            ("due", "cron_tasks_due"),
            ("uninitialised", "cron_tasks_uninitialised"),
            ("next_due", "cron_tasks_due"),
            ("in_error", "cron_tasks_in_error"),
        ] {
            let nodes = plan(&mut connection, name, 50).await;
            // How many are in error nobody knows before the first analysis; it is counted now and then only.
            if name == "in_error" && statistics != "fresh" {
                continue;
            }
            assert_by_index(name, index, &nodes);
            let most = if name == "in_error" { 1_500 } else { 200 };
            assert!(
                pages(&nodes) < most,
                "{name}, statistics {statistics}: {} pages",
                pages(&nodes)
            );
        }
    }
}
