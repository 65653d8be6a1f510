//! Effect and record commit together, or not at all.

use tidegate::{
    ledger::{Transaction, TransactionError},
    worker::{Context, TaskError},
};

use super::stage::{BY_KEY, DATABASE, Stage};

async fn effect(transaction: &mut Transaction, key: &str) -> Result<(), sqlx::Error> {
    sqlx::query("INSERT INTO effects (key, step) VALUES ($1, 'effect')")
        .bind(key)
        .execute(&mut **transaction)
        .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_takes_its_transaction_drops_it_and_takes_it_again() {
    let stage = Stage::new().await;
    let handler = |context: Context| async move {
        effect(&mut Transaction::of(&context).await?, "k").await?;
        let mut transaction = Transaction::of(&context).await?;
        let seen: i64 = sqlx::query_scalar("SELECT count(*) FROM effects")
            .fetch_one(&mut *transaction)
            .await?;
        if seen != 1 {
            return Err(TaskError::reject("other", "another transaction"));
        }
        match Transaction::of(&context).await {
            Err(TransactionError::InUse) => Ok(()),
            other => Err(TaskError::reject("twice", format!("{other:?}"))),
        }
    };
    stage.platform.run(stage.worker().handle(DATABASE, handler));
    stage.send(DATABASE, "t", "k", "").await;
    stage.done("k").await;
    assert_eq!(stage.count("k", "effect").await, 1);
    stage.close().await;
}

/// What the database refuses at the commit is a failed attempt.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_cannot_be_committed_is_a_failed_attempt() {
    let stage = Stage::new().await;
    for statement in [
        "CREATE TABLE parents (id int PRIMARY KEY)",
        "CREATE TABLE children (id int REFERENCES parents DEFERRABLE INITIALLY DEFERRED)",
    ] {
        sqlx::query(statement).execute(&stage.sql).await.unwrap();
    }
    let handler = |context: Context| async move {
        let mut transaction = Transaction::of(&context).await?;
        effect(&mut transaction, context.envelope.task_id.as_str()).await?;
        match (context.envelope.task_id.as_str(), context.attempt) {
            // Found out at the commit.
            ("deferred", 1) => {
                sqlx::query("INSERT INTO children VALUES (1)")
                    .execute(&mut *transaction)
                    .await?;
            }
            // An error that the handler looked away from.
            ("swallowed", 1) => {
                let _ = sqlx::query("SELECT 1 / 0").execute(&mut *transaction).await;
            }
            ("kept", 1) => std::mem::forget(transaction),
            _ => {}
        }
        Ok::<(), TaskError>(())
    };
    stage.platform.run(stage.worker().handle(DATABASE, handler));
    for id in ["deferred", "swallowed", "kept"] {
        stage.send(DATABASE, id, id, "").await;
        stage.done(id).await;
        assert_eq!(stage.count(id, "effect").await, 1, "{id}");
    }
    stage.settled().await;
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_mode_has_no_transaction_and_says_so() {
    let stage = Stage::new().await;
    let handler = |context: Context| async move {
        Transaction::of(&context)
            .await
            .map_err(|e| TaskError::reject("none", e))?;
        Ok::<(), TaskError>(())
    };
    stage.platform.run(stage.worker().handle(BY_KEY, handler));
    stage.send(BY_KEY, "t", "k", "").await;
    let dead = stage.platform.dead_letters(1).await;
    assert!(
        dead[0]
            .header(tidegate::core::headers::ERROR)
            .contains("idempotency = \"database\"")
    );
    stage.close().await;
}
