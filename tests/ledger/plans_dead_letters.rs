//! Archiving looks up ids by index, on the days since their death alone, and reads no partition as a whole: with ninety days of a
//! large archive, analysed or not.

use sqlx::{Executor, PgConnection};
use tidegate::store::dead_letters::archive::{ANCESTORS, INSERT};

use crate::support::Database;

async fn plan(session: &mut PgConnection, statement: &str) -> String {
    let lines: Vec<String> =
        sqlx::query_scalar(sqlx::AssertSqlSafe(format!("EXPLAIN (COSTS off) {statement}")))
            .fetch_all(&mut *session)
            .await
            .unwrap();
    lines.join("\n")
}

/// The statement with constants for its parameters, the last first so that $1 is not a part of $10.
fn filled(sql: &str, since: &str) -> String {
    let today = "'2026-11-30'";
    let each = |value: &str| format!("ARRAY(SELECT {value} FROM generate_series(1, 500) n)");
    let values: Vec<String> = if sql == INSERT {
        let text = each("n::text");
        let mut values = vec![
            today.to_owned(),
            since.to_owned(),
            each("gen_random_uuid()"),
            each(&format!("{since}::date")),
        ];
        values.extend([each("now()"), each("now()")]);
        values.extend(vec![text.clone(); 7]);
        values.push(each("n"));
        values.extend([each("'\\x00'::bytea"), each("'\\x00'::bytea"), text]);
        values.extend([each("NULL::uuid"), each("NULL::uuid"), each("1")]);
        values
    } else {
        vec![
            each("gen_random_uuid()"),
            each(&format!("{since}::date")),
            since.to_owned(),
        ]
    };
    values
        .iter()
        .enumerate()
        .rev()
        .fold(sql.to_owned(), |sql, (n, value)| {
            sql.replace(&format!("${}::", n + 1), &format!("{value}::"))
        })
}

#[tokio::test]
async fn ids_are_found_by_index_on_the_days_that_they_can_be_on() {
    let db = Database::create().await;
    let mut session = db.sql.acquire().await.unwrap().detach();
    session
        .execute(
            "SET enable_bitmapscan = off; SET plan_cache_mode = force_custom_plan; \
             DO $$ BEGIN FOR back IN 0..89 LOOP EXECUTE format('CREATE TABLE tidegate.dead_letters_%s PARTITION OF tidegate.dead_letters \
               FOR VALUES FROM (%L) TO (%L)', back, date '2026-11-30' - back, date '2026-11-30' - back + 1); END LOOP; END $$; \
             INSERT INTO tidegate.dead_letters (day, id, died_at, queue, reason, error_kind, error, attempts, fingerprint) \
             SELECT date '2026-11-30' - n % 35, gen_random_uuid(), now(), 'q', 'rejected', 'k', 'e', 1, decode(repeat('00', 16), 'hex') \
             FROM generate_series(1, 70000) n",
        )
        .await
        .unwrap();
    for analysed in [false, true] {
        if analysed {
            session.execute("ANALYZE tidegate.dead_letters").await.unwrap();
        }
        for (since, partitions) in [("'2026-11-29'", 1..=2), ("'2026-11-01'", 29..=30)] {
            for sql in [INSERT, ANCESTORS] {
                let plan = plan(&mut session, &filled(sql, since)).await;
                let about = format!("since {since}, analysed: {analysed}\n{plan}");
                assert!(!plan.contains("Seq Scan on dead_letters"), "{about}");
                let scans = plan.matches("_pkey on dead_letters_").count();
                assert!(partitions.contains(&scans), "{scans} scans, {about}");
            }
        }
    }
}
