//! The embedded migrations, and their bookkeeping in `tidegate.schema_migrations`.
//!
//! May import: sqlx. The runner holds an advisory lock, so any number of processes may migrate at once. Each
//! migration and its line in the bookkeeping are one transaction: a process that dies between two migrations leaves
//! a schema from which the next run goes on.

use sqlx::{Connection, PgConnection, migrate::Migrator};

use super::{Store, StoreError};

pub(super) const BOOKKEEPING: &str = "tidegate.schema_migrations";

pub(super) fn migrator() -> Migrator {
    let mut migrator = sqlx::migrate!();
    migrator.create_schema("tidegate");
    migrator.dangerous_set_table_name(BOOKKEEPING);
    migrator
}

impl Store {
    /// Applies what is missing; returns the versions applied, oldest first. Safe to run many times at once.
    pub async fn migrate(&self) -> Result<Vec<i64>, StoreError> {
        let before = self.applied().await?;
        let mut connection = self.unpooled().await?;
        migrator().run(&mut connection).await?;
        // The lock goes with the session.
        connection.close().await?;
        Ok(self
            .applied()
            .await?
            .into_iter()
            .filter(|v| !before.contains(v))
            .collect())
    }

    /// Undoes every migration newer than `version` (0: all). Drops tables and what is in them.
    pub async fn revert_to(&self, version: i64) -> Result<(), StoreError> {
        let mut connection = self.unpooled().await?;
        migrator().undo(&mut connection, version).await?;
        connection.close().await?;
        Ok(())
    }

    /// Whether every migration this program knows has been applied. Newer ones may have been too.
    pub async fn schema_is_current(&self) -> Result<bool, StoreError> {
        let applied = self.applied().await?;
        Ok(migrator()
            .iter()
            .filter(|m| m.migration_type.is_up_migration())
            .all(|m| applied.contains(&m.version)))
    }

    async fn applied(&self) -> Result<Vec<i64>, StoreError> {
        let exists: bool = sqlx::query_scalar("SELECT to_regclass($1) IS NOT NULL")
            .bind(BOOKKEEPING)
            .fetch_one(&self.pool)
            .await?;
        if !exists {
            return Ok(Vec::new());
        }
        Ok(sqlx::query_scalar(
            "SELECT version FROM tidegate.schema_migrations WHERE success ORDER BY version",
        )
        .fetch_all(&self.pool)
        .await?)
    }

    /// A connection without the pool's time-outs: a migration may run for long.
    async fn unpooled(&self) -> Result<PgConnection, StoreError> {
        Ok(PgConnection::connect_with(&self.options).await?)
    }
}
