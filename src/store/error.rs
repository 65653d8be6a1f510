//! What a caller does about a failure of the database.
//!
//! May import: sqlx. Messages carry what Postgres said, never a URL and never a bound value of ours.

use sqlx::migrate::MigrateError;

/// A failure of the ledger; the variants differ in what the caller does.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database is away, overloaded or restarting: try again later.
    #[error("the database is unavailable: {0}")]
    Unavailable(String),
    /// Somebody else holds what this call needs, or was faster: nothing was changed, try again.
    #[error("busy, nothing was changed: {0}")]
    Busy(String),
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
        matches!(self, Self::Unavailable(_) | Self::Busy(_))
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
        // Serialisation failure, deadlock, lock not available.
        "40001" | "40P01" | "55P03" => StoreError::Busy,
        // Read-only (a standby), statement or idle time-out, a database that is still being created or dropped, or that
        // lets nobody in for now.
        "25006" | "57014" | "25P03" | "3D000" | "55000" => StoreError::Unavailable,
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

/// Whether a value of a row is to blame, and not the database as a whole, a missing right or a missing table. A team's
/// own constraints and triggers are meant too, whatever SQLSTATE they raise.
pub(super) fn is_about_a_row(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(of_database) = error else {
        return false;
    };
    let of_all = |code: std::borrow::Cow<'_, str>| {
        code.starts_with("42") || code.starts_with("0A") || code.starts_with("3F")
    };
    !is_about_the_database(error) && !of_database.code().is_some_and(of_all)
}

/// Whether the database as a whole, or the transaction, is in trouble, and no statement about another row would do
/// better. What a trigger raises, under whatever SQLSTATE, is about its row.
pub(super) fn is_about_the_database(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(error) = error else {
        return true;
    };
    error.code().is_none_or(|code| {
        // Connection, transaction state, aborted transaction, authorisation, rollback, resources, state of an object,
        // intervention, system, internal.
        ["08", "25", "26", "28", "40", "53", "55", "57", "58", "XX"]
            .iter()
            .any(|class| code.starts_with(class))
    })
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
        assert!(
            matches!(kind("55P03"), StoreError::Busy(_)),
            "a lock says nothing about the database"
        );
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
