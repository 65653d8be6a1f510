//! Schedules as people keep them: all or nothing, without surprises for what is there.

use serde_json::value::RawValue;
use tidegate::{
    scheduler::admin::{self, AdminError, PutOptions},
    store::cron_admin::{Change, Definition, Scope},
};

use crate::{
    scheduler::{ClaimLoop, pass},
    support::{Database, SOON, eventually},
};

fn definition(name: &str, expression: &str) -> Definition {
    Definition::new(
        name.to_owned(),
        "a.b".to_owned(),
        expression.to_owned(),
        "UTC".to_owned(),
        RawValue::from_string("{}".to_owned()).unwrap(),
    )
}

const ADD: PutOptions = PutOptions {
    scope: Scope::Whole,
    replace: false,
    dry_run: false,
};
const REPLACE: PutOptions = PutOptions { replace: true, ..ADD };

async fn count(db: &Database) -> i64 {
    db.one("SELECT count(*) FROM tidegate.cron_tasks").await
}

#[tokio::test]
async fn one_bad_definition_among_many_keeps_all_out_and_each_is_named() {
    let db = Database::create().await;
    let many: Vec<Definition> = (0..2_000)
        .map(|n| {
            let bad = n == 700 || n == 1_999;
            definition(&format!("job-{n}"), if bad { "0 0 30 2 *" } else { "@daily" })
        })
        .collect();
    let Err(AdminError::Refused(refusals)) = admin::put(&db.store, &many, ADD).await else {
        panic!("it was taken");
    };
    let names: Vec<&str> = refusals.iter().map(|r| r.name.as_str()).collect();
    assert_eq!(names, ["job-700", "job-1999"]);
    assert_eq!(count(&db).await, 0);
    let good: Vec<Definition> = many
        .into_iter()
        .filter(|d| d.cron_expression == "@daily")
        .collect();
    let placed = admin::put(&db.store, &good, ADD).await.unwrap();
    assert!(
        placed
            .iter()
            .zip(&good)
            .all(|(p, d)| p.name == d.name && p.change == Change::Add && p.next.is_some())
    );
    assert_eq!(count(&db).await, 1_998);
}

#[tokio::test]
async fn a_dry_run_and_a_name_that_is_taken_change_nothing() {
    let db = Database::create().await;
    let both = [definition("x", "@daily"), definition("y", "@daily")];
    let dry = PutOptions { dry_run: true, ..ADD };
    admin::put(&db.store, &both, dry).await.unwrap();
    assert_eq!(count(&db).await, 0);
    admin::put(&db.store, &both[..1], ADD).await.unwrap();
    admin::put(&db.store, &both, ADD)
        .await
        .expect("the same again is no conflict");
    let other = [definition("z", "@daily"), definition("x", "@hourly")];
    match admin::put(&db.store, &other, ADD).await {
        Err(AdminError::Exists(names)) => assert_eq!(names, ["x"]),
        other => panic!("{other:?}"),
    }
    let placed = admin::put(&db.store, &other, dry).await.unwrap();
    assert_eq!(
        placed.iter().map(|p| p.change).collect::<Vec<_>>(),
        [Change::Add, Change::Differs]
    );
    assert_eq!(count(&db).await, 2);
    assert_eq!(
        db.one::<String>("SELECT string_agg(DISTINCT cron_expression, ' ') FROM tidegate.cron_tasks")
            .await,
        "@daily"
    );
}

