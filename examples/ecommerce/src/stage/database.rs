//! A database of its own.

use std::{str::FromStr, time::Duration};

use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::time::timeout;

use super::url;
use crate::problem::Problem;

pub(super) struct Database {
    name: String,
    /// `DATABASE_URL` with this database in place of its own.
    pub(super) url: String,
    maintenance: PgConnectOptions,
    made: bool,
}

impl Database {
    pub(super) fn plan(name: &str) -> Result<Self, Problem> {
        let mut url = url("DATABASE_URL")?;
        let maintenance = PgConnectOptions::from_str(url.as_str())?;
        url.set_path(&format!("/{name}"));
        Ok(Self {
            name: name.to_owned(),
            url: url.to_string(),
            maintenance,
            made: false,
        })
    }

    pub(super) async fn make(&mut self) -> Result<PgPool, Problem> {
        self.made = true;
        // The name is of our own making: letters, digits, underscores.
        self.maintain(format!("CREATE DATABASE {}", self.name)).await?;
        let options = PgPoolOptions::new()
            .min_connections(4)
            .max_connections(10)
            .acquire_timeout(Duration::from_secs(10));
        Ok(options.connect(&self.url).await?)
    }

    pub(super) async fn remove(&mut self) -> Result<(), Problem> {
        if std::mem::take(&mut self.made) {
            self.maintain(format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name))
                .await?;
        }
        Ok(())
    }

    async fn maintain(&self, statement: String) -> Result<(), Problem> {
        let work = async {
            let mut connection = self.maintenance.connect().await?;
            sqlx::raw_sql(AssertSqlSafe(statement))
                .execute(&mut connection)
                .await?;
            connection.close().await
        };
        match timeout(Duration::from_secs(20), work).await {
            Ok(done) => Ok(done?),
            Err(_) => Err(Problem::Missing(
                "Postgres does not answer within 20 s".to_owned(),
            )),
        }
    }
}
