//! What a server costs that has nothing to do beside a million cron rows and a million tasks of the future; and what such a task
//! takes on disk.

use std::time::{Duration, Instant};

use tidegate_testkit::figures::{Figures, Scale};

use crate::ground::{Broker, Database, Server};

const ROWS: u32 = 1_000_000;

pub(crate) async fn measure(scale: &Scale, figures: &mut Figures) {
    let (rows, time) = (scale.count(ROWS), scale.time(Duration::from_secs(60)));
    let (broker, database) = (Broker::create().await, Database::create().await);
    let bytes = fill(&database, rows).await;
    database.settle().await;
    let on_disk: i64 = sqlx::query_scalar("SELECT pg_total_relation_size('tidegate.tasks')")
        .fetch_one(&database.sql)
        .await
        .unwrap();
    let per_row = on_disk as f64 / f64::from(rows);
    figures.add(
        "idle",
        format!("disk per pending task of {bytes} bytes at {rows}, indexes included"),
        "bytes",
        vec![per_row],
    );
    figures.ratio(per_row, bytes as f64, "the envelope");

    let server = Server::start(&broker.vhost, &database).await;
    // The first scans, and what a start costs.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let mut shares = Vec::new();
    for _ in 0..scale.runs {
        let (began, cpu) = (Instant::now(), server.cpu());
        tokio::time::sleep(time).await;
        shares.push(100.0 * (server.cpu() - cpu).as_secs_f64() / began.elapsed().as_secs_f64());
    }
    figures.add(
        "idle",
        format!("CPU of an idle scheduler and relay beside {rows} future cron rows and {rows} future tasks"),
        "% of a core",
        shares,
    );
    drop(server);
    database.close().await;
    broker.vhost.close().await;
}

/// Rows of next year; returns the length of an envelope.
async fn fill(database: &Database, rows: u32) -> i64 {
    // A million notifications are not what is measured.
    for order in [
        "ALTER TABLE tidegate.cron_tasks DISABLE TRIGGER USER",
        "ALTER TABLE tidegate.tasks DISABLE TRIGGER USER",
    ] {
        database.execute(order).await;
    }
    sqlx::query(
        "INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression, next_fire_at) \
         SELECT 'yearly-' || n, 'bench.work', '0 0 1 1 *', date_trunc('year', now()) + interval '1 year' FROM generate_series(1, $1) n",
    )
    .bind(rows as i32)
    .execute(&database.sql)
    .await
    .unwrap();
    // As a producer writes it, with ids as ours are.
    sqlx::query(
        "INSERT INTO tidegate.tasks (task_id, task_type, envelope, due_at) \
         SELECT id, 'bench.work', format('{\"taskId\":\"%s\",\"taskType\":\"bench.work\",\"payload\":{\"orderId\":\"%s\",\"amount\":\"89.90\"},\"traceId\":\"trace-%s\"}', id, n, n), \
           now() + interval '30 days' + n * interval '1 second' \
         FROM (SELECT n, gen_random_uuid()::text AS id FROM generate_series(1, $1) n) numbered",
    )
    .bind(rows as i32)
    .execute(&database.sql)
    .await
    .unwrap();
    for order in [
        "ALTER TABLE tidegate.cron_tasks ENABLE TRIGGER USER",
        "ALTER TABLE tidegate.tasks ENABLE TRIGGER USER",
    ] {
        database.execute(order).await;
    }
    sqlx::query_scalar("SELECT avg(octet_length(envelope))::bigint FROM (SELECT envelope FROM tidegate.tasks LIMIT 1000) AS sample")
        .fetch_one(&database.sql)
        .await
        .unwrap()
}
