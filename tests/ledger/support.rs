//! A database of its own for each test, and polls with deadlines.

use std::{future::Future, str::FromStr, time::Duration};

use secrecy::SecretString;
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool, postgres::PgConnectOptions};
use tidegate::store::{Store, StoreSettings};

/// A database that is dropped with this value.
pub(crate) struct Database {
    name: String,
    url: String,
    pub(crate) store: Store,
    /// For the test's own statements: what a team's SQL client would send.
    pub(crate) sql: PgPool,
}

impl Database {
    /// A new database with the tables.
    pub(crate) async fn create() -> Self {
        let database = Self::empty().await;
        database.store.migrate().await.unwrap();
        database
    }

    /// A new database without anything.
    pub(crate) async fn empty() -> Self {
        let server = std::env::var("DATABASE_URL").expect("DATABASE_URL names a Postgres for the tests");
        let name = format!("tg_{}", uuid::Uuid::new_v4().simple());
        let mut admin = PgConnection::connect(&server).await.unwrap();
        sqlx::query(AssertSqlSafe(format!("CREATE DATABASE {name}")))
            .execute(&mut admin)
            .await
            .unwrap();
        let options = PgConnectOptions::from_str(&server).unwrap().database(&name);
        let base = server.rsplit_once('/').unwrap().0;
        let url = format!("{base}/{name}");
        Self {
            store: store(&url),
            sql: PgPool::connect_with(options).await.unwrap(),
            name,
            url,
        }
    }

    /// Another process's view of the same ledger.
    pub(crate) fn another_store(&self) -> Store {
        store(&self.url)
    }

    /// Runs a statement.
    pub(crate) async fn execute(&self, sql: &'static str) {
        sqlx::query(sql).execute(&self.sql).await.unwrap();
    }

    /// One value.
    pub(crate) async fn one<T>(&self, sql: &'static str) -> T
    where
        T: Send + Unpin + for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
    {
        sqlx::query_scalar(sql).fetch_one(&self.sql).await.unwrap()
    }
}

fn store(url: &str) -> Store {
    Store::connect(&SecretString::from(url.to_owned()), &StoreSettings::default()).unwrap()
}

impl Drop for Database {
    fn drop(&mut self) {
        let (name, server) = (self.name.clone(), std::env::var("DATABASE_URL").unwrap());
        // A drop can't wait, and the test's runtime may be gone: a thread with its own does it.
        let dropper = std::thread::spawn(move || {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap()
                .block_on(async {
                    let mut admin = PgConnection::connect(&server).await?;
                    sqlx::query(AssertSqlSafe(format!("DROP DATABASE {name} WITH (FORCE)")))
                        .execute(&mut admin)
                        .await
                })
        });
        let _ = dropper.join();
    }
}

/// Polls `probe` until it gives something; panics after `limit`.
pub(crate) async fn eventually<T, F: Future<Output = Option<T>>>(
    limit: Duration,
    what: &str,
    mut probe: impl FnMut() -> F,
) -> T {
    let poll = async {
        loop {
            if let Some(found) = probe().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    };
    tokio::time::timeout(limit, poll)
        .await
        .unwrap_or_else(|_| panic!("not within {limit:?}: {what}"))
}
