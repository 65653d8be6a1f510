//! What to do with the occurrences that are due: one pure decision for whoever claims a schedule.
//!
//! Every due occurrence gets exactly one outcome. Those within `grace` of now are on time and fire. Those before
//! were missed (the scheduler or its database was down), and the policy says how many runs that deserves: none
//! (`skip`), one (`fire_once`), or up to a limit (`catch_up`). On-time runs count towards that number, and the
//! latest missed ones make up the rest: a schedule of every ten seconds that was down for an hour fires once under
//! `fire_once`, not twice.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use super::Schedule;

/// Most occurrences that one plan accounts for. The rest is left for the next: [`FirePlan::next`] is then the first
/// of them, already due, so a long outage of a frequent schedule is worked off in steps of bounded size.
pub const MAX_OCCURRENCES_PER_PLAN: usize = 1000;

/// Highest `catch_up_limit`; more is read as this.
pub const MAX_CATCH_UP: u32 = 1000;

/// What a schedule wants for occurrences that were missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum MisfirePolicy {
    /// One run makes up for all of them.
    #[default]
    FireOnce,
    /// None is run.
    Skip,
    /// The latest run, up to a limit.
    CatchUp,
}

impl MisfirePolicy {
    const ALL: [Self; 3] = [Self::FireOnce, Self::Skip, Self::CatchUp];

    /// The policy as it stands in tables and files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FireOnce => "fire_once",
            Self::Skip => "skip",
            Self::CatchUp => "catch_up",
        }
    }

    /// The policy that `text` names.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.as_str() == text)
    }
}

/// What became of an occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FireOutcome {
    /// It fired on time.
    Fired,
    /// It was missed and fires late.
    CaughtUp,
    /// It was missed and doesn't fire.
    SkippedMisfire,
    /// It doesn't fire because the run before is still going. [`plan`] never says so: only the ledger knows.
    SkippedOverlap,
}

impl FireOutcome {
    const ALL: [Self; 4] = [
        Self::Fired,
        Self::CaughtUp,
        Self::SkippedMisfire,
        Self::SkippedOverlap,
    ];

    /// The outcome as it stands in `cron_fires`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fired => "FIRED",
            Self::CaughtUp => "CAUGHT_UP",
            Self::SkippedMisfire => "SKIPPED_MISFIRE",
            Self::SkippedOverlap => "SKIPPED_OVERLAP",
        }
    }

    /// The outcome that `text` names.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.as_str() == text)
    }

    /// Whether a task is to be made.
    pub const fn fires(self) -> bool {
        matches!(self, Self::Fired | Self::CaughtUp)
    }
}

/// What a claim of a schedule must write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirePlan {
    /// The due occurrences in order, each with its outcome; at most [`MAX_OCCURRENCES_PER_PLAN`].
    pub fires: Vec<(DateTime<Utc>, FireOutcome)>,
    /// The occurrence to plan next, which may be due already; `None` if the schedule has ended.
    pub next: Option<DateTime<Utc>>,
}

/// Decides about all occurrences from `planned`, the first not yet accounted for, up to `now`.
///
/// `catch_up_limit` matters only to [`MisfirePolicy::CatchUp`]. An occurrence at most `grace` old is on time.
pub fn plan(
    schedule: &Schedule,
    planned: DateTime<Utc>,
    now: DateTime<Utc>,
    policy: MisfirePolicy,
    catch_up_limit: u32,
    grace: Duration,
) -> FirePlan {
    if planned > now {
        return FirePlan {
            fires: Vec::new(),
            next: Some(planned),
        };
    }
    let runs = match policy {
        MisfirePolicy::Skip => 0,
        MisfirePolicy::FireOnce => 1,
        MisfirePolicy::CatchUp => catch_up_limit.min(MAX_CATCH_UP) as usize,
    };
    // Looking `runs` further than is accounted for is enough to know that none here is among the last `runs`.
    let mut due = vec![planned];
    due.extend(schedule.occurrences_between(planned, now, MAX_OCCURRENCES_PER_PLAN + runs));
    let grace = TimeDelta::from_std(grace).unwrap_or(TimeDelta::MAX);
    let missed = due.partition_point(|at| now.signed_duration_since(*at) > grace);
    let late_runs = runs.saturating_sub(due.len() - missed);
    let outcome = |at: usize| match at {
        at if at >= missed => FireOutcome::Fired,
        at if at + late_runs >= missed => FireOutcome::CaughtUp,
        _ => FireOutcome::SkippedMisfire,
    };
    let next = match due.get(MAX_OCCURRENCES_PER_PLAN) {
        Some(first_left) => Some(*first_left),
        None => due.last().and_then(|last| schedule.next_after(*last)),
    };
    due.truncate(MAX_OCCURRENCES_PER_PLAN);
    FirePlan {
        fires: due
            .into_iter()
            .enumerate()
            .map(|(at, when)| (when, outcome(at)))
            .collect(),
        next,
    }
}
