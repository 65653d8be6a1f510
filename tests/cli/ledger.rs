//! A ledger with the tables, and the binary on it.

use serde_json::Value;
use sqlx::PgPool;
use tidegate_testkit::Database;

use crate::run::{Ran, Tidegate};

/// A ledger with the tables, the binary on it, and a connection for the test's own statements.
pub(crate) struct Ledger {
    database: Database,
    pub(crate) tidegate: Tidegate,
    sql: PgPool,
}

impl Ledger {
    pub(crate) async fn create() -> Self {
        let database = Database::create().await;
        let tidegate = Tidegate::new().env("DATABASE_URL", database.url());
        let ran = tidegate.run(&["migrate"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        let sql = PgPool::connect(database.url()).await.unwrap();
        Self {
            database,
            tidegate,
            sql,
        }
    }

    /// `tidegate cron … --json`.
    pub(crate) fn cron(&self, arguments: &[&str]) -> Ran {
        self.cron_with(arguments, "")
    }

    pub(crate) fn cron_with(&self, arguments: &[&str], input: &str) -> Ran {
        let arguments = [&["cron"], arguments, &["--json"]].concat();
        self.tidegate.run_with(&arguments, input)
    }

    pub(crate) fn fine(&self, arguments: &[&str]) -> Value {
        let ran = self.cron(arguments);
        assert_eq!(ran.code, 0, "{ran:?}");
        ran.json()
    }

    pub(crate) async fn one<T>(&self, sql: &'static str) -> T
    where
        T: Send + Unpin + for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
    {
        sqlx::query_scalar(sql).fetch_one(&self.sql).await.unwrap()
    }

    pub(crate) async fn execute(&self, sql: &'static str) {
        sqlx::query(sql).execute(&self.sql).await.unwrap();
    }

    pub(crate) async fn close(self) {
        self.sql.close().await;
        self.database.close().await;
    }
}
