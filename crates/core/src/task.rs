//! The two names every task carries: its id and its type.

use std::fmt;

/// A task's unique id: 1 to 128 of `A-Z a-z 0-9 . _ : -`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId(Box<str>);

/// A task's type: `domain.action[.more]`, 2 to 6 lower-case words.
///
/// It decides the contract, the metrics label and, by default, the routing key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskType(Box<str>);

/// Why a text is no task id or task type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    /// Not 1 to 128 of the allowed characters.
    #[error("a task id is 1 to 128 of A-Z a-z 0-9 . _ : -")]
    TaskId,
    /// Not 2 to 6 lower-case words.
    #[error(
        "a task type is 2 to 6 words of a-z 0-9 _ -, each starting with a letter, joined by dots, at most 128 bytes"
    )]
    TaskType,
}

impl TaskId {
    /// Longest id in bytes.
    pub const MAX_BYTES: usize = 128;

    /// `text` as a task id.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        let valid = (1..=Self::MAX_BYTES).contains(&text.len())
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"._:-".contains(&b));
        if valid {
            Ok(Self(text.into()))
        } else {
            Err(InvalidName::TaskId)
        }
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TaskType {
    /// Longest type in bytes.
    pub const MAX_BYTES: usize = 128;

    /// `text` as a task type.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        let word = |w: &str| {
            w.starts_with(|c: char| c.is_ascii_lowercase())
                && w.bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-')
        };
        let valid = text.len() <= Self::MAX_BYTES
            && (2..=6).contains(&text.split('.').count())
            && text.split('.').all(word);
        if valid {
            Ok(Self(text.into()))
        } else {
            Err(InvalidName::TaskType)
        }
    }

    /// The type as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for TaskType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_the_samples_are_valid() {
        for id in [
            "order_close_20250402120001_001",
            "b3e1d5a8-7f20-4f1b-ae7d-1234567890ab",
            "a",
            "cron:x:2025.1",
        ] {
            assert_eq!(TaskId::parse(id).unwrap().as_str(), id);
        }
        for id in ["", "a b", "é", "a/b", "a\0", &"x".repeat(129)] {
            assert_eq!(TaskId::parse(id), Err(InvalidName::TaskId), "{id:?}");
        }
    }

    #[test]
    fn types_are_two_to_six_lower_case_words() {
        for ok in [
            "order.close",
            "order.close.timeout",
            "order.close_timeout",
            "a.b.c.d.e.f",
            "x2.y-z",
        ] {
            assert_eq!(TaskType::parse(ok).unwrap().as_str(), ok);
        }
        for bad in [
            "order",
            "Order.close",
            "order..close",
            ".close",
            "a.b.c.d.e.f.g",
            "order.1",
            "a.*",
            "a.#",
            "",
            "a.é",
        ] {
            assert_eq!(TaskType::parse(bad), Err(InvalidName::TaskType), "{bad:?}");
        }
    }
}
