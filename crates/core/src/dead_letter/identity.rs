//! Which dead letter a message on `task.dead` is: the same one however often it is delivered.
//!
//! Whoever dead-letters names the death once, by a UUID of version 7 in a header, and may publish it twice when a confirm is
//! lost. The archive's id keeps the time of that name and takes the rest from name, content and routing key: a name that was
//! copied to another message is another dead letter, and takes nobody's place.
//!
//! May import: sha2.

use chrono::{DateTime, TimeDelta, Utc};
use sha2::{Digest, Sha256};

use super::DeadLetterId;

/// A death longer ago is not believed: the archive looks for a second delivery from the day of death on.
pub const OLDEST: TimeDelta = TimeDelta::days(400);

/// How far ahead the clock of whoever dead-letters may be.
pub const AHEAD: TimeDelta = TimeDelta::hours(1);

/// What a message is in the archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The id of its dead letter.
    pub id: DeadLetterId,
    /// When it died; never after `now`.
    pub died_at: DateTime<Utc>,
}

/// The identity of the message with this header, content and routing key, by a clock that says `now`.
///
/// `fresh` is a new id, for one that brings none or one whose time is out of bounds: then a second delivery is another dead
/// letter.
pub fn identify(
    header: Option<&str>,
    routing_key: &str,
    body: &[u8],
    fresh: DeadLetterId,
    now: DateTime<Utc>,
) -> Identity {
    let named = header.and_then(DeadLetterId::parse);
    let believed = named.and_then(|name| {
        let at = died_at(name)?;
        (now - OLDEST..=now + AHEAD).contains(&at).then_some((name, at))
    });
    match believed {
        Some((name, at)) => Identity {
            id: derived(name, routing_key, body),
            died_at: at.min(now),
        },
        None => Identity {
            id: fresh,
            died_at: now,
        },
    }
}

/// The time in a UUID of version 7, in milliseconds; `None` for any other.
pub fn died_at(id: DeadLetterId) -> Option<DateTime<Utc>> {
    let [a, b, c, d, e, f, version, _, variant, ..] = id.0;
    if version >> 4 != 7 || variant >> 6 != 0b10 {
        return None;
    }
    let millis = [a, b, c, d, e, f]
        .iter()
        .fold(0_i64, |millis, byte| (millis << 8) | i64::from(*byte));
    DateTime::from_timestamp_millis(millis)
}

fn derived(name: DeadLetterId, routing_key: &str, body: &[u8]) -> DeadLetterId {
    let mut hash = Sha256::new();
    hash.update(name.0);
    // With its length, so that nothing moves from the key into the body.
    hash.update(format!("{}:", routing_key.len()));
    hash.update(routing_key);
    hash.update(body);
    let mut id = name.0;
    id[6..].copy_from_slice(&hash.finalize()[..10]);
    id[6] = 0x70 | (id[6] & 0x0f);
    id[8] = 0x80 | (id[8] & 0x3f);
    DeadLetterId(id)
}
