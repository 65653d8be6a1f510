//! What came of a run: counts, refusals, and which of them decides the exit. Imports the topology's names.

use std::{fmt, time::Duration};

use crate::topology::{Conflict, ObjectName};

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Objects dealt with.
    pub done: usize,
    /// Objects in all.
    pub total: usize,
}

/// A run without refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Objects that now exist as wanted.
    pub objects: usize,
    /// How long it took.
    pub elapsed: Duration,
}

/// Why a topology was not declared whole.
#[derive(Debug, thiserror::Error)]
pub enum DeclareError {
    /// Something exists with another argument: the same call will fail again until a person decides.
    #[error("the broker has objects that differ from the topology:\n{0}")]
    Conflict(Report),
    /// The broker refused objects for other reasons, such as a missing permission.
    #[error("the broker refused parts of the topology:\n{0}")]
    Refused(Report),
    /// The connection is gone or the broker doesn't answer: try again; what was declared stays.
    #[error("the broker went away while {doing}: {reason}; apply again, what is declared already stays")]
    Unavailable {
        /// What was being done.
        doing: String,
        /// What happened.
        reason: String,
    },
}

/// Everything that was refused, and what was left out because of it; the rest is declared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Objects that the broker refused.
    pub failures: Vec<Failure>,
    /// Bindings left out because one of their ends was refused.
    pub skipped: Vec<Skipped>,
}

/// An object that the broker refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The object.
    pub object: ObjectName,
    /// Why.
    pub cause: Cause,
}

/// Why an object was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It exists with another argument.
    Conflict(Conflict),
    /// In the broker's words.
    Refused(String),
}

/// A binding that was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The binding.
    pub object: ObjectName,
    /// The refused object that it needs.
    pub missing: ObjectName,
}

impl Report {
    /// Objects that are not as wanted.
    pub fn len(&self) -> usize {
        self.failures.len() + self.skipped.len()
    }

    /// Whether all are as wanted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The conflicts among the failures.
    pub fn conflicts(&self) -> impl Iterator<Item = &Conflict> {
        self.failures.iter().filter_map(|failure| match &failure.cause {
            Cause::Conflict(conflict) => Some(conflict),
            Cause::Refused(_) => None,
        })
    }

    pub(super) fn into_result<T>(mut self, fine: T) -> Result<T, DeclareError> {
        // Channels finish in any order; a report doesn't.
        self.failures.sort_by(|a, b| a.object.cmp(&b.object));
        self.skipped.sort_by(|a, b| a.object.cmp(&b.object));
        if self.is_empty() {
            Ok(fine)
        } else if self.conflicts().next().is_some() {
            Err(DeclareError::Conflict(self))
        } else {
            Err(DeclareError::Refused(self))
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for failure in &self.failures {
            writeln!(f, "- {failure}")?;
        }
        for skipped in &self.skipped {
            writeln!(
                f,
                "- {} left out: {} was refused",
                skipped.object, skipped.missing
            )?;
        }
        f.write_str("everything else is declared; apply again when this is settled")
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Cause::Conflict(conflict) => conflict.fmt(f),
            Cause::Refused(text) => {
                write!(f, "{}: {text}", self.object)?;
                if text.contains("ACCESS_REFUSED") {
                    f.write_str(
                        " (the user needs configure, write and read permission on the platform's names and \
                         the teams' queues: rabbitmqctl set_permissions)",
                    )?;
                }
                Ok(())
            }
        }
    }
}
