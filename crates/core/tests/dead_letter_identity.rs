//! One message is one dead letter, and another message is another one.

#![allow(clippy::unwrap_used)]

use chrono::{DateTime, TimeDelta, Utc};
use proptest::prelude::*;
use tidegate_core::dead_letter::{AHEAD, DeadLetterId, Identity, OLDEST, died_at, identify};

fn now() -> DateTime<Utc> {
    "2026-11-30T12:00:00Z".parse().unwrap()
}

/// A UUID of version 7 of this time.
fn named(at: DateTime<Utc>) -> DeadLetterId {
    let mut id = [0xab; 16];
    id[..6].copy_from_slice(&at.timestamp_millis().to_be_bytes()[2..]);
    id[6] = 0x7a;
    id[8] = 0x9b;
    DeadLetterId(id)
}

const FRESH: DeadLetterId = DeadLetterId([7; 16]);

fn of(header: Option<&str>, key: &str, body: &[u8]) -> Identity {
    identify(header, key, body, FRESH, now())
}

#[test]
fn a_second_delivery_is_the_same_dead_letter() {
    let death = now() - TimeDelta::days(30);
    let name = named(death).to_string();
    let first = of(Some(&name), "order.close.queue", b"{}");
    assert_eq!(first.died_at, death);
    assert_eq!(died_at(first.id), Some(death), "its id has the time of death");
    assert_ne!(first.id, named(death), "and not all of what anybody could copy");
    assert_eq!(of(Some(&name.to_uppercase()), "order.close.queue", b"{}"), first);
    let later = identify(
        Some(&name),
        "order.close.queue",
        b"{}",
        DeadLetterId([8; 16]),
        now() + TimeDelta::days(9),
    );
    assert_eq!(later, first);
}

#[test]
fn a_copied_name_on_another_message_is_another_dead_letter() {
    let name = named(now()).to_string();
    let ids: std::collections::BTreeSet<_> = [
        ("a", &b"bc"[..]),
        ("ab", b"c"),
        ("a", b"bd"),
        ("", b"abc"),
        ("abc", b""),
    ]
    .into_iter()
    .map(|(key, body)| of(Some(&name), key, body).id)
    .collect();
    assert_eq!(ids.len(), 5);
}

#[test]
fn a_time_that_can_not_be_is_not_believed() {
    let at = |at| of(Some(&named(at).to_string()), "k", b"b");
    let unknown = Identity {
        id: FRESH,
        died_at: now(),
    };
    let ms = TimeDelta::milliseconds(1);
    for (time, believed) in [
        (now() - OLDEST - ms, None),
        (now() - OLDEST, Some(now() - OLDEST)),
        (now() - ms, Some(now() - ms)),
        // A clock that is ahead: it is the same message later too, and did not die in the future.
        (now() + AHEAD, Some(now())),
        (now() + AHEAD + ms, None),
        (DateTime::UNIX_EPOCH, None),
    ] {
        match believed {
            Some(died_at) => assert_eq!(at(time).died_at, died_at, "{time}"),
            None => assert_eq!(at(time), unknown, "{time}"),
        }
    }
    for header in [
        None,
        Some(""),
        Some("no uuid"),
        Some("00000000-0000-0000-0000-000000000000"),
        // Version 4.
        Some("0196a5e0-7f20-4f1b-ae7d-00000000000f"),
        Some("ffffffff-ffff-7fff-bfff-ffffffffffff"),
    ] {
        assert_eq!(of(header, "k", b"b"), unknown, "{header:?}");
    }
}

proptest! {
    #[test]
    fn ids_are_of_version_7_and_never_from_the_future(
        bytes in any::<[u8; 16]>(), key in ".{0,20}", body in any::<Vec<u8>>(), ahead in -40_000_000_i64..4_000,
    ) {
        let mut name = named(now() + TimeDelta::seconds(ahead)).0;
        name[9..].copy_from_slice(&bytes[9..]);
        for name in [DeadLetterId(name), DeadLetterId(bytes)] {
            let identity = of(Some(&name.to_string()), &key, &body);
            prop_assert!(identity.died_at <= now());
            prop_assert!(identity.id == FRESH || died_at(identity.id) == died_at(name));
            prop_assert_eq!(of(Some(&name.to_string()), &key, &body), identity);
        }
    }
}
