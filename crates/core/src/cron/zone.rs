//! A zone as a list of changes of its offset, which the zone database doesn't give: they are searched for.
//!
//! Instants are seconds since 1970 in UTC, local times the same plus the offset.

use chrono::{DateTime, Offset, TimeZone};
use chrono_tz::Tz;

const HOUR: i64 = 3600;
/// How often the zone database is asked for the offset. Changes of one zone lie at least 95 hours apart.
const STEP: i64 = 48 * HOUR;
/// Longer than any repeated span: the largest change of an offset is one day, at the date line.
pub(super) const LONGEST_REPEAT: i64 = 25 * HOUR;
/// Forward jumps above this are not made up for.
const LONGEST_MAKE_UP: i64 = 3 * HOUR;
/// 0001-01-01T00:00:00Z; no zone has changes before.
pub(super) const EARLIEST: i64 = -62_135_596_800;

/// A change of a zone's offset.
#[derive(Clone, Copy)]
pub(super) struct Change {
    /// The first instant of the new offset.
    pub(super) at: i64,
    before: i64,
    after: i64,
}

impl Change {
    /// The end of the local times that come again after this change, if any do; else the beginning of time.
    pub(super) fn seen_until(self) -> i64 {
        self.repeated().map_or(i64::MIN, |(_, until)| until)
    }

    /// The local times that come again after this change, if any do.
    pub(super) fn repeated(self) -> Option<(i64, i64)> {
        (self.before > self.after).then_some((self.at + self.after, self.at + self.before))
    }

    /// The local times that this change leaves out, if any.
    pub(super) fn missing(self) -> Option<(i64, i64)> {
        (self.after > self.before).then_some((self.at + self.before, self.at + self.after))
    }

    /// The local times that this change leaves out and that are made up for at its instant.
    pub(super) fn made_up(self) -> Option<(i64, i64)> {
        self.missing()
            .filter(|(from, until)| until - from <= LONGEST_MAKE_UP)
    }
}

#[derive(Clone, Copy)]
pub(super) struct Zone(pub(super) Tz);

impl Zone {
    pub(super) fn offset(self, at: i64) -> Option<i64> {
        let utc = DateTime::from_timestamp(at, 0)?.naive_utc();
        Some(
            self.0
                .offset_from_utc_datetime(&utc)
                .fix()
                .local_minus_utc()
                .into(),
        )
    }

    /// The first change in `(from, to]`.
    pub(super) fn first_change(self, from: i64, to: i64) -> Option<Option<Change>> {
        let mut low = from;
        while low < to {
            let high = to.min(low + STEP);
            if let Some(change) = self.change_between(low, high)? {
                return Some(Some(change));
            }
            low = high;
        }
        Some(None)
    }

    /// The last change before which local times can come again from `at` on, or which happens at `at`.
    pub(super) fn last_change(self, at: i64) -> Option<Change> {
        // The span is shorter than the distance of two changes.
        self.change_between(at - LONGEST_REPEAT, at)?
    }

    /// The change in `(low, high]`, found by bisection; there is at most one.
    fn change_between(self, mut low: i64, mut high: i64) -> Option<Option<Change>> {
        let (before, after) = (self.offset(low)?, self.offset(high)?);
        if before == after {
            return Some(None);
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.offset(middle)? == before {
                low = middle;
            } else {
                high = middle;
            }
        }
        Some(Some(Change {
            at: high,
            before,
            after,
        }))
    }
}
