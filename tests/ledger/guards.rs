//! What a role may do that has `tidegate.allow_producer` and nothing else, and what `serve` needs.

use sqlx::{Connection, PgConnection, Row};
use tidegate::{
    scheduler::{
        claim::{self, ClaimSettings},
        relay,
        retention::{self, RetentionSettings},
    },
    telemetry::health::{Health, Part},
};
use tokio_util::sync::CancellationToken;

use crate::{
    broker::{Broker, RelayLoop},
    scheduler::{ClaimLoop, pass},
    support::{Database, SOON, eventually},
};

/// A session with the rights of a new role that may enqueue and cancel.
async fn producer(db: &Database, role: &str) -> PgConnection {
    db.run(&format!(
        "CREATE ROLE {role}; SELECT tidegate.allow_producer('{role}')"
    ))
    .await;
    let mut session = PgConnection::connect(db.url()).await.unwrap();
    sqlx::raw_sql(sqlx::AssertSqlSafe(format!("SET ROLE {role}")))
        .execute(&mut session)
        .await
        .unwrap();
    session
}

async fn drop_role(db: &Database, role: &str) {
    db.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}

/// What the database says to a statement that it refuses.
async fn refused(session: &mut PgConnection, sql: &'static str) -> (String, String) {
    let error = sqlx::query(sql).fetch_all(session).await.unwrap_err();
    let error = error.as_database_error().unwrap();
    (error.code().unwrap().into_owned(), error.message().to_owned())
}

/// The id of an occurrence can be guessed: taken in advance, the occurrence was recorded and nothing ran.
#[tokio::test]
async fn a_producer_cannot_take_the_id_of_a_cron_task() {
    let db = Database::create().await;
    let role = format!("taker_{}", std::process::id());
    let mut session = producer(&db, &role).await;
    let (code, message) = refused(
        &mut session,
        "SELECT tidegate.enqueue('a.b', '{}', task_id => 'cron:x:20300101T000000Z')",
    )
    .await;
    assert_eq!(code, "22023");
    assert!(
        message.contains("task_id") && message.contains("cron:"),
        "{message}"
    );
    sqlx::query("SELECT tidegate.enqueue('a.b', '{}', task_id => 'crony:1')")
        .fetch_all(&mut session)
        .await
        .unwrap();
    drop_role(&db, &role).await;
}

#[tokio::test]
async fn a_producer_cannot_cancel_what_cron_has_made() {
    let db = Database::create().await;
    let role = format!("canceller_{}", std::process::id());
    let mut session = producer(&db, &role).await;
    db.execute(
        "INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression, next_fire_at, jitter_ms) \
         VALUES ('x', 'a.b', '@daily', date_trunc('second', now()), 86400000)",
    )
    .await;
    assert_eq!(pass(&db.store).await, 1);
    db.execute("UPDATE tidegate.tasks SET task_id = 'cron:x:1'").await;
    db.run(&format!(
        "GRANT EXECUTE ON FUNCTION tidegate.promote(text), tidegate.reschedule(text, timestamptz) TO {role}"
    ))
    .await;
    for sql in [
        "SELECT tidegate.cancel('cron:x:1')",
        "SELECT tidegate.promote('cron:x:1')",
        "SELECT tidegate.reschedule('cron:x:1', now())",
    ] {
        let (code, message) = refused(&mut session, sql).await;
        assert_eq!(code, "42501", "{sql}");
        assert!(
            message.contains("cron:x:1") && message.contains(&role),
            "{message}"
        );
    }
    // Its own it may, and what isn't there is told as such.
    let own = sqlx::query(
        "SELECT tidegate.cancel(tidegate.enqueue('a.b', '{}', now() + interval '1 hour')), tidegate.cancel('cron:y:1')",
    )
    .fetch_one(&mut session)
    .await
    .unwrap();
    assert_eq!(
        (own.get::<String, _>(0), own.get::<String, _>(1)),
        ("canceled".to_owned(), "not_found".to_owned())
    );
    db.run(&format!("GRANT UPDATE ON tidegate.tasks TO {role}")).await;
    let answer: String = sqlx::query_scalar("SELECT tidegate.cancel('cron:x:1')")
        .fetch_one(&mut session)
        .await
        .unwrap();
    assert_eq!(answer, "canceled");
    drop_role(&db, &role).await;
}

