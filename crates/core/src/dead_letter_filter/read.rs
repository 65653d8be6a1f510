//! From pairs of key and value to conditions.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use super::{Condition, Filter, FingerprintIs, TypeIs};
use crate::{
    dead_letter::{DeadLetterId, DeadLetterState},
    dispose::DeadReason,
    printable,
    task::TaskId,
    topic::Pattern,
};

/// The value of `type` for dead letters without one. No task type looks like it.
pub(super) const ABSENT: &str = "-";

/// Longest age that `since` and `until` take: ten years.
const MAX_AGE: Duration = Duration::from_secs(3_650 * 24 * 3_600);

const KEYS: [&str; 10] = [
    "type",
    "queue",
    "reason",
    "fingerprint",
    "since",
    "until",
    "text",
    "state",
    "id",
    "task-id",
];

/// Why pairs are no filter. Each says what would be one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// A word without `=`.
    #[error("{0:?} is no condition: write KEY=VALUE, such as reason=rejected")]
    NotAPair(String),
    /// No such key.
    #[error("there is no key {key:?}: use one of {}", KEYS.join(", "))]
    UnknownKey {
        /// The key, cut.
        key: String,
    },
    /// A value that its key doesn't take.
    #[error("{key}={value:?}: {advice}")]
    Value {
        /// The key.
        key: &'static str,
        /// The value, cut.
        value: String,
        /// What the key takes.
        advice: String,
    },
    /// `since` or `until` a second time.
    #[error("{0} stands twice: it takes one time")]
    Twice(&'static str),
    /// `since` is not before `until`: nothing could ever match.
    #[error("since is not before until: nothing lies between them")]
    EmptyRange,
    /// More values than a query shall have.
    #[error(
        "more than {} values: narrow it down by type, queue or time instead",
        Filter::MAX_VALUES
    )]
    TooMany,
}

/// `word` as a pair.
pub(super) fn pair(word: &str) -> Result<(&str, &str), FilterError> {
    word.split_once('=')
        .ok_or_else(|| FilterError::NotAPair(shown(word)))
}

/// Reads `pairs`; conditions come in the order of their keys' first mention.
pub(super) fn filter<'p>(
    pairs: impl IntoIterator<Item = (&'p str, &'p str)>,
    now: DateTime<Utc>,
) -> Result<Vec<Condition>, FilterError> {
    let mut conditions: Vec<Condition> = Vec::new();
    for (at, (key, value)) in pairs.into_iter().enumerate() {
        if at >= Filter::MAX_VALUES {
            return Err(FilterError::TooMany);
        }
        let new = condition(key, value, now)?;
        match conditions.iter_mut().find(|there| there.key() == new.key()) {
            Some(there) => merge(there, new)?,
            None => conditions.push(new),
        }
    }
    let time = |wanted: &str| {
        conditions.iter().find_map(|condition| match condition {
            Condition::Since(time) | Condition::Until(time) if condition.key() == wanted => Some(*time),
            _ => None,
        })
    };
    match (time("since"), time("until")) {
        (Some(since), Some(until)) if since >= until => Err(FilterError::EmptyRange),
        _ => Ok(conditions),
    }
}

