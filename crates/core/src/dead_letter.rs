//! The names of a dead letter in the archive: its id, and how far its repair is.
//!
//! May import: nothing of ours.

mod identity;

use std::fmt;

pub use identity::{AHEAD, Identity, OLDEST, died_at, identify};

/// Id of a dead letter: a UUID. `Display` is its 36 characters in lower case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeadLetterId(pub [u8; 16]);

/// How far the repair of a dead letter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeadLetterState {
    /// Nobody has dealt with it.
    Open,
    /// A replay has claimed it; whether its message is out is not known yet.
    Replaying,
    /// Its message was confirmed.
    Replayed,
    /// Somebody decided that it shall not run.
    Discarded,
}

impl DeadLetterId {
    /// `text` as an id: 32 hexadecimal digits of either case in groups of 8, 4, 4, 4 and 12.
    pub fn parse(text: &str) -> Option<Self> {
        let groups: Vec<&str> = text.split('-').take(6).collect();
        let lengths = groups.iter().map(|group| group.len());
        let is_hex = groups
            .iter()
            .all(|group| group.bytes().all(|b| b.is_ascii_hexdigit()));
        if !is_hex || !lengths.eq([8, 4, 4, 4, 12]) {
            return None;
        }
        u128::from_str_radix(&groups.concat(), 16)
            .ok()
            .map(|n| Self(n.to_be_bytes()))
    }

    /// Fewest digits that [`DeadLetterId::between`] takes as the beginning of an id.
    pub const MIN_DIGITS: usize = 4;

    /// The first and the last id that begin with `text`, as ids are shown; the same one where it is a whole id.
    pub fn between(text: &str) -> Option<(Self, Self)> {
        let digits: String = text.chars().filter(|c| *c != '-').collect();
        let is_hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
        if !is_hex || !(Self::MIN_DIGITS..=32).contains(&digits.len()) {
            return None;
        }
        let id = |digits: String| {
            u128::from_str_radix(&digits, 16)
                .ok()
                .map(|n| Self(n.to_be_bytes()))
        };
        let (first, last) = (id(format!("{digits:0<32}"))?, id(format!("{digits:f<32}"))?);
        // Hyphens stand where they stand in an id.
        let begins = first.to_string().starts_with(&text.to_ascii_lowercase());
        begins.then_some((first, last))
    }
}

impl fmt::Display for DeadLetterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = format!("{:032x}", u128::from_be_bytes(self.0));
        let group = |from, to| hex.get(from..to).unwrap_or_default();
        write!(
            f,
            "{}-{}-{}-{}-{}",
            group(0, 8),
            group(8, 12),
            group(12, 16),
            group(16, 20),
            group(20, 32)
        )
    }
}

impl DeadLetterState {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Open, Self::Replaying, Self::Replayed, Self::Discarded];

    /// The state as it stands in tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "OPEN",
            Self::Replaying => "REPLAYING",
            Self::Replayed => "REPLAYED",
            Self::Discarded => "DISCARDED",
        }
    }

    /// The state that `text` names, in either case.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|state| state.as_str().eq_ignore_ascii_case(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_uuids_and_nothing_else() {
        let id = DeadLetterId::parse("0196A5E0-7f20-4f1b-ae7d-00000000000f").unwrap();
        assert_eq!(id.to_string(), "0196a5e0-7f20-4f1b-ae7d-00000000000f");
        assert_eq!(DeadLetterId::parse(&id.to_string()), Some(id));
        for bad in [
            "",
            "0196a5e07f204f1bae7d00000000000f",
            "0196a5e0-7f20-4f1b-ae7d-00000000000",
            "+196a5e0-7f20-4f1b-ae7d-00000000000f",
            "0196a5e0-7f20-4f1b-ae7d-00000000000f-",
            "éé96a5-7f20-4f1b-ae7d-00000000000f",
            &"-".repeat(100_000),
        ] {
            assert_eq!(DeadLetterId::parse(bad), None);
        }
    }

    #[test]
    fn an_id_may_be_named_by_its_beginning() {
        let whole = "0196a5e0-7f20-4f1b-ae7d-00000000000f";
        let of = |text: &str| {
            DeadLetterId::between(text).map(|(first, last)| (first.to_string(), last.to_string()))
        };
        assert_eq!(of(whole), Some((whole.to_owned(), whole.to_owned())));
        let (first, last) = of("0196A5E0-7f2").unwrap();
        assert_eq!(first, "0196a5e0-7f20-0000-0000-000000000000");
        assert_eq!(last, "0196a5e0-7f2f-ffff-ffff-ffffffffffff");
        assert_eq!(of("0196a5e0-"), of("0196a5e0"));
        for bad in [
            "",
            "019",
            "0196-a5e0",
            "0196a5e07f20",
            "0196a5e0--7",
            "0196é",
            &format!("{whole}0"),
            &"0".repeat(99_999),
        ] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }

    #[test]
    fn states_round_trip() {
        for state in DeadLetterState::ALL {
            assert_eq!(
                DeadLetterState::parse(&state.as_str().to_lowercase()),
                Some(state)
            );
        }
        assert_eq!(DeadLetterState::parse("SOLVED"), None);
    }
}