/// An occurrence whose id stands for something else is not recorded in silence.
#[tokio::test]
async fn a_taken_id_is_told_by_the_row_which_goes_on() {
    let db = Database::create().await;
    db.execute(
        "INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression, next_fire_at) \
         VALUES ('x', 'a.b', '* * * * * *', date_trunc('second', now()))",
    )
    .await;
    db.execute(
        "INSERT INTO tidegate.tasks (task_id, task_type, envelope, origin) \
         SELECT 'cron:x:' || to_char(next_fire_at AT TIME ZONE 'UTC', 'YYYYMMDD\"T\"HH24MISS\"Z\"'), 'a.b', '{}', 'http' \
         FROM tidegate.cron_tasks",
    )
    .await;
    pass(&db.store).await;
    let (error, next): (Option<String>, bool) =
        sqlx::query_as("SELECT last_error, next_fire_at IS NOT NULL FROM tidegate.cron_tasks")
            .fetch_one(&db.sql)
            .await
            .unwrap();
    let error = error.unwrap();
    assert!(
        error.contains("cron:x:") && error.contains("was not sent"),
        "{error}"
    );
    assert!(next, "it is not stopped by that");
    eventually(SOON, "a later occurrence", async || {
        pass(&db.store).await;
        db.one::<bool>("SELECT last_error IS NULL FROM tidegate.cron_tasks")
            .await
    })
    .await;
    assert!(
        db.one::<i64>("SELECT count(*) FROM tidegate.tasks WHERE origin = 'cron'")
            .await
            >= 1
    );
}

/// The grants that docs/operations.md names, taken from there.
pub(crate) fn grants(role: &str) -> String {
    let page = include_str!("../../docs/operations.md");
    let section = page.split("### Rights in the database").nth(1).unwrap();
    let sql = section.split("```sql").nth(1).unwrap();
    sql.split("```").next().unwrap().replace("tidegate_serve", role)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_with_the_documented_grants_runs_all_of_serve() {
    let (db, broker) = (Database::create().await, Broker::create().await);
    let role = format!("serve_{}", std::process::id());
    db.run(&format!("CREATE ROLE {role}; {}", grants(&role))).await;
    let store = db.store_as(&role);
    let (health, cancel) = (Health::default(), CancellationToken::new());
    let claiming = ClaimLoop::start_on(&store, ClaimSettings::default(), health.clone());
    let relay = RelayLoop::start(&store, &broker.tasks);
    let pruning = tokio::spawn(retention::run(
        store.clone(),
        RetentionSettings {
            keep: tidegate::store::retention::Kept::ALL
                .map(|kept| (kept, std::time::Duration::from_secs(3_600)))
                .into_iter()
                .collect(),
            ..RetentionSettings::default()
        },
        health.clone(),
        cancel.clone(),
    ));
    db.execute(
        "INSERT INTO tidegate.tasks (task_id, task_type, envelope, state, finished_at) \
         VALUES ('old', 'a.b', '{}', 'SUCCESS', now() - interval '1 day')",
    )
    .await;
    db.execute("INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression) VALUES ('x', 'order.close.now', '* * * * * *')")
        .await;
    db.execute("INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression) VALUES ('bad', 'a.b', '0 0 30 2 *')")
        .await;
    eventually(SOON, "a task of cron's on its queue", async || {
        db.one::<bool>(
            "SELECT EXISTS (SELECT FROM tidegate.tasks WHERE origin = 'cron' AND state = 'PUBLISHED')",
        )
        .await
            && db
                .one::<bool>("SELECT EXISTS (SELECT FROM tidegate.cron_tasks WHERE last_error IS NOT NULL)")
                .await
            && db
                .one::<bool>("SELECT NOT EXISTS (SELECT FROM tidegate.tasks WHERE task_id = 'old')")
                .await
    })
    .await;
    let id: String = db
        .one("SELECT task_id FROM tidegate.tasks WHERE state = 'PUBLISHED' LIMIT 1")
        .await;
    assert!(store.tasks().unroutable(&id, "no queue").await.unwrap());
    store.tasks().forget_announcements().await.unwrap();
    assert_eq!(health.parts().get(claim::ROLE), Some(&Part::Up));
    assert_eq!(relay.health.parts().get(relay::ROLE), Some(&Part::Up));
    cancel.cancel();
    relay.stop().await;
    claiming.stop().await;
    pruning.await.unwrap().unwrap();
    drop(store);
    drop_role(&db, &role).await;
}