fn condition(key: &str, value: &str, now: DateTime<Utc>) -> Result<Condition, FilterError> {
    let Some(key) = KEYS.into_iter().find(|known| *known == key) else {
        return Err(FilterError::UnknownKey { key: shown(key) });
    };
    let refused = |advice: &str| FilterError::Value {
        key,
        value: shown(value),
        advice: advice.to_owned(),
    };
    let pattern = || match Pattern::parse(value) {
        Ok(_) if value.is_empty() => Err(refused("write a name, or a pattern such as order.#")),
        Ok(_) if value.contains('\0') => Err(refused("no name holds U+0000")),
        Ok(pattern) => Ok(pattern),
        Err(why) => Err(refused(&why.to_string())),
    };
    let time = || {
        instant(value, now).ok_or_else(|| {
            refused("write an age such as 90s, 15m, 2h or 7d, or a time such as 2025-04-02T12:00:00+08:00")
        })
    };
    Ok(match key {
        "type" if value == ABSENT => Condition::Type(vec![TypeIs::Absent]),
        "type" => Condition::Type(vec![TypeIs::Like(pattern()?)]),
        "queue" => Condition::Queue(vec![pattern()?]),
        "reason" => match DeadReason::parse(value) {
            Some(reason) => Condition::Reason(vec![reason]),
            None => {
                return Err(refused(&format!(
                    "use one of {}",
                    DeadReason::ALL.map(DeadReason::as_str).join(", ")
                )));
            }
        },
        "fingerprint" => match FingerprintIs::parse(value) {
            Some(is) => Condition::Fingerprint(vec![is]),
            None => return Err(refused("write at least the first 8 of its 32 hexadecimal digits")),
        },
        "since" => Condition::Since(time()?),
        "until" => Condition::Until(time()?),
        "text" if value.is_empty() || value.len() > Filter::MAX_TEXT_BYTES => {
            return Err(refused(&format!(
                "write 1 to {} bytes of the error",
                Filter::MAX_TEXT_BYTES
            )));
        }
        // Errors are stored with NUL written out, as databases refuse it.
        "text" if value.contains('\0') => {
            return Err(refused("U+0000 is stored as \\u0000: search for that"));
        }
        "text" => Condition::Text(vec![value.to_owned()]),
        "state" => match DeadLetterState::parse(value) {
            Some(state) => Condition::State(vec![state]),
            None => return Err(refused("use one of open, replaying, replayed, discarded")),
        },
        "id" => match DeadLetterId::parse(value) {
            Some(id) => Condition::Id(vec![id]),
            None => {
                return Err(refused(
                    "write the dead letter's id as it is listed, 36 characters",
                ));
            }
        },
        _ => match TaskId::parse(value) {
            Ok(id) => Condition::TaskId(vec![id]),
            Err(why) => return Err(refused(&why.to_string())),
        },
    })
}

/// Adds the one value of `new` to `there`, which has the same key; a value that is there already changes nothing.
fn merge(there: &mut Condition, new: Condition) -> Result<(), FilterError> {
    fn add<T: PartialEq>(values: &mut Vec<T>, new: Vec<T>) {
        for value in new {
            if !values.contains(&value) {
                values.push(value);
            }
        }
    }
    match (there, new) {
        (Condition::Type(values), Condition::Type(new)) => add(values, new),
        (Condition::Queue(values), Condition::Queue(new)) => add(values, new),
        (Condition::Reason(values), Condition::Reason(new)) => add(values, new),
        (Condition::Fingerprint(values), Condition::Fingerprint(new)) => add(values, new),
        (Condition::Text(values), Condition::Text(new)) => add(values, new),
        (Condition::State(values), Condition::State(new)) => add(values, new),
        (Condition::Id(values), Condition::Id(new)) => add(values, new),
        (Condition::TaskId(values), Condition::TaskId(new)) => add(values, new),
        (there, _) => return Err(FilterError::Twice(there.key())),
    }
    Ok(())
}

/// A time with offset, or an age before `now`.
fn instant(text: &str, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
    if let Ok(time) = DateTime::parse_from_rfc3339(text) {
        return Some(time.to_utc());
    }
    let digits = text.strip_suffix(['s', 'm', 'h', 'd'])?;
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let unit: u64 = match text.as_bytes().last()? {
        b's' => 1,
        b'm' => 60,
        b'h' => 3_600,
        _ => 24 * 3_600,
    };
    let age = Duration::from_secs(digits.parse::<u64>().ok()?.checked_mul(unit)?);
    let age = TimeDelta::from_std(age).ok().filter(|_| age <= MAX_AGE)?;
    now.checked_sub_signed(age)
}

/// What somebody wrote, on one line and cut.
fn shown(text: &str) -> String {
    let cut: String = text.chars().take(64).collect();
    printable::line(&cut)
}
