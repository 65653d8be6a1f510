//! A task after the hand-over: who may start it, and what becomes of its row.

use tidegate::store::{
    StoreError,
    life::{Claim, End, Told},
};

use crate::support::{Database, SOON};

pub(crate) const QUEUE: &str = "order.close.queue";

/// Inserts a task in `state`, handed over a minute ago.
pub(crate) async fn insert(db: &Database, id: &str, state: &str) {
    sqlx::query(
        "INSERT INTO tidegate.tasks (task_id, task_type, envelope, state, published_at) \
         VALUES ($1, 'a.b', '{}', $2, CASE WHEN $2 <> 'PENDING' THEN now() - interval '1 minute' END)",
    )
    .bind(id)
    .bind(state)
    .execute(&db.sql)
    .await
    .unwrap();
}

pub(crate) async fn claim(db: &Database, id: &str) -> Claim {
    claim_by(db, id, QUEUE).await
}

async fn claim_by(db: &Database, id: &str, queue: &str) -> Claim {
    db.store.life().start(&[(id, queue)]).await.unwrap()[0]
}

pub(crate) fn told(id: &str, run: Option<i32>, end: End) -> Told {
    Told {
        task_id: id.to_owned(),
        queue: QUEUE.to_owned(),
        run,
        end,
        error: (end != End::Success).then(|| "a reason".to_owned()),
    }
}

pub(crate) async fn tell(db: &Database, told: Told) -> bool {
    db.store.life().report(&[told]).await.unwrap()[0]
}

/// State, attempts and error of a task.
async fn row(db: &Database, id: &str) -> (String, i32, Option<String>) {
    let record = db.store.tasks().get(id).await.unwrap().unwrap();
    (record.state, record.attempts, record.last_error)
}

#[tokio::test]
async fn the_state_decides_who_may_start() {
    let db = Database::create().await;
    let states = [
        ("PENDING", Claim::Start(1)),
        ("PUBLISHED", Claim::Start(1)),
        ("RUNNING", Claim::Start(1)),
        ("RETRYING", Claim::Start(1)),
        ("FAILED", Claim::Start(1)),
        ("CANCELED", Claim::Canceled),
        ("SUCCESS", Claim::Done),
    ];
    for (state, _) in states {
        insert(&db, state, state).await;
    }
    let mut asked: Vec<(&str, &str)> = states.iter().map(|(state, _)| (*state, QUEUE)).collect();
    asked.insert(3, ("nobody", QUEUE));
    let mut expected: Vec<Claim> = states.iter().map(|(_, claim)| *claim).collect();
    expected.insert(3, Claim::Unknown);
    assert_eq!(
        db.store.life().start(&asked).await.unwrap(),
        expected,
        "one statement, in order"
    );
    assert_eq!(
        db.store.life().start(&[]).await.unwrap(),
        [],
        "an empty call asks whether the tables are there"
    );
    for (state, claim) in states {
        let record = db.store.tasks().get(state).await.unwrap().unwrap();
        let started = claim == Claim::Start(1);
        assert_eq!(record.state, if started { "RUNNING" } else { state });
        assert_eq!(
            (record.attempts, record.started_at.is_some()),
            (started.into(), started)
        );
        assert!(
            record.finished_at.is_none() || !started,
            "a replayed one runs again"
        );
        assert!(
            record.published_at.is_some(),
            "what runs was handed over, whoever died before saying so"
        );
    }
    let pending: i64 = db
        .one("SELECT count(*) FROM tidegate.tasks WHERE ready_at IS NOT NULL")
        .await;
    assert_eq!(pending, 0, "the relay has no copy left to send");
}

#[tokio::test]
async fn a_request_to_cancel_that_nobody_served_stops_the_next_start() {
    let db = Database::create().await;
    for state in ["PUBLISHED", "RUNNING", "RETRYING"] {
        insert(&db, state, state).await;
    }
    db.execute("UPDATE tidegate.tasks SET cancel_requested_at = now(), idempotency_key = task_id")
        .await;
    for state in ["PUBLISHED", "RUNNING", "RETRYING"] {
        assert_eq!(claim(&db, state).await, Claim::Canceled);
        assert_eq!(claim(&db, state).await, Claim::Canceled);
    }
    let ended: i64 = db
        .one(
            "SELECT count(*) FROM tidegate.tasks WHERE state = 'CANCELED' AND attempts = 0 \
             AND finished_at IS NOT NULL AND idempotency_key IS NULL",
        )
        .await;
    assert_eq!(ended, 3, "cancelled as by any other way, the key given back");
}

