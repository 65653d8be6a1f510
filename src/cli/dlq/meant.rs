//! Which dead letters are meant: ids and `key=value` words, and where a command has them flags, read as one filter.
//!
//! May import: `core`. Flags are for commands that only look: those that change something take `--reason` for why.

use chrono::{DateTime, Utc};
use tidegate_core::dead_letter_filter::Filter;

use super::{Failure, Output, usage};

/// What the words of a filter are.
pub(in crate::cli) const WORDS: &str = "\
Which ones: KEY=VALUE words. Values of one key are alternatives, and all keys must
hold. A word without `=` is an id.
  type=order.#          task type, as a topic pattern; `-` for none
  queue=order.*.queue   the queue that failed, as a topic pattern
  reason=rejected       why it is dead
  fingerprint=5f1c07aa  its group, 8 digits or more
  since=2h until=1h     it died then or later, before that: an age, or an RFC 3339 instant
  text=declined         the error holds these characters
  state=open            open, replaying, replayed or discarded
  task-id=… id=…        these ones";

/// Words that say which dead letters are meant.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Meant {
    /// Ids and conditions such as `reason=rejected`
    #[arg(value_name = "ID|KEY=VALUE")]
    words: Vec<String>,
}

/// The same conditions as flags.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Flags {
    /// As type=TYPE; this and the others may be given many times, but for --since and --until
    #[arg(long, value_name = "TYPE", allow_hyphen_values = true)]
    r#type: Vec<String>,
    /// As queue=QUEUE
    #[arg(long, value_name = "QUEUE")]
    queue: Vec<String>,
    /// As reason=REASON
    #[arg(long, value_name = "REASON")]
    reason: Vec<String>,
    /// As fingerprint=DIGITS
    #[arg(long, value_name = "DIGITS")]
    fingerprint: Vec<String>,
    /// As since=WHEN
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// As until=WHEN
    #[arg(long, value_name = "WHEN")]
    until: Option<String>,
    /// As text=TEXT
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    text: Vec<String>,
    /// As state=STATE
    #[arg(long, value_name = "STATE")]
    state: Vec<String>,
    /// As task-id=ID
    #[arg(long, value_name = "ID")]
    task_id: Vec<String>,
}

impl Meant {
    /// The words as a filter; ages count back from `now`.
    pub(in crate::cli) fn filter(&self, now: DateTime<Utc>) -> Result<Filter, Failure> {
        read(self.pairs(), now)
    }

    /// Words and flags as one filter.
    pub(in crate::cli) fn filter_with(&self, flags: &Flags, now: DateTime<Utc>) -> Result<Filter, Failure> {
        read(self.pairs().chain(flags.pairs()), now)
    }

    /// The words, and others with them.
    pub(in crate::cli) fn filter_and<'w>(
        &'w self,
        words: impl Iterator<Item = &'w str>,
        pair: Option<(&'w str, &'w str)>,
        now: DateTime<Utc>,
    ) -> Result<Filter, Failure> {
        let words = words.map(|word| word.split_once('=').unwrap_or(("id", word)));
        read(self.pairs().chain(words).chain(pair), now)
    }

    fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.words
            .iter()
            .map(|word| word.split_once('=').unwrap_or(("id", word)))
    }
}

impl Flags {
    fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        [
            ("type", self.r#type.as_slice()),
            ("queue", &self.queue),
            ("reason", &self.reason),
            ("fingerprint", &self.fingerprint),
            ("since", self.since.as_slice()),
            ("until", self.until.as_slice()),
            ("text", &self.text),
            ("state", &self.state),
            ("task-id", &self.task_id),
        ]
        .into_iter()
        .flat_map(|(key, values)| values.iter().map(move |value| (key, value.as_str())))
    }
}

fn read<'p>(
    pairs: impl IntoIterator<Item = (&'p str, &'p str)>,
    now: DateTime<Utc>,
) -> Result<Filter, Failure> {
    Filter::parse(pairs, now).map_err(|why| {
        usage(
            why,
            "which dead letters",
            "correct the condition; --help names them all",
        )
    })
}

/// Says where a list goes on.
pub(super) fn more(output: Output, next: Option<&str>) {
    if let Some(next) = next {
        output.message(&format!("note: there are more; go on with --after {next}"));
    }
}
