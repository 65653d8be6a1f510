//! Which dead letters a run may take, who loses where two want one, and how often a task has died.
//!
//! A replayed task that dies again is a dead letter like the one before, and matches the same filter. So a run takes only
//! what was archived before it began, by the database's clock: the time of death is a worker's, whose clock may be behind. And
//! it never takes what died after this same run sent it, whatever any clock says.

use chrono::{DateTime, Utc};

use crate::dead_letter::{DeadLetterId, DeadLetterState};

/// Id of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReplayId(pub [u8; 16]);

/// A run, as far as claims go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Its id.
    pub run: ReplayId,
    /// When it began, by the database's clock.
    pub began_at: DateTime<Utc>,
}

/// A dead letter that a filter matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its state.
    pub state: DeadLetterState,
    /// The run that has claimed or sent it, if any.
    pub taken_by: Option<ReplayId>,
    /// When it came into the archive, by the database's clock.
    pub archived_at: DateTime<Utc>,
    /// The run that sent the message which died here, if one did.
    pub sent_by: Option<ReplayId>,
}

/// What a run does with a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It is open and was there before the run: claim it.
    Take,
    /// This run has claimed it before and doesn't know it to be out: publish it again.
    Again,
    /// This run has sent it.
    Sent,
    /// Somebody else has dealt with it: tell whoever wanted this run.
    Lost,
    /// It died after the run began, perhaps because of it: it stays open.
    Later,
}

/// What the run of `cut` does with `candidate`.
pub fn claim(candidate: &Candidate, cut: &Cut) -> Claim {
    let is_ours = candidate.taken_by == Some(cut.run);
    match candidate.state {
        DeadLetterState::Open if candidate.archived_at >= cut.began_at => Claim::Later,
        DeadLetterState::Open if candidate.sent_by == Some(cut.run) => Claim::Later,
        DeadLetterState::Open => Claim::Take,
        DeadLetterState::Replaying if is_ours => Claim::Again,
        DeadLetterState::Replayed if is_ours => Claim::Sent,
        DeadLetterState::Replaying | DeadLetterState::Replayed | DeadLetterState::Discarded => Claim::Lost,
    }
}

/// The dead letter that a message says it replays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent<'p> {
    /// Its id.
    pub id: DeadLetterId,
    /// Its state.
    pub state: DeadLetterState,
    /// Which death of its task it was.
    pub deaths: u32,
    /// The task id that its replay went out with; none if its body has none.
    pub sent_task_id: Option<&'p str>,
}

/// Where a dead letter comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lineage {
    /// Its task's first death, as far as anybody knows.
    First,
    /// A replayed task died again.
    Again {
        /// The death before.
        parent: DeadLetterId,
        /// Which death this is: 2 for the second.
        deaths: u32,
    },
    /// It says that it is a replay, and isn't: any producer can write the header.
    Unproven,
}

impl Lineage {
    /// Which death of its task it is: 1 for the first.
    pub const fn deaths(self) -> u32 {
        match self {
            Self::First | Self::Unproven => 1,
            Self::Again { deaths, .. } => deaths,
        }
    }
}

/// The parent that the header `x-task-replay-of` names, to be looked up.
pub fn named_parent(header: Option<&str>) -> Option<DeadLetterId> {
    DeadLetterId::parse(header?)
}

/// Where a dead letter of `task_id` comes from, by its header and by what the archive has under the id named there.
pub fn lineage(header: Option<&str>, parent: Option<&Parent<'_>>, task_id: Option<&str>) -> Lineage {
    if header.is_none() {
        return Lineage::First;
    }
    // A parent that is still REPLAYING was published, and its confirm is on its way or got lost.
    let is_out = |p: &&Parent<'_>| matches!(p.state, DeadLetterState::Replaying | DeadLetterState::Replayed);
    match parent.filter(is_out) {
        Some(parent) if named_parent(header) == Some(parent.id) && parent.sent_task_id == task_id => {
            Lineage::Again {
                parent: parent.id,
                deaths: parent.deaths.max(1).saturating_add(1),
            }
        }
        _ => Lineage::Unproven,
    }
}
