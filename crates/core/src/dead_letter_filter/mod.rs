//! Which dead letters are meant: what `dlq list` shows and a replay takes.
//!
//! A filter is written as pairs, `type=order.# reason=rejected since=2h`. Values of one key are alternatives, and all keys must
//! hold. It is read once into [`Condition`]s, from which the store builds its query; [`Filter::matches`] says the same
//! of one row, so that a test can compare the two.
//!
//! May import: `dead_letter`, `dispose`, `fingerprint`, `printable`, `task`, `topic`, chrono.

mod read;

use chrono::{DateTime, SecondsFormat, Utc};

pub use read::FilterError;

use crate::{
    dead_letter::{DeadLetterId, DeadLetterState},
    dispose::DeadReason,
    fingerprint::Fingerprint,
    task::TaskId,
    topic::Pattern,
};

/// What must hold, all of it. No condition: every dead letter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    conditions: Vec<Condition>,
}

/// One condition: one of its values fits. No list is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The task type.
    Type(Vec<TypeIs>),
    /// The queue that failed, as a topic pattern.
    Queue(Vec<Pattern>),
    /// The dead-letter reason.
    Reason(Vec<DeadReason>),
    /// The fingerprint, or how it begins.
    Fingerprint(Vec<FingerprintIs>),
    /// It died then or later.
    Since(DateTime<Utc>),
    /// It died before that.
    Until(DateTime<Utc>),
    /// The error text holds this: the same characters, case included.
    Text(Vec<String>),
    /// The state of its repair.
    State(Vec<DeadLetterState>),
    /// Its id.
    Id(Vec<DeadLetterId>),
    /// The id of its task.
    TaskId(Vec<TaskId>),
}

/// What a task type is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TypeIs {
    /// One that the topic pattern matches.
    Like(Pattern),
    /// Not there: the body didn't say.
    Absent,
}

/// All fingerprints that begin alike: from the first to the last, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FingerprintIs {
    /// The lowest.
    pub first: Fingerprint,
    /// The highest; the same where all 32 digits were given.
    pub last: Fingerprint,
}

/// A dead letter, as far as filters look at it.
#[derive(Clone, Copy, Debug)]
pub struct Row<'r> {
    /// Its id.
    pub id: DeadLetterId,
    /// The task's id, where the body says one.
    pub task_id: Option<&'r str>,
    /// The task's type, where the body or a header says one.
    pub task_type: Option<&'r str>,
    /// The queue that failed.
    pub queue: &'r str,
    /// Why it is dead.
    pub reason: DeadReason,
    /// Its group.
    pub fingerprint: Fingerprint,
    /// When it died.
    pub died_at: DateTime<Utc>,
    /// The error text, as it is stored.
    pub error: &'r str,
    /// How far its repair is.
    pub state: DeadLetterState,
}

impl Filter {
    /// Most values in one filter.
    pub const MAX_VALUES: usize = 1_000;

    /// Longest text to search for, in bytes.
    pub const MAX_TEXT_BYTES: usize = 256;

    /// Reads pairs of key and value; `now` is what ages such as `2h` count back from.
    ///
    /// # Errors
    /// The first pair that can't be understood, and what could.
    pub fn parse<'p>(
        pairs: impl IntoIterator<Item = (&'p str, &'p str)>,
        now: DateTime<Utc>,
    ) -> Result<Self, FilterError> {
        read::filter(pairs, now).map(|conditions| Self { conditions })
    }

    /// Reads words such as `reason=rejected`, as they come from a command line.
    ///
    /// # Errors
    /// As [`Filter::parse`], and for a word without `=`.
    pub fn parse_words<'p>(
        words: impl IntoIterator<Item = &'p str>,
        now: DateTime<Utc>,
    ) -> Result<Self, FilterError> {
        let pairs: Result<Vec<_>, _> = words.into_iter().map(read::pair).collect();
        Self::parse(pairs?, now)
    }

    /// The conditions; none comes twice.
    pub fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    /// The filter as pairs again, times as instants: what is kept about a replay, so that one taken over later means the same.
    pub fn pairs(&self) -> Vec<(&'static str, String)> {
        self.conditions
            .iter()
            .flat_map(|condition| {
                condition
                    .values()
                    .into_iter()
                    .map(|value| (condition.key(), value))
            })
            .collect()
    }

    /// The filter without what it says of states.
    pub fn in_any_state(&self) -> Self {
        let is_other = |condition: &&Condition| !matches!(condition, Condition::State(_));
        Self {
            conditions: self.conditions.iter().filter(is_other).cloned().collect(),
        }
    }

    /// Whether `row` is meant.
    pub fn matches(&self, row: &Row<'_>) -> bool {
        self.conditions.iter().all(|condition| condition.holds(row))
    }
}

