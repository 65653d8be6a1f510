//! A database of a test's own.

use sqlx::{Connection, Executor, PgConnection};
use uuid::Uuid;

use crate::{Services, services, sweep};

/// A database that is dropped by [`close`](Self::close), or when dropped by a failing test.
#[derive(Debug)]
pub struct Database {
    name: String,
    url: String,
    admin: String,
    open: bool,
}

impl Database {
    /// Creates an empty database with a random name.
    pub async fn create() -> Self {
        let services = services();
        sweep::databases(&services).await;
        Self::create_on(&services).await
    }

    /// Does the same on other services than those of the test run, such as [`PrivateServices`](crate::PrivateServices).
    pub async fn create_on(services: &Services) -> Self {
        let admin = services.database.clone();
        let name = format!("t_{}", Uuid::now_v7().simple());
        execute(&admin, format!("CREATE DATABASE {name}")).await;
        let (server, options) = admin
            .split_once('?')
            .map_or((admin.as_str(), ""), |(s, o)| (s, o));
        let (authority, _) = server.rsplit_once('/').expect("DATABASE_URL names a database");
        let url = if options.is_empty() {
            format!("{authority}/{name}")
        } else {
            format!("{authority}/{name}?{options}")
        };
        Self {
            name,
            url,
            admin,
            open: true,
        }
    }

    /// Its URL with credentials.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Drops it, whoever is still connected.
    pub async fn close(mut self) {
        self.open = false;
        drop_database(&self.admin, &self.name).await;
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if self.open {
            let (admin, name) = (self.admin.clone(), self.name.clone());
            block_on(async move { drop_database(&admin, &name).await });
        }
    }
}

pub(crate) async fn drop_database(admin: &str, name: &str) {
    execute(admin, format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await;
}

async fn execute(url: &str, statement: String) {
    let mut connection = PgConnection::connect(url).await.expect("DATABASE_URL answers");
    connection
        .execute(sqlx::AssertSqlSafe(statement))
        .await
        .expect("the role may create and drop databases");
    let _ = connection.close().await;
}

/// Runs `work` to its end on a thread with a runtime of its own: a `drop` may happen inside or outside of one.
pub(crate) fn block_on(work: impl Future<Output = ()> + Send + 'static) {
    let thread = std::thread::spawn(|| {
        if let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() {
            runtime.block_on(work);
        }
    });
    // A failed clean-up must not hide the failure that led here.
    let _ = thread.join();
}
