//! What was seen: every run of a handler, in whichever process, and every dead letter.
//!
//! Imports nothing of the example. Handlers and observers write here; `verdict` compares it with what was expected.

use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, Utc};
use serde::Deserialize;

/// How one run of a handler ended, in the handler's own view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Ended {
    /// The work is done.
    Done,
    /// It failed and wants to be tried again.
    Failed,
    /// It is hopeless and must not be tried again.
    Rejected,
}

/// One run of a handler.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// See [`key`].
    pub(crate) key: String,
    /// 1 for the first.
    pub(crate) attempt: u32,
    /// When the handler began.
    pub(crate) started: DateTime<Utc>,
    /// How it ended.
    pub(crate) ended: Ended,
}

/// A dead letter in the archive.
#[derive(Clone, Debug)]
pub(crate) struct DeadLetter {
    /// See [`key`].
    pub(crate) key: String,
    /// Why it is there.
    pub(crate) reason: String,
    /// The body as it was sent.
    pub(crate) body: Vec<u8>,
}

/// What identifies a message to an observer: its task id, or the body itself where there is none to be read.
pub(crate) fn key(body: &[u8]) -> String {
    tidegate_core::envelope::peek(body)
        .task_id
        .map_or_else(|| String::from_utf8_lossy(body).into_owned(), |id| id.to_string())
}

#[derive(Debug, Default)]
struct Entries {
    runs: Vec<Run>,
    dead: Vec<DeadLetter>,
}

/// A shared journal; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Journal(Arc<Mutex<Entries>>);

impl Journal {
    /// Writes a run down.
    pub(crate) fn ran(&self, run: Run) {
        self.entries(|entries| entries.runs.push(run));
    }

    /// Writes a dead letter down.
    pub(crate) fn died(&self, letter: DeadLetter) {
        self.entries(|entries| entries.dead.push(letter));
    }

    /// Everything written so far.
    pub(crate) fn read(&self) -> (Vec<Run>, Vec<DeadLetter>) {
        self.entries(|entries| (entries.runs.clone(), entries.dead.clone()))
    }

    // A poisoned lock only means that another thread panicked between two complete entries.
    fn entries<T>(&self, with: impl FnOnce(&mut Entries) -> T) -> T {
        with(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
