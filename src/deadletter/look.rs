//! One dead letter with its story: what it was, how it died and died again, and what people did about it.
//!
//! May import: `store`, `broker::record`, `body`. Reads only; what changes between two of its statements may be seen in part.

use tidegate_core::dead_letter::DeadLetterId;

use super::body::{self, Shown};
use crate::{
    broker::record,
    store::{
        Store, StoreError,
        audit::{Record, Wanted},
        dead_letters::{
            Listed,
            one::{Found, Letter, RunNote},
        },
    },
};

/// Most rows of the audit log that are told of one dead letter.
const MAX_TOLD: u32 = 100;

/// A dead letter and what is known about it.
#[derive(Clone, Debug)]
pub struct Story {
    /// The dead letter.
    pub letter: Letter,
    /// Its body for people.
    pub body: Shown,
    /// Properties and headers for people: name and value.
    pub headers: Vec<(String, String)>,
    /// Every death of its task, in their order, its own included.
    pub deaths: Vec<Listed>,
    /// The runs that it has to do with: sent by, claimed or replayed by, refused by.
    pub runs: Vec<RunNote>,
    /// What people did to it, latest first.
    pub audit: Vec<Record>,
}

/// Why there is no story to tell.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// No id begins so.
    #[error("{0:?} is no id, nor how one begins")]
    NoId(String),
    /// The archive has no such dead letter.
    #[error("no dead letter has the id {0}")]
    NotFound(String),
    /// Several begin so.
    #[error("several ids begin with {0}")]
    Ambiguous(String, Vec<DeadLetterId>),
    /// The archive can't be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The one whose id is, or begins with, `id`.
pub async fn one(store: &Store, id: &str) -> Result<Letter, LookError> {
    let Some((first, last)) = DeadLetterId::between(id) else {
        let cut = id.chars().take(64).collect();
        return Err(LookError::NoId(cut));
    };
    match store.dead_letters().find(first, last).await? {
        Found::One(letter) => Ok(*letter),
        Found::None => Err(LookError::NotFound(id.to_owned())),
        Found::Many(ids) => Err(LookError::Ambiguous(id.to_owned(), ids)),
    }
}

/// The story of `letter`.
pub async fn story(store: &Store, letter: Letter) -> Result<Story, StoreError> {
    let deaths = store.dead_letters().deaths(&letter).await?;
    let runs = [letter.listed.replay_id, letter.sent_by, letter.refused_by];
    let runs: Vec<_> = runs.into_iter().flatten().collect();
    let runs = if runs.is_empty() {
        Vec::new()
    } else {
        store.dead_letters().run_notes(runs).await?
    };
    let wanted = Wanted {
        subject: Some(letter.listed.id.to_string()),
        ..Wanted::default()
    };
    let mut audit = store.audit().list(&wanted, None, MAX_TOLD).await?;
    // A discard by filter is told once for all of them.
    if let Some(told) = letter
        .discarded_in
        .filter(|id| audit.iter().all(|row| row.id != *id))
    {
        audit.extend(store.audit().get(told).await?);
    }
    // What our own adapter has not written can't be taken apart; the export has it as it is.
    let headers = record::lines(&letter.properties)
        .unwrap_or_else(|why| vec![("(unreadable)".to_owned(), why.to_string())]);
    let encoding = headers
        .iter()
        .find(|(name, _)| name == "content_encoding")
        .map(|(_, value)| value.clone());
    Ok(Story {
        body: body::shown(&letter.body, encoding.as_deref()),
        headers,
        deaths,
        runs,
        audit,
        letter,
    })
}
