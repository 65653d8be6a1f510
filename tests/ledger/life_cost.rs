//! What following a task costs the tables: updates in place, reads by key.

use tidegate::store::life::{Claim, End, Told};

use crate::{
    life::{QUEUE, claim, insert, tell, told},
    support::{Database, SOON, eventually},
};

/// Cheap for the tables: what a worker writes while a task is alive changes no index.
#[tokio::test]
async fn running_and_retrying_are_updates_in_place() {
    const RUNS: i32 = 40;
    let db = Database::create().await;
    insert(&db, "t", "PUBLISHED").await;
    for run in 1..=RUNS {
        assert_eq!(claim(&db, "t").await, Claim::Start(run));
        assert!(tell(&db, told("t", Some(run), End::Retrying)).await);
    }
    // A session tells its counts when it ends.
    db.store.close().await;
    let (all, in_place): (i64, i64) = eventually(SOON, "the counts", async || {
        sqlx::query_as("SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'tasks'")
            .fetch_one(&db.sql)
            .await
            .ok()
            .filter(|(all, _): &(i64, i64)| *all >= i64::from(2 * RUNS))
    })
    .await;
    // Somebody else's snapshot may keep the page from being tidied in time.
    assert!(in_place * 100 >= all * 95, "{in_place} of {all} updates");
}

#[tokio::test]
async fn the_tables_leave_room_and_are_vacuumed_early() {
    let db = Database::create().await;
    for table in ["tasks", "cron_fires"] {
        let options: Option<Vec<String>> =
            sqlx::query_scalar("SELECT reloptions FROM pg_class WHERE oid = ('tidegate.' || $1)::regclass")
                .bind(table)
                .fetch_one(&db.sql)
                .await
                .unwrap();
        let options = options.unwrap_or_default();
        let mut wanted = vec![
            "autovacuum_vacuum_scale_factor",
            "autovacuum_vacuum_insert_scale_factor",
        ];
        if table == "tasks" {
            wanted.extend(["fillfactor", "autovacuum_analyze_scale_factor"]);
        }
        for option in wanted {
            assert!(
                options.iter().any(|set| set.starts_with(&format!("{option}="))),
                "{table}: {option} is not set: {options:?}"
            );
        }
    }
}

/// With 20,000 rows and no analysis yet.
#[tokio::test]
async fn claims_and_results_read_no_more_than_their_rows() {
    let db = Database::create().await;
    db.execute(
        "INSERT INTO tidegate.tasks (task_id, task_type, envelope, state, published_at) \
         SELECT 't' || n, 'a.b', '{}', 'PUBLISHED', now() FROM generate_series(1, 20000) n",
    )
    .await;
    let reads = "SELECT coalesce(seq_scan, 0) FROM pg_stat_user_tables WHERE relname = 'tasks'";
    let before: i64 = db.one(reads).await;
    let ids: Vec<String> = (1..=200).map(|n| format!("t{}", n * 97)).collect();
    let asked: Vec<(&str, &str)> = ids.iter().map(|id| (id.as_str(), QUEUE)).collect();
    let claims = db.store.life().start(&asked).await.unwrap();
    assert!(claims.iter().all(|claim| *claim == Claim::Start(1)));
    let results: Vec<Told> = ids.iter().map(|id| told(id, Some(1), End::Success)).collect();
    assert!(
        db.store
            .life()
            .report(&results)
            .await
            .unwrap()
            .into_iter()
            .all(|settled| settled)
    );
    let all: Vec<&str> = ids.iter().map(String::as_str).collect();
    db.store.life().cancel_requested(&all).await.unwrap();
    db.store.close().await;
    let updated = "SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'tasks'";
    eventually(SOON, "the counts", async || db.one::<i64>(updated).await >= 400).await;
    assert_eq!(
        db.one::<i64>(reads).await,
        before,
        "no statement read the whole table"
    );
}