impl Condition {
    /// Its key in a filter's text.
    pub const fn key(&self) -> &'static str {
        match self {
            Self::Type(_) => "type",
            Self::Queue(_) => "queue",
            Self::Reason(_) => "reason",
            Self::Fingerprint(_) => "fingerprint",
            Self::Since(_) => "since",
            Self::Until(_) => "until",
            Self::Text(_) => "text",
            Self::State(_) => "state",
            Self::Id(_) => "id",
            Self::TaskId(_) => "task-id",
        }
    }

    fn holds(&self, row: &Row<'_>) -> bool {
        match self {
            Self::Type(types) => types.iter().any(|is| match (is, row.task_type) {
                (TypeIs::Like(pattern), Some(task_type)) => pattern.matches(task_type),
                (TypeIs::Absent, None) => true,
                _ => false,
            }),
            Self::Queue(queues) => queues.iter().any(|pattern| pattern.matches(row.queue)),
            Self::Reason(reasons) => reasons.contains(&row.reason),
            Self::Fingerprint(prints) => prints
                .iter()
                .any(|is| (is.first..=is.last).contains(&row.fingerprint)),
            Self::Since(time) => row.died_at >= *time,
            Self::Until(time) => row.died_at < *time,
            Self::Text(texts) => texts.iter().any(|text| row.error.contains(text.as_str())),
            Self::State(states) => states.contains(&row.state),
            Self::Id(ids) => ids.contains(&row.id),
            Self::TaskId(ids) => ids.iter().any(|id| row.task_id == Some(id.as_str())),
        }
    }

    fn values(&self) -> Vec<String> {
        fn all<T: ToString>(values: &[T]) -> Vec<String> {
            values.iter().map(ToString::to_string).collect()
        }
        match self {
            Self::Type(types) => types
                .iter()
                .map(|is| match is {
                    TypeIs::Like(pattern) => pattern.to_string(),
                    TypeIs::Absent => read::ABSENT.to_owned(),
                })
                .collect(),
            Self::Queue(queues) => all(queues),
            Self::Reason(reasons) => all(reasons),
            Self::Fingerprint(prints) => prints.iter().map(FingerprintIs::digits).collect(),
            Self::Since(time) | Self::Until(time) => vec![time.to_rfc3339_opts(SecondsFormat::AutoSi, true)],
            Self::Text(texts) => texts.clone(),
            Self::State(states) => states.iter().map(|state| state.as_str().to_owned()).collect(),
            Self::Id(ids) => all(ids),
            Self::TaskId(ids) => all(ids),
        }
    }
}

impl FingerprintIs {
    /// Fewest digits: with fewer a group would be met by chance.
    pub const MIN_DIGITS: usize = 8;

    /// `text` as the beginning of a fingerprint, 8 to 32 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let fits = (Self::MIN_DIGITS..=32).contains(&text.len()) && text.is_ascii();
        let text = Some(text).filter(|_| fits)?;
        Some(Self {
            first: Fingerprint::parse(&format!("{text:0<32}"))?,
            last: Fingerprint::parse(&format!("{text:f<32}"))?,
        })
    }

    fn digits(&self) -> String {
        let (first, last) = (self.first.to_string(), self.last.to_string());
        let same = first
            .bytes()
            .zip(last.bytes())
            .take_while(|(a, b)| a == b)
            .count();
        first
            .get(..same.max(Self::MIN_DIGITS))
            .unwrap_or_default()
            .to_owned()
    }
}
