//! Which headers a replay keeps: what says what the task is stays, what says how its last life went does not.

use super::choice::Retries;
use crate::headers;

/// What a replay does with a header of the dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderFate {
    /// It describes the task, or belongs to the application: type, original key, trace, and all that isn't ours.
    Kept,
    /// The broker's own history.
    BrokersOwn,
    /// It tells how the last attempt failed.
    LastFailure,
    /// It counts attempts, crashes or waits of the life that has ended.
    Counted,
    /// It names a time that has passed.
    Passed,
    /// The replay writes its own.
    Replaced,
}

impl HeaderFate {
    /// Whether the header goes out again as it is.
    pub const fn is_kept(self) -> bool {
        matches!(self, Self::Kept)
    }

    /// What it means, for whoever previews a replay.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Kept => "kept: it describes the task, or is the application's own",
            Self::BrokersOwn => {
                "dropped: the broker's history; sent again it makes brokers drop messages or send copies"
            }
            Self::LastFailure => "dropped: it tells how the last attempt failed, which the archive keeps",
            Self::Counted => "dropped: it counts the life that has ended",
            Self::Passed => "dropped: it names a time that has passed",
            Self::Replaced => "replaced by the replay's own",
        }
    }
}

/// What becomes of the header `name`, unless [`Edited`](super::edit::Edited) sets it.
pub fn header_fate(name: &str, retries: Retries) -> HeaderFate {
    match name {
        headers::ORIGIN | headers::REPLAY_OF => HeaderFate::Replaced,
        headers::ATTEMPT | headers::FIRST_FAILED_AT if retries == Retries::Keep => HeaderFate::Kept,
        headers::ATTEMPT => HeaderFate::Replaced,
        headers::FIRST_FAILED_AT
        | headers::FAILED_QUEUE
        | headers::ERROR_KIND
        | headers::ERROR
        | headers::DEAD_REASON
        | headers::DEAD_LETTER_ID => HeaderFate::LastFailure,
        headers::CRASHES | headers::WAITS => HeaderFate::Counted,
        headers::DUE_AT | headers::SCHEDULE_TIME | headers::DELAY => HeaderFate::Passed,
        name if headers::is_never_republished(name) => HeaderFate::BrokersOwn,
        _ => HeaderFate::Kept,
    }
}

/// The value of a header that a replay writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderValue {
    /// A long string.
    Text(String),
    /// A signed integer of 64 bits.
    Integer(i64),
}
