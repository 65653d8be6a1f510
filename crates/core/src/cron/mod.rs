//! When a schedule fires next, and what happens to occurrences that were missed.
//!
//! # Expressions
//!
//! Five fields, `minute hour day-of-month month day-of-week`, or six with `second` first, separated by spaces or
//! tabs; or a macro: `@yearly` (`@annually`), `@monthly`, `@weekly`, `@daily` (`@midnight`), `@hourly`.
//!
//! | field | values | names |
//! |---|---|---|
//! | second, minute | 0-59 | |
//! | hour | 0-23 | |
//! | day of month | 1-31 | `L`, the last day |
//! | month | 1-12 | `JAN`-`DEC`, any case |
//! | day of week | 0-7, 0 and 7 are Sunday | `SUN`-`SAT`, any case; `FRI#2`, `FRIL` |
//!
//! A field is a list of `*`, `a`, `a-b`, `*/n` and `a-b/n`. A range that ends before it starts wraps: `FRI-SUN` is
//! Friday, Saturday and Sunday, `22-2` is 22, 23, 0, 1 and 2. As a day of the week, `FRI#2` or `5#2` is the second
//! Friday of the month (`#1` to `#5`; a month without a fifth is passed over), `FRIL` or `5L` the last; before `#`
//! and `L` stands one weekday. What other programs read in different ways is refused with advice, never guessed:
//! `5/15` (write `5-59/15`), a step that never comes round such as `*/60` or `*/90`, `?`, `W`, `L-3`, a lone `L` as
//! weekday, `@reboot`, and dates that never come such as 30 February.
//!
//! # Day of month and day of week
//!
//! As in vixie cron: if either field **starts with `*`** (`*/2` does), both must match; otherwise either is enough.
//! So `0 0 13 * 5` is every 13th and every Friday, and `0 0 */2 * 1` is each Monday that is an odd day. `#` and `L`
//! change nothing in that: `0 0 * * FRI#2` is each second Friday, `0 0 1 * FRI#2` is every 1st and each second Friday.
//!
//! # Daylight saving time
//!
//! As in vixie cron (some other programs shift the time by the gap, or skip the day):
//!
//! - A schedule whose **minute or hour starts with `*`** follows real time: local times that don't exist give
//!   nothing, local times that come twice fire twice. `*/15 2 * * *` doesn't fire on the night in March when New
//!   York has no 02:00 to 02:59; `0 * * * *` fires each real hour.
//! - **Any other** fires once per matching local time. Times inside a forward jump of at most 3 hours fire once, all
//!   together, at the first instant after it: `30 2 * * *` fires at 03:00 EDT on that night. Of times that come twice
//!   only the first counts: `30 1 * * *` fires at 01:30 EDT in November, and not again at 01:30 EST. Jumps above
//!   3 hours (an island that changes sides of the date line) are not made up for.
//!
//! The zone database is compiled in (chrono-tz) and knows changes of the clock until the year 2100; after that the
//! last offset stays.
//!
//! Imports chrono and the zone database only. The caller hands in every instant; there is no clock here.

mod calendar;
mod count;
mod error;
mod explain;
mod field;
mod plan;
mod walk;
mod zone;

use chrono::{DateTime, Utc};

use calendar::Calendar;

pub use error::{CronError, FieldName};
pub use explain::ClockRule;
pub use plan::{FireOutcome, FirePlan, FirePolicy, MAX_CATCH_UP, MisfirePolicy, Overlap, Span, plan};

/// Longest expression in bytes.
pub const MAX_EXPRESSION_BYTES: usize = 256;

/// A schedule: an expression in a time zone.
#[derive(Clone, Debug)]
pub struct Schedule {
    calendar: Calendar,
    zone: chrono_tz::Tz,
}

impl Schedule {
    /// Parses `expression` (5 or 6 fields, or a macro such as `@daily`) for an IANA `zone`.
    ///
    /// The zone is an exact name of the zone database, such as `Europe/Berlin` or `UTC`; offsets are refused,
    /// because they know no daylight saving time.
    pub fn parse(expression: &str, zone: &str) -> Result<Self, CronError> {
        let zone = zone.parse().map_err(|_| CronError::unknown_zone(zone))?;
        Ok(Self {
            calendar: Calendar::parse(expression)?,
            zone,
        })
    }

    /// The first instant strictly after `after`; `None` if there is none before the year 10000.
    pub fn next_after(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        walk::next_after(&self.calendar, self.zone, after)
    }

    /// At most `limit` occurrences strictly after `after` and not after `until`, in order.
    pub fn occurrences_between(
        &self,
        after: DateTime<Utc>,
        until: DateTime<Utc>,
        limit: usize,
    ) -> impl Iterator<Item = DateTime<Utc>> + '_ {
        std::iter::successors(self.next_after(after), |last| self.next_after(*last))
            .take_while(move |at| *at <= until)
            .take(limit)
    }

    /// How many occurrences lie strictly after `after` and not after `until`. Costs a few steps per month and per
    /// change of the clock, not per occurrence.
    pub fn count_between(&self, after: DateTime<Utc>, until: DateTime<Utc>) -> u64 {
        count::between(&self.calendar, self.zone, after, until)
    }

    /// The `nth` last occurrence (1 is the last) strictly after `after` and not after `until`; `None` if there are
    /// not as many. Costs some dozens of [`Schedule::count_between`].
    pub fn nth_last(&self, after: DateTime<Utc>, until: DateTime<Utc>, nth: u64) -> Option<DateTime<Utc>> {
        count::nth_last(&self.calendar, self.zone, after, until, nth)
    }

    /// What changes of the clock had to do with the occurrence at `at`, the next one after `after`; mostly nothing.
    pub fn explain(&self, after: DateTime<Utc>, at: DateTime<Utc>) -> Vec<ClockRule> {
        explain::rules(&self.calendar, self.zone, after, at)
    }

    /// The zone.
    pub fn zone(&self) -> chrono_tz::Tz {
        self.zone
    }
}