/// A relay before its commit, or a session that cancels and stays open.
#[tokio::test]
async fn a_locked_row_holds_up_nobody_elses() {
    let db = Database::create().await;
    insert(&db, "locked", "PENDING").await;
    insert(&db, "free", "PUBLISHED").await;
    let mut other = db.sql.begin().await.unwrap();
    sqlx::query(
        "UPDATE tidegate.tasks SET state = 'PUBLISHED', published_at = now() WHERE task_id = 'locked'",
    )
    .execute(&mut *other)
    .await
    .unwrap();
    let asked = [("locked", QUEUE), ("free", QUEUE)];
    let life = db.store.life();
    let claims = tokio::time::timeout(SOON, life.start(&asked));
    assert_eq!(claims.await.unwrap().unwrap(), [Claim::Busy, Claim::Start(1)]);
    let results = [
        told("locked", None, End::Failed),
        told("free", Some(1), End::Success),
        told("nobody", None, End::Failed),
    ];
    let settled = tokio::time::timeout(SOON, life.report(&results));
    assert_eq!(settled.await.unwrap().unwrap(), [false, true, true]);
    other.commit().await.unwrap();
    assert_eq!(claim(&db, "locked").await, Claim::Start(1));
}

#[tokio::test]
async fn results_are_written_and_late_ones_of_earlier_runs_are_not() {
    let db = Database::create().await;
    insert(&db, "t", "PUBLISHED").await;
    assert_eq!(claim(&db, "t").await, Claim::Start(1));
    assert!(tell(&db, told("t", Some(1), End::Retrying)).await);
    assert_eq!(
        row(&db, "t").await,
        ("RETRYING".into(), 1, Some("a reason".into()))
    );
    assert_eq!(claim(&db, "t").await, Claim::Start(2));
    // The worker of the first run was slow to tell: the second runs.
    for late in [End::Retrying, End::Failed, End::Canceled, End::GivenBack] {
        assert!(
            tell(&db, told("t", Some(1), late)).await,
            "settled: of no interest any more"
        );
        assert_eq!(row(&db, "t").await.0, "RUNNING", "{late:?}");
    }
    assert!(tell(&db, told("t", Some(2), End::GivenBack)).await);
    assert_eq!(row(&db, "t").await.0, "PUBLISHED");
    assert_eq!(claim(&db, "t").await, Claim::Start(3));
    assert!(tell(&db, told("t", Some(3), End::Failed)).await);
    let record = db.store.tasks().get("t").await.unwrap().unwrap();
    assert_eq!((record.state.as_str(), record.attempts), ("FAILED", 3));
    assert!(record.finished_at.is_some());
    // A duplicate that succeeded after all: it did.
    assert!(tell(&db, told("t", Some(2), End::Success)).await);
    assert_eq!(row(&db, "t").await, ("SUCCESS".into(), 3, None));
    assert!(tell(&db, told("t", Some(3), End::Failed)).await);
    assert_eq!(row(&db, "t").await.0, "SUCCESS", "nothing follows a success");
    assert_eq!(claim(&db, "t").await, Claim::Done);
}

#[tokio::test]
async fn an_end_without_a_start_is_told_too() {
    let db = Database::create().await;
    for state in ["PUBLISHED", "RUNNING", "CANCELED", "SUCCESS"] {
        insert(&db, state, state).await;
        assert!(tell(&db, told(state, None, End::Failed)).await);
    }
    let failed: Vec<String> =
        sqlx::query_scalar("SELECT task_id FROM tidegate.tasks WHERE state = 'FAILED' ORDER BY 1")
            .fetch_all(&db.sql)
            .await
            .unwrap();
    assert_eq!(failed, ["PUBLISHED", "RUNNING"]);
}

