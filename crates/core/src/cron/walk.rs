//! The walk from local times to instants, across changes of a zone's offset.
//!
//! Between two changes the offset is constant, so the next local match is the next instant, unless a change comes
//! first. At a change the walk stops and looks: a forward jump may hide matches, a backward one repeats them.
//! Instants are seconds since 1970 in UTC, local times the same plus the offset.

use chrono::{DateTime, Offset, TimeZone, Utc};
use chrono_tz::Tz;

use super::calendar::Calendar;

const HOUR: i64 = 3600;
/// Longer than any repeated span: the largest change of an offset is one day, at the date line.
const LONGEST_REPEAT: i64 = 25 * HOUR;
/// Around an instant, how far changes of the offset can reach. More than a repeat, with room to spare.
const REACH: i64 = 48 * HOUR;
/// Forward jumps above this are not made up for.
const LONGEST_MAKE_UP: i64 = 3 * HOUR;
/// 0001-01-01T00:00:00Z; no zone has changes before.
const EARLIEST: i64 = -62_135_596_800;

/// The first instant strictly after `after` at which `calendar` fires in `zone`.
pub(super) fn next_after(calendar: &Calendar, zone: Tz, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
    let zone = Zone(zone);
    let mut at = after.timestamp().max(EARLIEST) + 1;
    // Local times before this were already seen before the clock went back.
    let mut seen_until = i64::MIN;
    // The change of offset that happens at `at`, if one does.
    let mut change = None;
    if !calendar.follows_real_time()
        && let Some(last) = zone.last_change(at - LONGEST_REPEAT, at)
    {
        seen_until = last.seen_until();
        change = Some(last).filter(|last| last.at == at);
    }
    loop {
        if let Some((from, to)) = change.take().and_then(Change::made_up)
            && calendar.next_local(from)? < to
        {
            return instant(at);
        }
        let offset = zone.offset(at)?;
        let found = calendar.next_local((at + offset).max(seen_until))? - offset;
        match zone.first_change(at, found.min(at + REACH))? {
            Some(next) => {
                at = next.at;
                if !calendar.follows_real_time() {
                    seen_until = seen_until.max(next.seen_until());
                    change = Some(next);
                }
            }
            None if found <= at + REACH => return instant(found),
            // No local time between here and `found` matches, so no change of the clock on the way matters until
            // it can reach `found`.
            None => at = (at + REACH).max(found - REACH),
        }
    }
}

fn instant(at: i64) -> Option<DateTime<Utc>> {
    DateTime::from_timestamp(at, 0)
}

/// A change of a zone's offset.
#[derive(Clone, Copy)]
struct Change {
    at: i64,
    before: i64,
    after: i64,
}

impl Change {
    /// The end of the local times that come again after this change, if any do.
    fn seen_until(self) -> i64 {
        if self.before > self.after {
            self.at + self.before
        } else {
            i64::MIN
        }
    }

    /// The local times that this change leaves out and that are made up for at its instant.
    fn made_up(self) -> Option<(i64, i64)> {
        let jump = self.after - self.before;
        (1..=LONGEST_MAKE_UP)
            .contains(&jump)
            .then_some((self.at + self.before, self.at + self.after))
    }
}

#[derive(Clone, Copy)]
struct Zone(Tz);

impl Zone {
    fn offset(self, at: i64) -> Option<i64> {
        let utc = instant(at)?.naive_utc();
        Some(
            self.0
                .offset_from_utc_datetime(&utc)
                .fix()
                .local_minus_utc()
                .into(),
        )
    }

    /// The first change in `(from, to]`. The zone database is asked once an hour: no zone changes twice in one.
    fn first_change(self, from: i64, to: i64) -> Option<Option<Change>> {
        let mut low = from;
        while low < to {
            let high = to.min(low + HOUR);
            if let Some(change) = self.change_between(low, high)? {
                return Some(Some(change));
            }
            low = high;
        }
        Some(None)
    }

    /// The last change in `(from, to]`.
    fn last_change(self, from: i64, to: i64) -> Option<Change> {
        let mut high = to;
        while high > from {
            let low = from.max(high - HOUR);
            if let Some(change) = self.change_between(low, high)? {
                return Some(change);
            }
            high = low;
        }
        None
    }

    /// The change in `(low, high]`, found by bisection.
    fn change_between(self, mut low: i64, mut high: i64) -> Option<Option<Change>> {
        let (before, after) = (self.offset(low)?, self.offset(high)?);
        if before == after {
            return Some(None);
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.offset(middle)? == before {
                low = middle
            } else {
                high = middle
            }
        }
        Some(Some(Change {
            at: high,
            before,
            after,
        }))
    }
}
