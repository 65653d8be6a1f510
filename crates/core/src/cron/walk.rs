//! The walk from local times to instants, across changes of a zone's offset.
//!
//! Between two changes the offset is constant, so the next local match is the next instant, unless a change comes
//! first. At a change the walk stops and looks: a forward jump may hide matches, a backward one repeats them.
//! Instants are seconds since 1970 in UTC, local times the same plus the offset.

use chrono::{DateTime, Utc};
use chrono_tz::Tz;

use super::{
    calendar::Calendar,
    zone::{Change, EARLIEST, Zone},
};

/// Around an instant, how far changes of the offset can reach. More than a repeat, with room to spare.
const REACH: i64 = 48 * 3600;

/// The first instant strictly after `after` at which `calendar` fires in `zone`.
pub(super) fn next_after(calendar: &Calendar, zone: Tz, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
    let zone = Zone(zone);
    let mut at = after.timestamp().max(EARLIEST) + 1;
    // Local times before this were already seen before the clock went back.
    let mut seen_until = i64::MIN;
    // The change of offset that happens at `at`, if one does.
    let mut change = None;
    if !calendar.follows_real_time()
        && let Some(last) = zone.last_change(at)
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
