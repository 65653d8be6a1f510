//! How a command ends when it doesn't succeed: an exit code, and a message in three parts.
//!
//! May import: `config`, `telemetry`, `api` for their errors.

use std::process::ExitCode;

use serde_json::{Value, json};

use crate::config::ConfigError;

/// Exit codes, the same for every command. 0 is success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    /// Failed.
    Failed = 1,
    /// The call is wrong: flags, settings or input. The same call fails again.
    Usage = 2,
    /// Differences were found.
    Differences = 3,
    /// What was named does not exist.
    NotFound = 4,
    /// What exists is in the way.
    Conflict = 5,
    /// Broker or database did not answer: the same call may succeed later.
    Unavailable = 7,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// One of several things that are wrong.
#[derive(Clone, Debug)]
pub(super) struct Detail {
    /// For people.
    pub(super) text: String,
    /// For programs.
    pub(super) data: Value,
}

/// Why a command failed: what, where, and what to do next. Holds no secret.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    /// Exit code.
    pub(super) exit: Exit,
    /// What is wrong.
    pub(super) what: String,
    /// Where: a file, a flag, a queue, a server.
    pub(super) place: String,
    /// What to do next.
    pub(super) next: String,
    /// The single things that are wrong, where there are several.
    pub(super) details: Vec<Detail>,
}

impl Failure {
    /// A failure without details.
    pub(super) fn new(exit: Exit, what: impl ToString, place: impl ToString, next: impl ToString) -> Self {
        Self {
            exit,
            what: what.to_string(),
            place: place.to_string(),
            next: next.to_string(),
            details: Vec::new(),
        }
    }

    /// The same with `details`.
    pub(super) fn with_details(mut self, details: Vec<Detail>) -> Self {
        self.details = details;
        self
    }

    /// For people, on stderr.
    pub(super) fn text(&self) -> String {
        let mut text = format!("error: {}\n", self.what);
        for detail in self.details.iter().filter(|detail| !detail.text.is_empty()) {
            text.push_str(&format!("  - {}\n", detail.text));
        }
        text.push_str(&format!("  where: {}\n  next:  {}\n", self.place, self.next));
        text
    }

    /// For programs, on stderr.
    pub(super) fn json(&self) -> Value {
        let mut error = json!({
            "what": self.what,
            "where": self.place,
            "next": self.next,
            "exitCode": self.exit as u8,
        });
        if !self.details.is_empty() {
            error["errors"] = self.details.iter().map(|detail| detail.data.clone()).collect();
        }
        json!({ "error": error })
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::new(
            Exit::Usage,
            error,
            "settings",
            "correct the setting; `tidegate config print` shows what is in force and where from",
        )
    }
}
