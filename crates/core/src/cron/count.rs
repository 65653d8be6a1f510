//! How many occurrences lie between two instants, without walking over them, and where the last few begin.
//!
//! Between two changes of the zone's offset occurrences are the matching local times, which are counted by the
//! month; at a change the rule of [`super::walk`] decides.

use chrono::{DateTime, Utc};
use chrono_tz::Tz;

use super::{
    calendar::Calendar,
    walk,
    zone::{Change, EARLIEST, Zone},
};

/// 10000-01-03T00:00:00Z: after the last local time that is searched, in every zone.
const LATEST: i64 = 253_402_473_600;

/// First guess at how far back the last occurrences reach.
const FIRST_LOOK_BACK: i64 = 60;

/// How many occurrences `calendar` has in `zone` strictly after `after` and not after `until`.
pub(super) fn between(calendar: &Calendar, zone: Tz, after: DateTime<Utc>, until: DateTime<Utc>) -> u64 {
    // Occurrences are whole seconds.
    seconds_between(calendar, Zone(zone), after.timestamp(), until.timestamp())
}

/// The `nth` last occurrence (1 is the last) strictly after `after` and not after `until`.
pub(super) fn nth_last(
    calendar: &Calendar,
    zone: Tz,
    after: DateTime<Utc>,
    until: DateTime<Utc>,
    nth: u64,
) -> Option<DateTime<Utc>> {
    if nth == 0 {
        return None;
    }
    let (first, end) = (after.timestamp(), until.timestamp().min(LATEST));
    let enough = |from: i64| seconds_between(calendar, Zone(zone), from, end) >= nth;
    // Look back twice as far each time, so that the last of very many cost no look at all of them.
    let (mut low, mut high, mut distance) = (end, end, FIRST_LOOK_BACK);
    while !enough(low) {
        if low <= first {
            return None;
        }
        high = low;
        low = first.max(end.saturating_sub(distance));
        distance = distance.saturating_mul(2);
    }
    // From `low` on there are enough, from `high` on too few.
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if enough(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    walk::next_after(calendar, zone, DateTime::from_timestamp(low, 0)?)
}

fn seconds_between(calendar: &Calendar, zone: Zone, after: i64, until: i64) -> u64 {
    let (mut at, last) = (after.max(EARLIEST) + 1, until.min(LATEST));
    // As in the walk: local times before this were already seen, and the change that happens at `at`.
    let (mut seen_until, mut change) = (i64::MIN, None);
    if !calendar.follows_real_time()
        && let Some(earlier) = zone.last_change(at)
    {
        seen_until = earlier.seen_until();
        change = Some(earlier).filter(|earlier| earlier.at == at);
    }
    let mut count = 0;
    while at <= last {
        let (Some(offset), Some(next)) = (zone.offset(at), zone.first_change(at, last)) else {
            break;
        };
        let end = next.map_or(last + 1, |next| next.at);
        let from = (at + offset).max(seen_until);
        count += calendar.count_local(from, end + offset);
        if let Some((missing, until)) = change.take().and_then(Change::made_up)
            && calendar.count_local(missing, until) > 0
            // One fire makes up for all of them, and for a match at this very instant.
            && !(from == at + offset && calendar.count_local(from, from + 1) > 0)
        {
            count += 1;
        }
        let Some(next) = next else { break };
        at = next.at;
        if !calendar.follows_real_time() {
            seen_until = seen_until.max(next.seen_until());
            change = Some(next);
        }
    }
    count
}
