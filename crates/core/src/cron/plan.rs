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
    /// It doesn't fire because the run before is still going.
    SkippedOverlap,
    /// No occurrence: somebody ran it by hand, at this instant.
    Manual,
}

impl FireOutcome {
    const ALL: [Self; 5] = [
        Self::Fired,
        Self::CaughtUp,
        Self::SkippedMisfire,
        Self::SkippedOverlap,
        Self::Manual,
    ];

    /// The outcome as it stands in `cron_fires`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fired => "FIRED",
            Self::CaughtUp => "CAUGHT_UP",
            Self::SkippedMisfire => "SKIPPED_MISFIRE",
            Self::SkippedOverlap => "SKIPPED_OVERLAP",
            Self::Manual => "MANUAL",
        }
    }

    /// The outcome that `text` names.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.as_str() == text)
    }

    /// Whether a task is to be made.
    pub const fn fires(self) -> bool {
        matches!(self, Self::Fired | Self::CaughtUp | Self::Manual)
    }
}

/// Whether a run may begin while the one before still waits or runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Overlap {
    /// It may.
    #[default]
    Allow,
    /// It may not; `busy` says whether the run before still waits or runs.
    Skip {
        /// As far as the ledger knows.
        busy: bool,
    },
}

/// What a schedule's owner wants for its occurrences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirePolicy {
    /// What becomes of missed ones.
    pub misfire: MisfirePolicy,
    /// Most that run under [`MisfirePolicy::CatchUp`].
    pub catch_up_limit: u32,
    /// Whether runs may overlap.
    pub overlap: Overlap,
    /// An occurrence at most this old is on time.
    pub grace: Duration,
    /// From here on there are none.
    pub ends_at: Option<DateTime<Utc>>,
}

/// Consecutive occurrences with one outcome. One that fires stands alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first.
    pub first: DateTime<Utc>,
    /// The last; equal to `first` if there is one only.
    pub last: DateTime<Utc>,
    /// How many.
    pub occurrences: u64,
    /// What becomes of each.
    pub outcome: FireOutcome,
}

/// What a claim of a schedule must write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirePlan {
    /// All due occurrences in order: never two spans in a row with the same outcome that doesn't fire.
    pub spans: Vec<Span>,
    /// The first occurrence after now; `None` if there is none. It may lie at or after `ends_at`.
    pub next: Option<DateTime<Utc>>,
}

/// The occurrences that are due, without a look at each.
struct Due<'a> {
    schedule: &'a Schedule,
    /// The first. It is one even where the expression doesn't have it: somebody may have set it by hand.
    planned: DateTime<Utc>,
    /// None lies after this.
    until: DateTime<Utc>,
    /// Whether `planned` is the only one that can be due: the usual case, and the cheap one.
    alone: bool,
}

impl Due<'_> {
    /// How many there are from `oldest` on.
    fn count_from(&self, oldest: DateTime<Utc>) -> u64 {
        let planned = u64::from(oldest <= self.planned && self.planned <= self.until);
        if self.alone {
            return planned;
        }
        let after = self.planned.max(oldest - TimeDelta::nanoseconds(1));
        planned + self.schedule.count_between(after, self.until)
    }

    /// The `nth` last of `count`.
    fn nth_last(&self, nth: u64, count: u64) -> Option<DateTime<Utc>> {
        if nth == count {
            Some(self.planned)
        } else {
            self.schedule.nth_last(self.planned, self.until, nth)
        }
    }
}

/// Decides about all occurrences from `planned`, the first not yet accounted for, up to `now`.
///
/// Costs about as much as the occurrences that fire, however many were missed.
pub fn plan(
    schedule: &Schedule,
    planned: DateTime<Utc>,
    now: DateTime<Utc>,
    policy: &FirePolicy,
) -> FirePlan {
    if planned > now {
        return FirePlan {
            spans: Vec::new(),
            next: Some(planned),
        };
    }
    let second = schedule.next_after(planned);
    let alone = second.is_none_or(|second| second > now);
    let due = Due {
        schedule,
        planned,
        until: policy
            .ends_at
            .map_or(now, |end| now.min(end - TimeDelta::nanoseconds(1))),
        alone,
    };
    let next = if alone { second } else { schedule.next_after(now) };
    FirePlan {
        spans: due.spans(now, policy),
        next,
    }
}

impl Due<'_> {
    fn spans(&self, now: DateTime<Utc>, policy: &FirePolicy) -> Vec<Span> {
        let count = self.count_from(self.planned);
        // Older than the grace time is missed.
        let on_time = TimeDelta::from_std(policy.grace)
            .ok()
            .and_then(|grace| now.checked_sub_signed(grace))
            .map_or(count, |oldest| self.count_from(oldest));
        let runs = match policy.misfire {
            MisfirePolicy::Skip => 0,
            MisfirePolicy::FireOnce => 1,
            MisfirePolicy::CatchUp => u64::from(policy.catch_up_limit.min(MAX_CATCH_UP)),
        };
        let late = runs.saturating_sub(on_time).min(count - on_time);
        // From here on occurrences are counted from the last, which is 1.
        let firing = late + on_time;
        let outcome = |nth| {
            if nth > on_time {
                FireOutcome::CaughtUp
            } else {
                FireOutcome::Fired
            }
        };
        let span = |from: u64, to: u64, outcome| {
            // Both exist: there are `count`.
            let first = self.nth_last(from, count)?;
            let last = if from == to {
                first
            } else {
                self.nth_last(to, count)?
            };
            Some(Span {
                first,
                last,
                occurrences: from - to + 1,
                outcome,
            })
        };
        let mut spans = Vec::new();
        if count > firing {
            spans.extend(span(count, firing + 1, FireOutcome::SkippedMisfire));
        }
        let single = match policy.overlap {
            Overlap::Allow => firing,
            Overlap::Skip { busy: false } => firing.min(1),
            Overlap::Skip { busy: true } => 0,
        };
        let mut at = None;
        for nth in (firing - single + 1..=firing).rev() {
            at = match at {
                None => self.nth_last(nth, count),
                Some(before) => self.schedule.next_after(before),
            };
            spans.extend(at.map(|at| Span {
                first: at,
                last: at,
                occurrences: 1,
                outcome: outcome(nth),
            }));
        }
        if firing > single {
            spans.extend(span(firing - single, 1, FireOutcome::SkippedOverlap));
        }
        spans
    }
}
