//! Idempotency keys in the ledger: who gets one, who keeps it, and who may say that it is done.

use std::{collections::HashSet, time::Duration};

use tidegate::{
    scheduler::retention::{RetentionSettings, Walks, prune},
    store::{
        StoreError,
        executions::{Claim, Grant, Wanted, Written},
        retention::Kept,
    },
};

use crate::support::{Database, SOON};

const LEASE: Duration = Duration::from_secs(30);

fn wanted<'a>(key: &'a str, owner: &'a str) -> Wanted<'a> {
    Wanted {
        task_type: "a.b",
        key,
        task_id: "t",
        owner,
        lease: LEASE,
    }
}

fn grant(key: &str, fence: i64) -> Grant<'_> {
    Grant {
        task_type: "a.b",
        key,
        fence,
        lease: LEASE,
    }
}

async fn claim(db: &Database, key: &str, owner: &str) -> Claim {
    db.store.executions().claim(&[wanted(key, owner)]).await.unwrap()[0]
}

async fn granted(db: &Database, key: &str, owner: &str) -> i64 {
    match claim(db, key, owner).await {
        Claim::Granted(fence) => fence,
        other => panic!("{other:?}"),
    }
}

async fn complete(db: &Database, key: &str, fence: i64) -> Written {
    db.store
        .executions()
        .complete(&[grant(key, fence)])
        .await
        .unwrap()[0]
}

async fn release(db: &Database, key: &str, fence: i64) -> Written {
    db.store.executions().release(&[grant(key, fence)]).await.unwrap()[0]
}

async fn renew(db: &Database, key: &str, fence: i64) -> Written {
    db.store.executions().renew(&[grant(key, fence)]).await.unwrap()[0]
}

/// As if so much time had passed since the claims and renewals.
async fn leases_end(db: &Database) {
    db.execute("UPDATE tidegate.executions SET lease_until = now() - interval '1 second'")
        .await;
}

#[tokio::test]
async fn a_key_is_granted_held_and_done() {
    let db = Database::create().await;
    let fence = granted(&db, "k", "one").await;
    let Claim::Held(left) = claim(&db, "k", "two").await else {
        panic!("it is held")
    };
    assert!(left > Duration::from_secs(25) && left <= LEASE, "{left:?}");
    let other = Wanted {
        task_type: "a.c",
        ..wanted("k", "two")
    };
    let of_another_type = db.store.executions().claim(&[other]).await.unwrap();
    assert!(
        matches!(of_another_type[0], Claim::Granted(_)),
        "a key is of its type"
    );
    // The answer to the claim was lost, and it is sent again.
    assert_eq!(granted(&db, "k", "one").await, fence);
    assert_eq!(complete(&db, "k", fence).await, Written::Yes);
    // The same for the completion.
    assert_eq!(complete(&db, "k", fence).await, Written::Yes);
    assert_eq!(claim(&db, "k", "two").await, Claim::Done);
    leases_end(&db).await;
    assert_eq!(
        claim(&db, "k", "two").await,
        Claim::Done,
        "a success holds without a lease"
    );
    assert_eq!(release(&db, "k", fence).await, Written::Yes);
    assert_eq!(claim(&db, "k", "two").await, Claim::Done, "and is never released");
}

#[tokio::test]
async fn an_ended_lease_is_taken_over_and_the_late_owner_refused() {
    let db = Database::create().await;
    let late = granted(&db, "k", "frozen").await;
    leases_end(&db).await;
    let fence = granted(&db, "k", "next").await;
    assert!(fence > late);
    assert_eq!(renew(&db, "k", late).await, Written::Refused);
    assert_eq!(release(&db, "k", late).await, Written::Refused);
    assert_eq!(complete(&db, "k", late).await, Written::Refused);
    assert!(
        matches!(claim(&db, "k", "third").await, Claim::Held(_)),
        "nothing was changed"
    );
    assert_eq!(complete(&db, "k", fence).await, Written::Yes);
    assert_eq!(complete(&db, "k", late).await, Written::Refused);
}

/// Frozen beyond the lease, but nobody came: the key is still its owner's.
#[tokio::test]
async fn an_ended_lease_that_nobody_took_over_can_be_renewed_and_completed() {
    let db = Database::create().await;
    let fence = granted(&db, "k", "one").await;
    leases_end(&db).await;
    assert_eq!(renew(&db, "k", fence).await, Written::Yes);
    assert!(matches!(claim(&db, "k", "two").await, Claim::Held(_)));
    leases_end(&db).await;
    assert_eq!(complete(&db, "k", fence).await, Written::Yes);
}

