//! The words of a task's life in the ledger: its states, and the answers to whoever wants to change its course.
//!
//! The same words stand in the tables, in the SQL functions (`tidegate.cancel`, `promote`, `reschedule`), on the command
//! line and in HTTP answers. Which answer is given is decided in one place, by one row update in the database.

use std::fmt;

/// Makes an enum of words with `as_str`, `parse`, `ALL` and `Display`.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident => $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$doc])* $variant,)+
        }

        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The word.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            /// What `text` stands for, if it is one of the words.
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|word| word.as_str() == text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

words! {
    /// Where a task is in its life.
    TaskState {
        /// Waits in the ledger; nobody else has it.
        Pending => "PENDING",
        /// The broker has confirmed it.
        Published => "PUBLISHED",
        /// A worker has started it.
        Running => "RUNNING",
        /// It waits for its next attempt.
        Retrying => "RETRYING",
        /// A handler finished it.
        Success => "SUCCESS",
        /// A dead letter; or set aside before it was ever sent.
        Failed => "FAILED",
        /// Somebody cancelled it.
        Canceled => "CANCELED",
    }
}

/// How a run ended, as a worker tells the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The handler succeeded.
    Success,
    /// Another attempt is in the ladder.
    Retrying,
    /// It is a dead letter.
    Failed,
    /// It ended because somebody had asked to cancel it.
    Canceled,
    /// It was given back to its queue.
    GivenBack,
}

impl End {
    /// Where the task is then.
    pub const fn state(self) -> TaskState {
        match self {
            Self::Success => TaskState::Success,
            Self::Retrying => TaskState::Retrying,
            Self::Failed => TaskState::Failed,
            Self::Canceled => TaskState::Canceled,
            Self::GivenBack => TaskState::Published,
        }
    }
}

words! {
    /// The answer to whoever cancels a task.
    CancelOutcome {
        /// It had not been handed over: it will never run, anywhere.
        Canceled => "canceled",
        /// The broker has it or may have it: a worker with the ledger will not start it, others may.
        CanceledInFlight => "canceled_in_flight",
        /// It runs: its handler is told, and decides.
        CancelRequested => "cancel_requested",
        /// It was cancelled before. Nothing was changed.
        AlreadyCanceled => "already_canceled",
        /// It had succeeded or failed. Nothing was changed.
        AlreadyEnded => "already_ended",
        /// No such task.
        NotFound => "not_found",
    }
}

words! {
    /// The answer to whoever moves a task to another time.
    MoveOutcome {
        /// It is due now.
        Promoted => "promoted",
        /// It is due at the time given.
        Rescheduled => "rescheduled",
        /// The broker has it or may have it. Nothing was changed.
        AlreadyPublished => "already_published",
        /// It was cancelled. Nothing was changed.
        AlreadyCanceled => "already_canceled",
        /// It had succeeded or failed. Nothing was changed.
        AlreadyEnded => "already_ended",
        /// No such task.
        NotFound => "not_found",
    }
}

impl CancelOutcome {
    /// Whether the call had an effect.
    pub const fn took_effect(self) -> bool {
        matches!(
            self,
            Self::Canceled | Self::CanceledInFlight | Self::CancelRequested
        )
    }
}

impl MoveOutcome {
    /// Whether the call had an effect.
    pub const fn took_effect(self) -> bool {
        matches!(self, Self::Promoted | Self::Rescheduled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_read_as_it_is_written() {
        for state in TaskState::ALL {
            assert_eq!(TaskState::parse(state.as_str()), Some(*state));
        }
        for outcome in CancelOutcome::ALL {
            assert_eq!(CancelOutcome::parse(&outcome.to_string()), Some(*outcome));
        }
        assert_eq!(TaskState::parse("pending"), None);
        assert_eq!(MoveOutcome::parse("promoted"), Some(MoveOutcome::Promoted));
    }
}
