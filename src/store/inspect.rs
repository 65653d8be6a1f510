//! Why the database can't be reached, and what is in it, as facts: for `doctor`. Reads only, on one connection of its own.
//!
//! May import: sqlx, core. Texts carry what Postgres said, never a URL.

use std::{io, time::Duration};

use chrono::{DateTime, Utc};
use sqlx::{Connection, PgConnection};
use tidegate_core::doctor::{
    reach::Unreached,
    schema::Applied,
    tls::{self, Tls},
};
use tokio::time::timeout;

use super::{
    Store, StoreError,
    migrate::{BOOKKEEPING, migrator},
};

/// Most schedules that are read.
pub const MOST_SCHEDULES: i64 = 5_000;

/// Where the database is. Nothing in it is secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Host and port; `None` for a Unix socket.
    pub server: Option<(String, u16)>,
    /// The user.
    pub user: String,
    /// The database.
    pub database: String,
}

/// An enabled schedule, as far as routes matter.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct EnabledSchedule {
    /// Its name.
    pub name: String,
    /// Its exchange; `None` is the platform's.
    pub exchange: Option<String>,
    /// Its routing key, by default its task type.
    pub key: String,
}

/// What was seen of a server that lets us in.
#[derive(Debug)]
pub struct Inspected {
    /// `server_version`, e.g. `15.18`.
    pub version: String,
    /// Whether it takes no writes: a standby, or read-only by default.
    pub read_only: bool,
    /// Its clock, between two readings of ours.
    pub clock: (DateTime<Utc>, DateTime<Utc>, DateTime<Utc>),
    /// Migrations on record; `None` where there is no record.
    pub applied: Result<Option<Vec<Applied>>, StoreError>,
    /// Enabled schedules by name, at most [`MOST_SCHEDULES`]. An error too where there is no table.
    pub schedules: Result<Vec<EnabledSchedule>, StoreError>,
}

impl Store {
    /// Where it connects to.
    pub fn address(&self) -> Address {
        let options = &self.options;
        let host = options.get_host();
        let is_socket = options.get_socket().is_some() || host.starts_with('/');
        Address {
            server: (!is_socket).then(|| (host.to_owned(), options.get_port())),
            user: options.get_username().to_owned(),
            database: options
                .get_database()
                .unwrap_or_else(|| options.get_username())
                .to_owned(),
        }
    }

    /// The migrations that this program knows.
    pub fn known_migrations() -> Vec<i64> {
        migrator()
            .iter()
            .filter(|m| m.migration_type.is_up_migration())
            .map(|m| m.version)
            .collect()
    }

    /// Connects once, outside the pool, and looks. `limit` is for the connection, and again for each question.
    ///
    /// # Errors
    /// Why there is no connection, or none that answers.
    pub async fn inspect(&self, limit: Duration) -> Result<Inspected, Unreached> {
        let connect = PgConnection::connect_with(&self.options);
        let mut connection = timeout(limit, connect)
            .await
            .map_err(|_| Unreached::Silent(limit))?
            .map_err(|error| unreached(&error))?;
        let inspected = look(&mut connection, limit).await;
        // What was seen was seen, whether or not the server says good-bye.
        let _ = timeout(Duration::from_secs(1), connection.close()).await;
        inspected
    }
}

async fn look(connection: &mut PgConnection, limit: Duration) -> Result<Inspected, Unreached> {
    let server = sqlx::query_as(
        "SELECT current_setting('server_version'), pg_is_in_recovery() OR \
         current_setting('default_transaction_read_only')::bool, clock_timestamp()",
    );
    let before = Utc::now();
    let answer = timeout(limit, server.fetch_one(&mut *connection)).await;
    let after = Utc::now();
    let answer: Result<(String, bool, DateTime<Utc>), _> = answer.map_err(|_| Unreached::Silent(limit))?;
    let (version, read_only, there) = answer.map_err(|error| unreached(&error))?;
    let late = || StoreError::Unavailable(format!("no answer within {limit:?}"));
    let applied = timeout(limit, applied(connection))
        .await
        .unwrap_or_else(|_| Err(late()));
    let schedules = sqlx::query_as(
        "SELECT name, exchange, coalesce(routing_key, task_type) AS key FROM tidegate.cron_tasks \
         WHERE enabled AND NOT exhausted ORDER BY name LIMIT $1",
    )
    .bind(MOST_SCHEDULES);
    let schedules = match timeout(limit, schedules.fetch_all(&mut *connection)).await {
        Ok(found) => found.map_err(StoreError::from),
        Err(_) => Err(late()),
    };
    Ok(Inspected {
        version,
        read_only,
        clock: (before, there, after),
        applied,
        schedules,
    })
}

async fn applied(connection: &mut PgConnection) -> Result<Option<Vec<Applied>>, StoreError> {
    let exists: bool = sqlx::query_scalar("SELECT to_regclass($1) IS NOT NULL")
        .bind(BOOKKEEPING)
        .fetch_one(&mut *connection)
        .await?;
    if !exists {
        return Ok(None);
    }
    let rows: Vec<(i64, bool, Vec<u8>)> =
        sqlx::query_as("SELECT version, success, checksum FROM tidegate.schema_migrations ORDER BY version")
            .fetch_all(&mut *connection)
            .await?;
    let migrator = migrator();
    let of_row = |(version, success, checksum): (i64, bool, Vec<u8>)| {
        let ours = migrator
            .iter()
            .find(|m| m.version == version && m.migration_type.is_up_migration());
        Applied {
            version,
            success,
            same_text: ours.is_none_or(|m| m.checksum.as_ref() == checksum.as_slice()),
        }
    };
    Ok(Some(rows.into_iter().map(of_row).collect()))
}

fn unreached(error: &sqlx::Error) -> Unreached {
    match error {
        sqlx::Error::Database(refusal) => {
            let said = refusal.message().to_owned();
            match refusal.code().as_deref() {
                Some("3D000") => Unreached::Missing(said),
                Some("42501") => Unreached::NoRight(said),
                Some(code) if code.starts_with("28") => Unreached::Login(said),
                _ => Unreached::Other(said),
            }
        }
        sqlx::Error::Tls(why) => {
            let text = why.to_string();
            Unreached::Tls(tls::read(&text).unwrap_or(Tls::Other(text)))
        }
        sqlx::Error::Io(why) => {
            let text = why.to_string();
            if let Some(tls) = tls::read(&text) {
                return Unreached::Tls(tls);
            }
            match why.kind() {
                io::ErrorKind::ConnectionRefused => Unreached::Refused,
                io::ErrorKind::ConnectionReset
                | io::ErrorKind::ConnectionAborted
                | io::ErrorKind::BrokenPipe
                | io::ErrorKind::UnexpectedEof => Unreached::Dropped,
                _ => Unreached::Other(text),
            }
        }
        sqlx::Error::Protocol(_) => Unreached::OtherProtocol,
        // Its text may quote the URL.
        sqlx::Error::Configuration(_) => Unreached::Other(
            "the connection settings can't be used, e.g. a certificate file that can't be read".to_owned(),
        ),
        other => Unreached::Other(other.to_string()),
    }
}