/// B74: an operator, or a restored backup, removes the row of a key whose task runs.
#[tokio::test]
async fn a_deleted_row_frees_its_key_and_no_number_is_used_again() {
    let db = Database::create().await;
    let fence = granted(&db, "k", "one").await;
    db.execute("DELETE FROM tidegate.executions").await;
    assert_eq!(complete(&db, "k", fence).await, Written::Refused);
    let next = granted(&db, "k", "two").await;
    assert!(next > fence);
    assert_eq!(complete(&db, "k", fence).await, Written::Refused);
    assert_eq!(complete(&db, "k", next).await, Written::Yes);
}

#[tokio::test]
async fn a_released_key_is_free_at_once() {
    let db = Database::create().await;
    let fence = granted(&db, "k", "one").await;
    assert_eq!(release(&db, "k", fence).await, Written::Yes);
    assert_eq!(db.one::<i64>("SELECT count(*) FROM tidegate.executions").await, 0);
    assert!(granted(&db, "k", "two").await > fence);
}

#[tokio::test]
async fn a_batch_is_answered_in_order_and_equal_keys_are_granted_once() {
    let db = Database::create().await;
    let done = granted(&db, "done", "x").await;
    complete(&db, "done", done).await;
    granted(&db, "held", "x").await;
    let keys = ["new", "done", "new", "held", "a", "new"];
    let owners = ["o0", "o1", "o2", "o3", "o4", "o5"];
    let batch: Vec<Wanted<'_>> = keys.iter().zip(owners).map(|(k, o)| wanted(k, o)).collect();
    let claims = db.store.executions().claim(&batch).await.unwrap();
    assert!(
        matches!(
            claims[..],
            [
                Claim::Granted(_),
                Claim::Done,
                Claim::Busy,
                Claim::Held(_),
                Claim::Granted(_),
                Claim::Busy
            ]
        ),
        "{claims:?}"
    );
    assert_eq!(db.store.executions().claim(&[]).await.unwrap(), []);
    let Claim::Granted(fence) = claims[0] else {
        panic!()
    };
    let grants = [
        grant("new", fence),
        grant("new", done),
        grant("new", fence),
        grant("gone", 1),
    ];
    let executions = db.store.executions();
    let expected = [Written::Yes, Written::Refused, Written::Yes, Written::Refused];
    assert_eq!(executions.renew(&grants).await.unwrap(), expected);
    assert_eq!(executions.complete(&grants).await.unwrap(), expected);
    assert_eq!(executions.complete(&[]).await.unwrap(), []);
}

/// A handler's transaction between its completion and its commit, in a process that is frozen there.
#[tokio::test]
async fn a_locked_key_holds_up_no_other() {
    let db = Database::create().await;
    let fence = granted(&db, "locked", "one").await;
    let free = granted(&db, "free", "one").await;
    leases_end(&db).await;
    let mut other = db.sql.begin().await.unwrap();
    sqlx::query(
        "UPDATE tidegate.executions SET state = 'DONE', finished_at = now() WHERE idempotency_key = 'locked'",
    )
    .execute(&mut *other)
    .await
    .unwrap();
    let executions = db.store.executions();
    let batch = [
        wanted("locked", "two"),
        wanted("free", "two"),
        wanted("new", "two"),
    ];
    let claims = tokio::time::timeout(SOON, executions.claim(&batch))
        .await
        .unwrap()
        .unwrap();
    assert!(
        matches!(claims[..], [Claim::Busy, Claim::Granted(_), Claim::Granted(_)]),
        "{claims:?}"
    );
    for written in [
        executions
            .release(&[grant("locked", fence), grant("free", free)])
            .await
            .unwrap(),
        executions
            .renew(&[grant("locked", fence), grant("free", free)])
            .await
            .unwrap(),
        executions
            .complete(&[grant("locked", fence), grant("free", free)])
            .await
            .unwrap(),
    ] {
        assert_eq!(written, [Written::Busy, Written::Refused]);
    }
    other.commit().await.unwrap();
    assert_eq!(claim(&db, "locked", "two").await, Claim::Done);
}