#[tokio::test]
async fn a_cancelled_run_gives_its_key_back_and_a_failed_one_forgets_the_request() {
    let db = Database::create().await;
    for id in ["canceled", "failed"] {
        insert(&db, id, "PUBLISHED").await;
        assert_eq!(claim(&db, id).await, Claim::Start(1));
    }
    assert_eq!(
        db.store
            .life()
            .cancel_requested(&["canceled", "failed"])
            .await
            .unwrap(),
        [""; 0]
    );
    db.execute("UPDATE tidegate.tasks SET cancel_requested_at = now(), idempotency_key = task_id")
        .await;
    let mut asked = db
        .store
        .life()
        .cancel_requested(&["canceled", "failed", "nobody"])
        .await
        .unwrap();
    asked.sort();
    assert_eq!(asked, ["canceled", "failed"]);
    assert!(tell(&db, told("canceled", Some(1), End::Canceled)).await);
    assert!(tell(&db, told("failed", Some(1), End::Failed)).await);
    let keys: Vec<(String, Option<String>, bool)> = sqlx::query_as(
        "SELECT state, idempotency_key, cancel_requested_at IS NOT NULL FROM tidegate.tasks ORDER BY task_id",
    )
    .fetch_all(&db.sql)
    .await
    .unwrap();
    let expected = [
        ("CANCELED".to_owned(), None, true),
        ("FAILED".to_owned(), Some("failed".to_owned()), false),
    ];
    assert_eq!(keys, expected, "a replay of what failed is not refused");
}

/// A key may be bound to several queues: each has a delivery of its own, and the row has one state.
#[tokio::test]
async fn the_row_follows_the_queue_that_started_first() {
    let db = Database::create().await;
    insert(&db, "t", "PUBLISHED").await;
    assert_eq!(claim(&db, "t").await, Claim::Start(1));
    assert_eq!(claim_by(&db, "t", "order.audit.queue").await, Claim::Shared);
    assert_eq!(row(&db, "t").await.1, 1, "not counted");
    assert!(tell(&db, told("t", Some(1), End::Success)).await);
    assert_eq!(claim(&db, "t").await, Claim::Done);
    assert_eq!(
        claim_by(&db, "t", "order.audit.queue").await,
        Claim::Shared,
        "its success is not the other's"
    );
    insert(&db, "c", "PUBLISHED").await;
    assert_eq!(claim(&db, "c").await, Claim::Start(1));
    db.execute("UPDATE tidegate.tasks SET cancel_requested_at = now() WHERE task_id = 'c'")
        .await;
    assert_eq!(claim_by(&db, "c", "order.audit.queue").await, Claim::Canceled);
    assert_eq!(
        row(&db, "c").await.0,
        "RUNNING",
        "the first queue's worker decides"
    );
}

/// What `docs/life-cycle.md` says a worker's user needs.
#[tokio::test]
async fn a_worker_needs_two_rights_on_one_table() {
    let db = Database::create().await;
    insert(&db, "t", "PUBLISHED").await;
    // Roles belong to the whole server.
    let role = format!("t_{}", uuid::Uuid::now_v7().simple());
    for statement in [
        format!("CREATE ROLE {role}"),
        format!("GRANT USAGE ON SCHEMA tidegate TO {role}"),
        format!("GRANT SELECT, UPDATE ON tidegate.tasks TO {role}"),
    ] {
        sqlx::query(sqlx::AssertSqlSafe(statement))
            .execute(&db.sql)
            .await
            .unwrap();
    }
    let store = db.store_as(&role);
    let life = store.life();
    assert_eq!(life.start(&[("t", QUEUE)]).await.unwrap(), [Claim::Start(1)]);
    assert_eq!(life.cancel_requested(&["t"]).await.unwrap(), [""; 0]);
    assert_eq!(
        life.report(&[told("t", Some(1), End::Retrying)]).await.unwrap(),
        [true]
    );
    sqlx::query(sqlx::AssertSqlSafe(format!(
        "REVOKE UPDATE ON tidegate.tasks FROM {role}"
    )))
    .execute(&db.sql)
    .await
    .unwrap();
    assert!(
        matches!(life.start(&[("t", QUEUE)]).await, Err(StoreError::Forbidden(_))),
        "a right that is missing can be granted while the worker waits"
    );
    store.close().await;
    for statement in [format!("DROP OWNED BY {role}"), format!("DROP ROLE {role}")] {
        sqlx::query(sqlx::AssertSqlSafe(statement))
            .execute(&db.sql)
            .await
            .unwrap();
    }
}
