//! Which rule about changes of the clock an occurrence owes itself to.

use std::fmt;

use chrono::{DateTime, NaiveDateTime, Utc};
use chrono_tz::Tz;

use super::{
    calendar::Calendar,
    zone::{Change, LONGEST_REPEAT, Zone},
};

/// What a change of the clock had to do with an occurrence. Local times lie in [`from`, `until`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClockRule {
    /// It makes up for local times that the clock leaves out.
    MadeUp {
        /// The first local time that doesn't exist.
        from: NaiveDateTime,
        /// The first that does again.
        until: NaiveDateTime,
    },
    /// Its local time comes twice, and it fires the first time only.
    FirstOnly {
        /// The first local time that comes twice.
        from: NaiveDateTime,
        /// The first that does not any more.
        until: NaiveDateTime,
    },
    /// Its local time comes twice, and it fires both times, because the schedule follows real time.
    Twice {
        /// The first local time that comes twice.
        from: NaiveDateTime,
        /// The first that does not any more.
        until: NaiveDateTime,
        /// Whether this is the second time.
        second: bool,
    },
    /// Since the occurrence before, the clock left out local times that match, and nothing makes up for them.
    LeftOut {
        /// The first local time that doesn't exist.
        from: NaiveDateTime,
        /// The first that does again.
        until: NaiveDateTime,
        /// Whether that is for the length of the jump; else it is because the schedule follows real time.
        too_long: bool,
    },
}

impl ClockRule {
    /// The rule as one word, for programs.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::MadeUp { .. } => "made_up",
            Self::FirstOnly { .. } => "first_only",
            Self::Twice { second: false, .. } => "twice_first",
            Self::Twice { second: true, .. } => "twice_second",
            Self::LeftOut { .. } => "left_out",
        }
    }
}

impl fmt::Display for ClockRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span = |from: &NaiveDateTime, until: &NaiveDateTime| {
            let same_day = from.date() == until.date();
            let until = until.format(if same_day { "%H:%M" } else { "%Y-%m-%d %H:%M" });
            format!("{} to {until}", from.format("%Y-%m-%d %H:%M"))
        };
        match self {
            Self::MadeUp { from, until } => {
                write!(
                    f,
                    "no {} on the clock: fires once, right after",
                    span(from, until)
                )
            }
            Self::FirstOnly { from, until } => {
                write!(f, "{} comes twice: fires the first time only", span(from, until))
            }
            Self::Twice { from, until, second } => {
                let which = if *second { "second" } else { "first" };
                write!(
                    f,
                    "{} comes twice: follows real time, {which} of two",
                    span(from, until)
                )
            }
            Self::LeftOut {
                from,
                until,
                too_long,
            } => {
                let why = if *too_long {
                    "over 3 hours are not made up for"
                } else {
                    "follows real time, not made up for"
                };
                write!(f, "no {} on the clock: {why}", span(from, until))
            }
        }
    }
}

/// The rules that bear on the occurrence at `at`, the next one after `after`.
pub(super) fn rules(
    calendar: &Calendar,
    zone: Tz,
    after: DateTime<Utc>,
    at: DateTime<Utc>,
) -> Vec<ClockRule> {
    let (after, at) = (after.timestamp(), at.timestamp());
    let mut rules = Vec::new();
    // From where a change can still repeat the time of `at`, to where one will.
    let mut from = after.min(at - LONGEST_REPEAT);
    while let Some(Some(change)) = Zone(zone).first_change(from, at + LONGEST_REPEAT) {
        rules.extend(rule(calendar, change, after, at));
        from = change.at;
    }
    rules
}

fn rule(calendar: &Calendar, change: Change, after: i64, at: i64) -> Option<ClockRule> {
    let real_time = calendar.follows_real_time();
    if let Some((from, until)) = change.repeated() {
        let length = until - from;
        let second = change.at <= at;
        if !(change.at - length..change.at + length).contains(&at) || second && !real_time {
            return None;
        }
        let (from, until) = (local(from)?, local(until)?);
        return Some(if real_time {
            ClockRule::Twice { from, until, second }
        } else {
            ClockRule::FirstOnly { from, until }
        });
    }
    let (from, until) = change.missing()?;
    if calendar.count_local(from, until) == 0 {
        return None;
    }
    let too_long = change.made_up().is_none();
    let (from, until) = (local(from)?, local(until)?);
    if !real_time && !too_long {
        return (change.at == at).then_some(ClockRule::MadeUp { from, until });
    }
    (after < change.at && change.at <= at).then_some(ClockRule::LeftOut {
        from,
        until,
        too_long,
    })
}

fn local(seconds: i64) -> Option<NaiveDateTime> {
    Some(DateTime::from_timestamp(seconds, 0)?.naive_utc())
}
