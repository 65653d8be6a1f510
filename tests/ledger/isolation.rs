//! A database or a role whose transactions are stricter by default.

use secrecy::SecretString;
use sqlx::Connection;
use tidegate::{
    ledger::PostgresLedger,
    scheduler::relay::{self, RelaySettings},
    worker::ledger::{Ask, Ledger, Verdict},
};

use crate::{broker::Broker, support::Database};

async fn session(db: &Database) -> sqlx::PgConnection {
    sqlx::PgConnection::connect(db.url()).await.unwrap()
}

/// Under `serializable` the relay could not write back a row that somebody had touched meanwhile, and sent its batch for
/// ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stricter_default_of_the_database_changes_nothing() {
    for isolation in ["serializable", "repeatable read"] {
        let (db, broker) = (Database::create().await, Broker::create().await);
        db.isolate(isolation).await;
        let store = db.another_store();
        db.execute("SELECT tidegate.enqueue('order.close.timeout', '{}', task_id => 't')")
            .await;
        let batch = relay::pass(&store, &broker.tasks, &RelaySettings::default())
            .await
            .unwrap();
        assert_eq!(batch.published, 1, "{isolation}");
        assert_eq!(broker.take().await.len(), 1, "{isolation}");
        // It was written down after the relay's transaction had begun.
        let announced: i64 = db.one("SELECT count(*) FROM tidegate.handovers").await;
        assert_eq!(announced, 0, "{isolation}: the relay sees what was announced");
        let default: String = sqlx::query_scalar("SHOW default_transaction_isolation")
            .fetch_one(&mut session(&db).await)
            .await
            .unwrap();
        assert_eq!(default, isolation, "as everybody else has it");

        let ledger = PostgresLedger::connect(&SecretString::from(db.url().to_owned())).unwrap();
        let ask = Ask {
            task_id: "t".to_owned(),
            queue: crate::broker::QUEUE.to_owned(),
        };
        assert!(
            matches!(
                ledger.start(&[ask]).await.unwrap()[..],
                [Some(Verdict::Start { .. })]
            ),
            "{isolation}"
        );
    }
}