#[tokio::test]
async fn of_many_who_add_one_name_at_once_one_wins() {
    let db = Database::create().await;
    let tries = (0..8).map(|n| {
        let store = db.store.clone();
        tokio::spawn(
            async move { admin::put(&store, &[definition("x", &format!("{n} * * * *"))], ADD).await },
        )
    });
    let mut won = 0;
    for ended in futures::future::join_all(tries).await {
        match ended.unwrap() {
            Ok(_) => won += 1,
            Err(AdminError::Exists(_) | AdminError::Store(tidegate::store::StoreError::Conflict(_))) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!((won, count(&db).await), (1, 1));
}

#[tokio::test]
async fn a_replaced_schedule_computes_from_now_and_an_equal_one_keeps_its_time() {
    let db = Database::create().await;
    admin::put(&db.store, &[definition("x", "@daily")], ADD)
        .await
        .unwrap();
    db.execute("UPDATE tidegate.cron_tasks SET next_fire_at = '2990-01-01Z'")
        .await;
    let next = "SELECT next_fire_at = '2990-01-01Z' FROM tidegate.cron_tasks WHERE next_fire_at IS NOT NULL";
    admin::put(&db.store, &[definition("x", "@daily")], REPLACE)
        .await
        .unwrap();
    assert!(db.one::<bool>(next).await, "equal");
    let mut changed = definition("x", "@daily");
    changed.payload = RawValue::from_string("{\"n\": 1}".to_owned()).unwrap();
    admin::put(&db.store, &[changed], REPLACE).await.unwrap();
    pass(&db.store).await;
    assert!(db.one::<bool>(next).await, "another payload");
    let placed = admin::put(&db.store, &[definition("x", "0 17 * * *")], REPLACE)
        .await
        .unwrap();
    pass(&db.store).await;
    let computed: chrono::DateTime<chrono::Utc> = db
        .one("SELECT next_fire_at::timestamptz FROM tidegate.cron_tasks")
        .await;
    assert_eq!(placed[0].next, Some(computed));
    assert_eq!(db.one::<i64>("SELECT count(*) FROM tidegate.cron_fires").await, 0);
}

#[tokio::test]
async fn adding_and_resuming_wake_a_sleeping_scheduler() {
    let db = Database::create().await;
    let scheduler = ClaimLoop::start(&db.store);
    admin::put(&db.store, &[definition("x", "* * * * * *")], ADD)
        .await
        .unwrap();
    let fires = || async { db.one::<i64>("SELECT count(*) FROM tidegate.cron_fires").await };
    // Far below the regular scan of 15 s.
    eventually(SOON, "a fire", || async { (fires().await > 0).then_some(()) }).await;
    assert!(admin::pause(&db.store, "x").await.unwrap());
    let paused = db.one::<chrono::DateTime<chrono::Utc>>("SELECT now()").await;
    assert!(admin::resume(&db.store, "x").await.unwrap().1);
    let again = || async {
        sqlx::query_scalar::<_, bool>("SELECT EXISTS (SELECT FROM tidegate.cron_fires WHERE fire_at > $1)")
            .bind(paused)
            .fetch_one(&db.sql)
            .await
            .unwrap()
            .then_some(())
    };
    eventually(SOON, "a fire after the pause", again).await;
    scheduler.stop().await;
    admin::remove(&db.store, "x").await.unwrap();
    assert_eq!(fires().await, 0, "the history goes with it");
}

#[tokio::test]
async fn runs_by_hand_at_once_are_as_many_tasks() {
    let db = Database::create().await;
    admin::put(&db.store, &[definition("täglich", "@daily")], ADD)
        .await
        .unwrap();
    let runs = (0..8).map(|_| {
        let store = db.store.clone();
        tokio::spawn(async move { admin::run(&store, "täglich").await.unwrap() })
    });
    let mut ids: Vec<String> = futures::future::join_all(runs)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 8);
    let recorded: Vec<String> = sqlx::query_scalar(
        "SELECT task_id FROM tidegate.cron_fires JOIN tidegate.tasks USING (task_id) WHERE outcome = 'MANUAL' ORDER BY 1",
    )
    .fetch_all(&db.sql)
    .await
    .unwrap();
    assert_eq!(recorded, ids);
}

/// The tables refuse the task after the run was recorded: neither stays.
#[tokio::test]
async fn a_run_is_recorded_with_its_task_or_not_at_all() {
    let db = Database::create().await;
    admin::put(&db.store, &[definition("x", "@daily")], ADD)
        .await
        .unwrap();
    db.execute("ALTER TABLE tidegate.tasks ADD CHECK (task_type <> 'a.b')")
        .await;
    assert!(matches!(
        admin::run(&db.store, "x").await,
        Err(AdminError::Store(_))
    ));
    assert_eq!(db.one::<i64>("SELECT count(*) FROM tidegate.cron_fires").await, 0);
}

/// What a scheduler has read before a run by hand it must not write after it.
#[tokio::test]
async fn a_run_by_hand_is_what_overlap_skip_waits_for() {
    let db = Database::create().await;
    let mut skip = definition("x", "@hourly");
    skip.overlap_policy = "skip";
    admin::put(&db.store, &[skip], ADD).await.unwrap();
    pass(&db.store).await;
    admin::run(&db.store, "x").await.unwrap();
    db.execute("UPDATE tidegate.cron_tasks SET next_fire_at = date_trunc('second', now())")
        .await;
    pass(&db.store).await;
    assert_eq!(
        db.one::<String>("SELECT string_agg(outcome, ' ' ORDER BY outcome) FROM tidegate.cron_fires")
            .await,
        "MANUAL SKIPPED_OVERLAP"
    );
}
