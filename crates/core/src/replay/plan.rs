//! The words of a run: its options, what is known about it, what it does next, how it ends.

use std::{num::NonZeroU32, time::Duration};

use chrono::{DateTime, Utc};

/// How a replay goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Most dead letters taken.
    pub limit: Option<u64>,
    /// Most messages per second; none: as fast as they are confirmed.
    pub rate: Option<NonZeroU32>,
    /// A share that goes first.
    pub canary: Option<Canary>,
    /// Only say what would be done.
    pub dry_run: bool,
    /// Most dead letters claimed at once.
    pub batch: NonZeroU32,
}

/// A share that goes first and is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Canary {
    /// Its share in percent, 1 to 100; at least one message.
    pub percent: u8,
    /// How long it is watched after its last message. Consumers that are no workers of ours report no success, so a
    /// canary that hasn't died again by then counts as well.
    pub watch: Duration,
    /// What a second death means.
    pub on_failure: OnFailure,
}

/// What is done when a message of the canary dies again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// The run ends; the rest stays open.
    Stop,
    /// The run goes on once it has been watched.
    GoOn,
}

/// What the database knows about a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Confirmed by the broker.
    pub sent: u64,
    /// Not sent: the edit doesn't fit, or its result is no envelope.
    pub refused: u64,
    /// Claimed by this run, and neither confirmed nor refused.
    pub unsettled: u64,
    /// When the last message was confirmed.
    pub last_sent_at: Option<DateTime<Utc>>,
}

/// What became of one batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// How many rows the claim found, of those asked for; all unsettled ones for [`Step::Again`].
    pub found: u64,
    /// How many of them were confirmed.
    pub sent: u64,
    /// How many were refused. What is left of `found` is unsettled.
    pub refused: u64,
}

/// What the canary's messages have come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// Known to have succeeded.
    pub succeeded: u64,
    /// Dead again.
    pub died: u64,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Publish again what this run has claimed and nobody knows to be out: at most `count`.
    Again {
        /// How many.
        count: u64,
    },
    /// Claim and publish at most `count` more.
    Take {
        /// How many.
        count: u64,
    },
    /// Nothing before `until`: the rate says so.
    Wait {
        /// When to ask again.
        until: DateTime<Utc>,
    },
    /// Look at the canary's outcomes, again and again, until they decide or it is `until`.
    Watch {
        /// When the watch ends.
        until: DateTime<Utc>,
    },
    /// Nothing more.
    End(End),
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was a dry run: so many would have been taken, so many of them as canary.
    DryRun {
        /// All.
        would_take: u64,
        /// The canary's share.
        canary: u64,
    },
    /// Everything was taken.
    Done,
    /// So many messages of the canary died again; the rest is open as before.
    CanaryFailed {
        /// How many.
        died: u64,
    },
    /// Somebody stopped it.
    Stopped,
}
