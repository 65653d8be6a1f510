//! What a replay tells whoever watches it, and how it ended.
//!
//! May import: `core`, `store` (its rows). Texts hold no value of a payload.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use tidegate_core::{dead_letter::DeadLetterId, replay::plan::Outcomes};
use uuid::Uuid;

use crate::store::{
    StoreError,
    dead_letters::{outcomes::Party, runs::RunState},
};

/// Most different reasons that are kept; all others are counted as one.
const MAX_REASONS: usize = 20;

/// Most dead letters that are named for a reason.
const MAX_NAMED: usize = 5;

/// How far a run is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Most that it takes.
    pub planned: u64,
    /// Confirmed.
    pub sent: u64,
    /// Refused.
    pub refused: u64,
}

/// Something that happened.
#[derive(Clone, Copy, Debug)]
pub enum Event<'e> {
    /// A batch is settled.
    Progress(Progress),
    /// A dead letter was not sent.
    Refused {
        /// Which.
        id: DeadLetterId,
        /// Why.
        why: &'e str,
    },
    /// The canary is out.
    Watching {
        /// Until when it is watched.
        until: DateTime<Utc>,
        /// What it has come to.
        outcomes: Outcomes,
    },
    /// It can't go on now, and tries again.
    Trouble(&'e str),
}

/// Where events go.
pub type Tell<'t> = &'t (dyn Fn(&Event<'_>) + Send + Sync);

/// Dead letters that were not sent, by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusals(BTreeMap<String, Refused>);

/// Those of one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// How many.
    pub count: u64,
    /// The first few.
    pub ids: Vec<DeadLetterId>,
}

impl Refusals {
    pub(super) fn add(&mut self, id: DeadLetterId, why: &str) {
        let is_new = !self.0.contains_key(why);
        let reason = if is_new && self.0.len() >= MAX_REASONS {
            "other reasons"
        } else {
            why
        };
        let refused = self.0.entry(reason.to_owned()).or_default();
        refused.count += 1;
        if refused.ids.len() < MAX_NAMED {
            refused.ids.push(id);
        }
    }

    /// Reasons with those they kept back, the most frequent first.
    pub fn by_count(&self) -> Vec<(&str, &Refused)> {
        let mut all: Vec<_> = self
            .0
            .iter()
            .map(|(why, refused)| (why.as_str(), refused))
            .collect();
        all.sort_by_key(|(_, refused)| std::cmp::Reverse(refused.count));
        all
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Report {
    /// The run.
    pub run: Uuid,
    /// As what.
    pub end: RunState,
    /// How many messages of the canary died again, where that ended it.
    pub died: u64,
    /// Most that it would have taken.
    pub planned: u64,
    /// Confirmed.
    pub sent: u64,
    /// Refused.
    pub refused: u64,
    /// Wanted, and dealt with by others.
    pub lost: u64,
    /// Open again, of those that it had claimed: whether they are out is not known.
    pub released: u64,
    /// Who had what it wanted.
    pub rivals: Vec<Party>,
    /// Why it refused what it refused, as far as this process has done it.
    pub refusals: Refusals,
    /// Why it failed.
    pub why: Option<String>,
}

/// Why a run was not worked on to its end. Somebody goes on with it.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Another process has taken the run over: this one was silent for too long, or its lease had ended.
    #[error("another process has taken the run over")]
    TakenOver,
    /// This process was told to let go: whoever takes the run over goes on at once.
    #[error("the process is stopping; another goes on with the run")]
    LetGo,
}
