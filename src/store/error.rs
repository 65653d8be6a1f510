//! What a caller does about a failure of the database.
//!
//! May import: sqlx. Messages carry what Postgres said, never a URL and never a bound value of ours.

use sqlx::migrate::MigrateError;

/// A failure of the ledger; the variants differ in what the caller does.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database is away, busy, restarting or gave up on a lock: try again later.
    #[error("the database is unavailable: {0}")]
    Unavailable(String),
    /// Tables are missing or older than this program.
    #[error("the schema `tidegate` is missing or out of date ({0}); run `tidegate migrate`")]
    SchemaMissing(String),
    /// Another row has that name, or somebody else changed the row first.
    #[error("conflict: {0}")]
    Conflict(String),
    /// The server doesn't let this user in: a wrong user or password, or a rule of `pg_hba.conf`.
    #[error("the database doesn't let this user in: {0}")]
    Denied(String),
    /// The user is let in and lacks a right: the same call succeeds once it is granted.
    #[error("the database user may not do this: {0}")]
    Forbidden(String),
    /// The same call will fail again: a value the tables refuse.
    #[error("the database refused: {0}")]
    Bad(String),
}

impl StoreError {
    /// Whether trying the same again later can help.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::Database(e) => {
                let code = e.code().unwrap_or_default().into_owned();
                let text = format!("{} (SQLSTATE {code})", e.message());
                of_sqlstate(&code)(text)
            }
            sqlx::Error::PoolTimedOut => Self::Unavailable(
                "no connection in time: the database doesn't answer, or all connections of the pool are in use".to_owned(),
            ),
            sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed => {
                Self::Unavailable("the connection pool is closed".to_owned())
            }
            sqlx::Error::Io(e) => Self::Unavailable(e.to_string()),
            sqlx::Error::Tls(e) => Self::Unavailable(format!("TLS: {e}")),
            sqlx::Error::Protocol(e) => Self::Unavailable(format!("protocol: {e}")),
            // The text of a configuration error may quote the URL.
            sqlx::Error::Configuration(_) => Self::Bad("the connection settings are invalid".to_owned()),
            sqlx::Error::RowNotFound => Self::Bad("a row that must exist does not".to_owned()),
            other => Self::Bad(other.to_string()),
        }
    }
}

impl From<MigrateError> for StoreError {
    fn from(error: MigrateError) -> Self {
        match error {
            MigrateError::Execute(e) | MigrateError::ExecuteMigration(e, _) => e.into(),
            MigrateError::VersionMissing(v) => Self::Bad(format!(
                "migration {v} was applied by a newer program and is unknown to this one; upgrade this program"
            )),
            other => Self::Bad(other.to_string()),
        }
    }
}

fn of_sqlstate(code: &str) -> fn(String) -> StoreError {
    match code {
        // No such table, schema, column, function or type.
        "42P01" | "3F000" | "42703" | "42883" | "42704" => StoreError::SchemaMissing,
        // Unique violation, exclusion violation.
        "23505" | "23P01" => StoreError::Conflict,
        "42501" => StoreError::Forbidden,
        // Serialisation failure, deadlock, lock not available, read-only (a standby), statement or idle time-out,
        // a database that is still being created or dropped, or that lets nobody in for now.
        "40001" | "40P01" | "55P03" | "25006" | "57014" | "25P03" | "3D000" | "55000" => {
            StoreError::Unavailable
        }
        // Invalid authorisation: a wrong user or password.
        _ if code.starts_with("28") => StoreError::Denied,
        // Connection exceptions, insufficient resources, operator intervention, system errors.
        _ if ["08", "53", "57", "58"]
            .iter()
            .any(|class| code.starts_with(class)) =>
        {
            StoreError::Unavailable
        }
        _ => StoreError::Bad,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_tells_what_to_do() {
        let kind = |code| of_sqlstate(code)(String::new());
        assert!(kind("57P01").is_transient(), "the server shuts down");
        assert!(kind("53300").is_transient(), "too many connections");
        assert!(kind("40P01").is_transient(), "deadlock");
        assert!(matches!(kind("42P01"), StoreError::SchemaMissing(_)));
        assert!(matches!(kind("23505"), StoreError::Conflict(_)));
        assert!(matches!(kind("23514"), StoreError::Bad(_)));
        assert!(matches!(kind("42501"), StoreError::Forbidden(_)));
        assert!(
            matches!(kind("28P01"), StoreError::Denied(_)),
            "a wrong password doesn't heal"
        );
    }

    #[test]
    fn a_configuration_error_keeps_the_url_to_itself() {
        let error = sqlx::Error::Configuration("postgres://u:secret@h/x is wrong".into());
        assert!(!StoreError::from(error).to_string().contains("secret"));
    }
}
