//! A ledger of its own for each test.

use std::time::Duration;

use secrecy::SecretString;
use sqlx::PgPool;
use tidegate::store::{Store, StoreSettings};
pub(crate) use tidegate_testkit::eventually;

pub(crate) const SOON: Duration = Duration::from_secs(10);

/// A database that is dropped with this value.
pub(crate) struct Database {
    pub(crate) store: Store,
    /// For the test's own statements: what a team's SQL client would send.
    pub(crate) sql: PgPool,
    database: tidegate_testkit::Database,
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
        let database = tidegate_testkit::Database::create().await;
        Self {
            store: store(&database),
            sql: PgPool::connect(database.url()).await.unwrap(),
            database,
        }
    }

    /// Another process's view of the same ledger.
    pub(crate) fn another_store(&self) -> Store {
        store(&self.database)
    }

    /// The same ledger with the rights of `role` only.
    pub(crate) fn store_as(&self, role: &str) -> Store {
        let url = self.database.url();
        let separator = if url.contains('?') { '&' } else { '?' };
        let url = SecretString::from(format!("{url}{separator}options=-c%20role%3D{role}"));
        Store::connect(&url, &StoreSettings::default()).unwrap()
    }

    /// Makes `isolation` the default of every session that begins from now on and doesn't choose its own.
    pub(crate) async fn isolate(&self, isolation: &str) {
        let name: String = self.one("SELECT current_database()::text").await;
        self.run(&format!(
            "ALTER DATABASE \"{name}\" SET default_transaction_isolation = '{isolation}'"
        ))
        .await;
    }

    /// Its URL with credentials.
    pub(crate) fn url(&self) -> &str {
        self.database.url()
    }

    /// Runs a statement.
    pub(crate) async fn execute(&self, sql: &'static str) {
        sqlx::query(sql).execute(&self.sql).await.unwrap();
    }

    /// Runs statements that a test puts together.
    pub(crate) async fn run(&self, sql: &str) {
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned()))
            .execute(&self.sql)
            .await
            .unwrap();
    }

    /// One value.
    pub(crate) async fn one<T>(&self, sql: &'static str) -> T
    where
        T: Send + Unpin + for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
    {
        sqlx::query_scalar(sql).fetch_one(&self.sql).await.unwrap()
    }
}

fn store(database: &tidegate_testkit::Database) -> Store {
    Store::connect(
        &SecretString::from(database.url().to_owned()),
        &StoreSettings {
            // Opening one takes a second of CPU in a build that is not optimised, and tests open many at once.
            acquire_timeout: Duration::from_secs(30),
            ..StoreSettings::default()
        },
    )
    .unwrap()
}
