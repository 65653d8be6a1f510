//! The statements about idempotency keys read by index, or by the place found, and sort nothing: on an empty table, on
//! one that nobody has analysed, and on a large one. And what they cost, against single ones.

use std::time::{Duration, Instant};

use sqlx::{Executor, PgConnection};
use tidegate::store::executions::{Claim, Grant, Wanted, Written};

use crate::support::Database;

async fn plan(session: &mut PgConnection, statement: &str) -> String {
    let lines: Vec<String> =
        sqlx::query_scalar(sqlx::AssertSqlSafe(format!("EXPLAIN (COSTS off) {statement}")))
            .fetch_all(&mut *session)
            .await
            .unwrap();
    lines.join("\n")
}

fn statements() -> Vec<(String, &'static str)> {
    let arrays = "ARRAY(SELECT 'a.b'::text FROM generate_series(1, 200)), ARRAY(SELECT 'k' || n FROM generate_series(1, 200) n)";
    let fences = "ARRAY(SELECT n FROM generate_series(1::bigint, 200) n)";
    let leases = "array_fill(30::float8, ARRAY[200])";
    let texts = "ARRAY(SELECT 't' || n FROM generate_series(1, 200) n)";
    let fill = |sql: &str, last: &str| {
        sql.replace("$1::text[], $2::text[]", arrays)
            .replace("$3::text[], $4::text[]", &format!("{texts}, {texts}"))
            .replace("$5::float8[]", leases)
            .replace("$3::bigint[]", fences)
            .replace("$4::float8[]", last)
    };
    use tidegate::store::executions::{CLAIM, COMPLETE, RELEASE, RENEW};
    [CLAIM, COMPLETE, RELEASE, RENEW]
        .map(|sql| (fill(sql, leases), "executions_pkey"))
        .into_iter()
        .chain([(
            "SELECT ctid FROM tidegate.executions WHERE started_at < now() - interval '7 days' \
             AND coalesce(finished_at, lease_until) < now() - interval '7 days' ORDER BY started_at LIMIT 1000 FOR UPDATE SKIP LOCKED"
                .to_owned(),
            "executions_started",
        )])
        .collect()
}

#[tokio::test]
async fn keys_are_found_by_index_at_any_size() {
    let db = Database::create().await;
    let mut session = db.sql.acquire().await.unwrap().detach();
    session
        .execute("SET enable_bitmapscan = off; SET plan_cache_mode = force_custom_plan")
        .await
        .unwrap();
    // A table of some forty pages is read whole by any plan.
    for (rows, analysed) in [(4_000, false), (4_000, true), (200_000, false), (200_000, true)] {
        sqlx::query(
            "INSERT INTO tidegate.executions (task_type, idempotency_key, owner, lease_until, task_id, started_at) \
             SELECT 'a.b', 'k' || n, 'o', now(), 't', now() - n * interval '30 s' FROM generate_series(1, $1) n ON CONFLICT DO NOTHING",
        )
        .bind(rows)
        .execute(&db.sql)
        .await
        .unwrap();
        if analysed {
            session.execute("ANALYZE tidegate.executions").await.unwrap();
        }
        for (sql, index) in statements() {
            if rows < 200_000 && index != "executions_pkey" {
                continue;
            }
            let plan = plan(&mut session, &sql).await;
            let about = format!("{rows} rows, analysed: {analysed}\n{sql}\n{plan}");
            assert!(plan.contains(index), "{about}");
            assert!(!plan.contains("Seq Scan on executions"), "{about}");
            let sorts = plan
                .lines()
                .any(|line| line.trim_start_matches([' ', '-', '>']).starts_with("Sort"));
            assert!(!sorts, "{about}");
        }
    }
}

/// On a table that was empty when the statements were first prepared and that nothing has analysed since.
#[tokio::test]
async fn batches_cost_a_fraction_of_single_claims() {
    let db = Database::create().await;
    db.execute("ALTER TABLE tidegate.executions SET (autovacuum_enabled = false)")
        .await;
    let executions = db.store.executions();
    let lease = Duration::from_secs(30);
    let mut rates = Vec::new();
    for size in [1, 100, 200] {
        let keys: Vec<String> = (0..if size == 1 { 500 } else { 20_000 })
            .map(|n| format!("order-{size}-{n}"))
            .collect();
        let began = Instant::now();
        for (round, batch) in keys.chunks(size).enumerate() {
            let owners: Vec<String> = (0..batch.len())
                .map(|n| format!("worker-1234567890#{round}.{n}"))
                .collect();
            let wanted: Vec<Wanted<'_>> = batch
                .iter()
                .zip(&owners)
                .map(|(key, owner)| Wanted {
                    task_type: "order.close.timeout",
                    key,
                    task_id: key,
                    owner,
                    lease,
                })
                .collect();
            let claims = executions.claim(&wanted).await.unwrap();
            let grants: Vec<Grant<'_>> = batch
                .iter()
                .zip(claims)
                .map(|(key, claim)| match claim {
                    Claim::Granted(fence) => Grant {
                        task_type: "order.close.timeout",
                        key,
                        fence,
                        lease,
                    },
                    other => panic!("{other:?}"),
                })
                .collect();
            let written = executions.complete(&grants).await.unwrap();
            assert!(written.iter().all(|written| *written == Written::Yes));
        }
        rates.push(keys.len() as f64 / began.elapsed().as_secs_f64());
    }
    let (updates, in_place): (i64, i64) = sqlx::query_as(
        "SELECT n_tup_upd, n_tup_hot_upd FROM (SELECT pg_stat_force_next_flush()) f, pg_stat_user_tables WHERE relname = 'executions'",
    )
    .fetch_one(&db.sql)
    .await
    .unwrap();
    tidegate_testkit::report(&format!(
        "claim and completion per second: one by one {:.0}, by 100 {:.0}, by 200 {:.0}; {in_place} of {updates} updates in place",
        rates[0], rates[1], rates[2]
    ));
    assert!(rates[1] > 3.0 * rates[0], "{rates:?}");
}
