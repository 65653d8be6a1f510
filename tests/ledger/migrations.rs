//! Forward, back, forward; many at once; a database that is away or empty.

use std::time::Duration;

use secrecy::SecretString;
use tidegate::store::{Store, StoreError, StoreSettings};

use crate::support::Database;

#[tokio::test]
async fn up_down_up() {
    let db = Database::empty().await;
    assert!(!db.store.schema_is_current().await.unwrap());
    assert_eq!(db.store.migrate().await.unwrap(), [1, 2, 3, 4, 5, 6]);
    assert!(db.store.schema_is_current().await.unwrap());
    assert!(
        db.store.migrate().await.unwrap().is_empty(),
        "nothing is left to do"
    );

    db.store.revert_to(0).await.unwrap();
    assert!(!db.store.schema_is_current().await.unwrap());
    let left: i64 = db
        .one("SELECT count(*) FROM pg_class WHERE relnamespace = 'tidegate'::regnamespace AND relkind IN ('r', 'i', 'S') \
              AND relname NOT LIKE 'schema_migrations%'")
        .await;
    let functions: i64 = db
        .one("SELECT count(*) FROM pg_proc WHERE pronamespace = 'tidegate'::regnamespace")
        .await;
    assert_eq!((left, functions), (0, 0));

    assert_eq!(db.store.migrate().await.unwrap(), [1, 2, 3, 4, 5, 6]);
    assert!(db.store.schema_is_current().await.unwrap());
}

#[tokio::test]
async fn many_at_once() {
    let db = Database::empty().await;
    let stores: Vec<Store> = (0..8).map(|_| db.another_store()).collect();
    for done in futures::future::join_all(stores.iter().map(Store::migrate)).await {
        done.unwrap();
    }
    assert!(db.store.schema_is_current().await.unwrap());
    assert_eq!(
        db.one::<i64>("SELECT count(*) FROM tidegate.schema_migrations")
            .await,
        6
    );
}

#[tokio::test]
async fn without_tables_the_error_says_to_migrate() {
    let db = Database::empty().await;
    let error = db.store.tasks().next_due().await.unwrap_err();
    assert!(matches!(error, StoreError::SchemaMissing(_)), "{error:?}");
    assert!(error.to_string().contains("tidegate migrate"), "{error}");
}

#[tokio::test]
async fn a_store_starts_while_postgres_is_away_and_keeps_the_password_to_itself() {
    let settings = StoreSettings {
        acquire_timeout: Duration::from_millis(300),
        ..StoreSettings::default()
    };
    let url = SecretString::from("postgres://tide:hunter2@127.0.0.1:1/none".to_owned());
    let store = Store::connect(&url, &settings).unwrap();
    let error = store.ping().await.unwrap_err();
    assert!(error.is_transient(), "{error:?}");
    let told = format!("{store:?} {error} {error:?}");
    assert!(!told.contains("hunter2"), "{told}");

    let error =
        Store::connect(&SecretString::from("mysql//tide:hunter2@x".to_owned()), &settings).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("hunter2"));
}