/// Batches of many workers over the same keys, in all orders: nobody deadlocks, and each key has one owner.
#[tokio::test(flavor = "multi_thread")]
async fn claims_in_any_order_give_each_key_to_one() {
    use rand::seq::SliceRandom;
    let db = Database::create().await;
    let keys: Vec<String> = (0..200).map(|n| format!("k{n}")).collect();
    let workers = (0..6).map(|worker| {
        let (store, mut keys) = (db.another_store(), keys.clone());
        tokio::spawn(async move {
            let mut got = Vec::new();
            for round in 0..10 {
                keys.shuffle(&mut rand::rng());
                let owner = format!("w{worker}.{round}");
                let batch: Vec<Wanted<'_>> = keys.iter().map(|key| wanted(key, &owner)).collect();
                for (key, claim) in keys.iter().zip(store.executions().claim(&batch).await.unwrap()) {
                    if let Claim::Granted(fence) = claim {
                        got.push((key.clone(), fence));
                    }
                }
                // Some give theirs back, so that the rounds go on.
                let back: Vec<Grant<'_>> = got.iter().map(|(key, fence)| grant(key, *fence)).collect();
                store.executions().renew(&back).await.unwrap();
                if round < 9 {
                    // Those that others are looking at this moment are asked about again, as the worker does.
                    while store
                        .executions()
                        .release(&back)
                        .await
                        .unwrap()
                        .contains(&Written::Busy)
                    {}
                    got.clear();
                }
            }
            got
        })
    });
    let mut owned: Vec<(String, i64)> = Vec::new();
    for got in futures::future::join_all(workers).await {
        owned.extend(got.unwrap());
    }
    let distinct: HashSet<&str> = owned.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(distinct.len(), owned.len(), "a key with two owners");
    let rows: i64 = db.one("SELECT count(*) FROM tidegate.executions").await;
    assert_eq!(rows, owned.len() as i64);
}

#[tokio::test]
async fn keys_are_kept_from_their_end_as_long_as_the_setting_says() {
    let db = Database::create().await;
    db.execute(
        "INSERT INTO tidegate.executions (task_type, idempotency_key, state, owner, lease_until, task_id, started_at, finished_at) \
         SELECT 'a.b', state || '.' || s || '.' || e, state, 'o', now() - interval '1 day' * e, 't', now() - interval '1 day' * s, \
           CASE WHEN state = 'DONE' THEN now() - interval '1 day' * e END \
         FROM unnest(ARRAY['DONE', 'RUNNING']) state, (VALUES (9, 8), (9, 6), (6, 6), (9, -1)) AS v (s, e)",
    )
    .await;
    let settings = RetentionSettings::default();
    let deleted = prune(&db.store, &settings, &mut Walks::default()).await.unwrap();
    assert_eq!(deleted.get(&Kept::Executions), Some(&2));
    let left: Vec<String> =
        sqlx::query_scalar("SELECT idempotency_key FROM tidegate.executions ORDER BY idempotency_key")
            .fetch_all(&db.sql)
            .await
            .unwrap();
    assert_eq!(
        left,
        [
            "DONE.6.6",
            "DONE.9.-1",
            "DONE.9.6",
            "RUNNING.6.6",
            "RUNNING.9.-1",
            "RUNNING.9.6"
        ]
    );
}

/// What `docs/idempotency.md` says a worker's user needs.
#[tokio::test]
async fn a_worker_needs_four_rights_on_the_table() {
    let db = Database::create().await;
    let role = format!("t_{}", uuid::Uuid::now_v7().simple());
    let run = async |statement: String| {
        sqlx::query(sqlx::AssertSqlSafe(statement))
            .execute(&db.sql)
            .await
            .unwrap();
    };
    run(format!("CREATE ROLE {role}")).await;
    run(format!("GRANT USAGE ON SCHEMA tidegate TO {role}")).await;
    run(format!(
        "GRANT SELECT, INSERT, UPDATE, DELETE ON tidegate.executions TO {role}"
    ))
    .await;
    let store = db.store_as(&role);
    let executions = store.executions();
    let Claim::Granted(fence) = executions.claim(&[wanted("k", "one")]).await.unwrap()[0] else {
        panic!("not granted")
    };
    assert_eq!(
        executions.renew(&[grant("k", fence)]).await.unwrap(),
        [Written::Yes]
    );
    assert_eq!(
        executions.release(&[grant("k", fence)]).await.unwrap(),
        [Written::Yes]
    );
    run(format!("REVOKE INSERT ON tidegate.executions FROM {role}")).await;
    let refused = executions.claim(&[wanted("k", "two")]).await;
    assert!(matches!(refused, Err(StoreError::Forbidden(_))), "{refused:?}");
    store.close().await;
    run(format!("DROP OWNED BY {role}")).await;
    run(format!("DROP ROLE {role}")).await;
}
