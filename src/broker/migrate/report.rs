//! What a migration did, what it says meanwhile, and why it stopped.

use std::{fmt, time::Duration};

use crate::{
    broker::{connection::LinkError, management::ManagementError},
    topology::{
        counted,
        migration::{Action, Refusal},
    },
};

/// What a migration did. After a resumed one these are the figures of the last run only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Steps performed; 0 if there was nothing to do.
    pub steps: u64,
    /// Messages that the queue's own consumers took while it was drained; as exact as the broker's counts.
    pub drained: u64,
    /// Messages moved to the temporary queue, because nobody consumed them.
    pub moved: Count,
    /// Messages that a killed run had moved already, recognised and not moved again.
    pub already_moved: u64,
    /// Messages that came into the temporary queue, by id.
    pub arrived: Count,
    /// Messages that the broker passed on from there to the queue, by id.
    pub returned: Count,
    /// Messages in the queue when it was deleted, and in the temporary queue; anything but 0 is a loss.
    pub lost: u64,
    /// The whole time.
    pub elapsed: Duration,
    /// How long consumers had nothing: from the queue's last message to the lever being set again.
    pub pause: Duration,
    /// How long the queue did not exist.
    pub missing: Duration,
}

/// A number of messages, and how many different ones they were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Messages.
    pub messages: u64,
    /// Different messages.
    pub different: u64,
}

/// What a migration says while it runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Progress {
    /// Other objects of the topology that are missing: perhaps this is not the vhost that was meant. It goes on.
    Lacks(u64),
    /// A step is done.
    Did(Action),
    /// The queue is being emptied.
    Draining {
        /// Messages left, as counted last.
        left: u64,
        /// Consumers.
        consumers: u64,
        /// Messages moved because there are none.
        moved: u64,
    },
    /// The temporary queue is being emptied.
    Returning {
        /// Messages left, as counted last.
        left: u64,
        /// Messages passed on.
        returned: u64,
    },
    /// Nothing leaves the queue: everything is put back as it was.
    GivingUp {
        /// Messages that stay with consumers.
        left: u64,
    },
    /// The broker was away; it is tried again.
    Again(String),
    /// An older generation of the ladder is not empty yet.
    Pending {
        /// The generation.
        version: u8,
        /// Messages in it.
        messages: u64,
    },
    /// An object of an older generation is gone.
    Deleted(String),
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lacks(others) => {
                let others = counted(*others, "other object");
                write!(
                    f,
                    "warning: this virtual host lacks {others} of the topology: run `tidegate topology plan`, and see \
                     that AMQP_URL names the right one"
                )
            }
            Self::Did(action) => action.fmt(f),
            Self::Draining { left: 0, .. } => {
                f.write_str("empty as it seems; waiting for the broker's next counts")
            }
            Self::Draining {
                left,
                consumers: 0,
                moved,
            } => {
                write!(
                    f,
                    "nobody consumes the queue: moving its messages; {moved} moved, {left} left"
                )
            }
            Self::Draining { left, consumers, .. } => {
                let consumers = counted(*consumers, "consumer");
                write!(f, "waiting for {consumers} to empty the queue; {left} left")
            }
            Self::Returning { left, returned } => {
                write!(
                    f,
                    "the broker passes on what waited; {returned} passed on, {left} left"
                )
            }
            Self::GivingUp { left } => {
                write!(
                    f,
                    "nothing leaves the queue any more, {left} left: putting everything back"
                )
            }
            Self::Again(why) => write!(f, "{why}; trying again"),
            Self::Pending { version, messages } => {
                let messages = counted_messages(messages);
                write!(f, "ladder v{version}: waiting for {messages} to become due")
            }
            Self::Deleted(name) => write!(f, "deleted {name}"),
        }
    }
}

/// Why a migration stopped. Whatever it is: the same command goes on from there.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// It can't be done; nothing was changed.
    #[error(transparent)]
    Impossible(#[from] Refusal),
    /// Another process is at it.
    #[error("another process is migrating {0:?}")]
    Locked(String),
    /// A policy would let the temporary queue drop messages. Nothing was moved to it, and it is gone again.
    #[error("policy {policy:?} is in force for {queue:?} and sets {key}: messages could be dropped")]
    Policy {
        /// The temporary queue.
        queue: String,
        /// The policy.
        policy: String,
        /// What it sets.
        key: String,
    },
    /// Nothing left the queue for as long as patience lasted. Everything is as it was.
    #[error("{} left in {queue:?}, and none leaves it: consumers don't finish what they hold", counted_messages(.left))]
    Held {
        /// The queue.
        queue: String,
        /// Messages left, as counted last.
        left: u64,
    },
    /// The queue doesn't take what waited in the temporary queue. It stays there.
    #[error("{queue:?} does not take {} that waited in the temporary queue", counted_messages(.left))]
    NotTaken {
        /// The queue.
        queue: String,
        /// Messages left.
        left: u64,
    },
    /// It was told to stop, and did so between two steps.
    #[error("stopped as told")]
    Stopped,
    /// The broker refused a change.
    #[error("the broker refused {doing}: {reason}")]
    Refusal {
        /// What was being done.
        doing: String,
        /// In the broker's words.
        reason: String,
    },
    /// The broker is away or doesn't answer.
    #[error("the broker went away while {doing}: {reason}")]
    Unavailable {
        /// What was being done.
        doing: String,
        /// What happened.
        reason: String,
    },
    /// No connection.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The management API failed.
    #[error(transparent)]
    Management(#[from] ManagementError),
}

impl MigrateError {
    /// Whether the same step may succeed a little later.
    pub(super) fn may_pass(&self) -> bool {
        matches!(
            self,
            Self::Unavailable { .. } | Self::Link(_) | Self::Management(ManagementError::Unavailable { .. })
        )
    }
}

/// `1 message`, `2 messages`.
fn counted_messages(number: &u64) -> String {
    counted(*number, "message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural() {
        let said = |left: u64, consumers: u64| {
            let draining = Progress::Draining {
                left,
                consumers,
                moved: 0,
            };
            let pending = Progress::Pending {
                version: 1,
                messages: left,
            };
            let queue = "a.queue".to_owned();
            let held = MigrateError::Held {
                queue: queue.clone(),
                left,
            };
            let not_taken = MigrateError::NotTaken { queue, left };
            [
                draining.to_string(),
                pending.to_string(),
                held.to_string(),
                not_taken.to_string(),
            ]
        };
        assert_eq!(
            said(1, 1),
            [
                "waiting for 1 consumer to empty the queue; 1 left",
                "ladder v1: waiting for 1 message to become due",
                "1 message left in \"a.queue\", and none leaves it: consumers don't finish what they hold",
                "\"a.queue\" does not take 1 message that waited in the temporary queue",
            ]
        );
        let many = said(2, 3);
        assert!(many[0].contains("3 consumers") && many[1..].iter().all(|text| text.contains("2 messages ")));
    }
}
