//! What somebody who replays chooses, each choice with a sentence of what it means.

use crate::{dispose::DeadReason, json_patch::Patch, ladder::Target, task::TaskId};

/// What is done to the body.
#[derive(Clone, Copy, Debug)]
pub enum BodyEdit<'e> {
    /// Nothing.
    None,
    /// Operations on the whole body, so that their paths begin with `/payload`, mostly.
    Patch(&'e Patch<'e>),
    /// Another payload, as JSON text.
    Payload(&'e [u8]),
    /// Another body, as JSON text: the only repair of one that is no JSON.
    Whole(&'e [u8]),
}

/// Under which task id it goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskIdChoice<'e> {
    /// The one it had.
    Keep,
    /// Another.
    New(&'e TaskId),
}

/// Under which idempotency key it goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyChoice<'e> {
    /// What the body says, or says not.
    Keep,
    /// Another.
    New(&'e str),
    /// None.
    Remove,
}

/// From where its attempts count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retries {
    /// From the first again.
    Reset,
    /// From where they were.
    Keep,
}

/// Where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// The queue that failed.
    FailedQueue,
    /// Its original routing key.
    RoutingKey,
}

impl TaskIdChoice<'_> {
    /// What it means, for whoever chooses.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Keep => {
                "the same task goes on: its row in the ledger, and consumers that remember ids see it again"
            }
            Self::New(_) => {
                "another task: a consumer that remembers the old id will not recognise it, nor will the ledger"
            }
        }
    }
}

impl KeyChoice<'_> {
    /// What it means, for whoever chooses.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Keep => {
                "if the key has succeeded in the meantime, the replay is acknowledged without running; a task without a key goes by its payload field or task id"
            }
            Self::New(_) => "it runs even if the old key has succeeded: what that did may happen twice",
            Self::Remove => {
                "the key is then taken from the payload field that the type names, or is the task id"
            }
        }
    }
}

impl Retries {
    /// What it means, for whoever chooses.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Reset => "the replay is attempt 1, with all retries before it",
            Self::Keep => {
                "the replay is as late an attempt as the one that failed: its next failure is final where no retry was left"
            }
        }
    }
}

impl Destination {
    /// What it means, for whoever chooses.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::FailedQueue => {
                "only the queue that failed gets it; other subscribers of its key have had it"
            }
            Self::RoutingKey => {
                "every queue bound to its key gets it, also those that have handled it before"
            }
        }
    }

    /// The target for a dead letter of `queue`, first published with `key`; `None` if what the choice needs isn't known: what
    /// no binding took has no queue that failed.
    pub fn target(self, reason: DeadReason, queue: Option<&str>, key: Option<&str>) -> Option<Target> {
        let named = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(str::to_owned);
        match self {
            Self::FailedQueue if reason == DeadReason::Unroutable => None,
            Self::FailedQueue => named(queue).map(Target::Queue),
            Self::RoutingKey => named(key).map(Target::Key),
        }
    }
}
