//! `tidegate dlq audit`: who did what, when and why.
//!
//! May import: `core`, `store`, `deadletter::body`, `services`.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Serialize;
use tidegate_core::dead_letter_filter::{Condition, Filter};
use uuid::Uuid;

use super::{Failure, Output, meant, now, services, shown, usage};
use crate::{
    cli::output::table,
    config::Config,
    deadletter::body,
    store::{
        Store,
        audit::{MAX_PAGE, Record, Wanted, what},
    },
};

pub(super) const HELP: &str = "\
Examples:
  tidegate dlq audit --what discard --since 7d
  tidegate dlq audit --subject 0196a5e0-7f20-7f1b-ae7d-00000000000f --full";

/// Which rows, and how many.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Audit {
    /// Done by them
    #[arg(long, value_name = "NAME")]
    who: Option<String>,
    /// What was done: replay, edit, discard or stop; may be given many times
    #[arg(long, value_name = "DEED")]
    what: Vec<String>,
    /// Done to exactly this: the id of a dead letter, or a filter as it is shown
    #[arg(long, value_name = "SUBJECT")]
    subject: Option<String>,
    /// Of this run of replays
    #[arg(long, value_name = "ID")]
    run: Option<Uuid>,
    /// Then or later: an age such as 2h, or an RFC 3339 instant
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Before that
    #[arg(long, value_name = "WHEN")]
    until: Option<String>,
    /// With what stood there before and after
    #[arg(long)]
    full: bool,
    /// How many
    #[arg(long, value_name = "COUNT", default_value_t = 50, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_PAGE)))]
    limit: u32,
    /// Go on where a page ended: the number that it named
    #[arg(long, value_name = "NUMBER")]
    after: Option<i64>,
}

/// A row as it is shown.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    id: i64,
    at: String,
    who: String,
    what: String,
    subject: String,
    why: String,
    replay_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<Bytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<Bytes>,
}

/// Bytes in JSON.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
enum Bytes {
    Text(String),
    Base64(String),
}

impl Bytes {
    fn new(bytes: Vec<u8>) -> Self {
        String::from_utf8(bytes).map_or_else(|why| Self::Base64(STANDARD.encode(why.as_bytes())), Self::Text)
    }
}

impl From<Record> for Row {
    fn from(record: Record) -> Self {
        Self {
            id: record.id,
            at: shown(record.at),
            who: record.who,
            what: record.what,
            subject: record.subject,
            why: record.why,
            replay_id: record.replay_id.map(|id| id.to_string()),
            before: record.before.map(Bytes::new),
            after: record.after.map(Bytes::new),
        }
    }
}

#[derive(Debug, Serialize)]
struct Shown {
    audit: Vec<Row>,
    next: Option<String>,
}

/// `rows` as a table.
pub(super) fn text(rows: Vec<Row>) -> String {
    let cells = |row: Row| {
        vec![
            row.id.to_string(),
            row.at,
            row.who,
            row.what,
            row.subject,
            row.why,
        ]
    };
    table(
        &["NUMBER", "AT", "WHO", "WHAT", "SUBJECT", "WHY"],
        rows.into_iter().map(cells).collect(),
    )
}

impl Audit {
    pub(super) async fn run(self, store: &Store, config: &Config, output: Output) -> Result<(), Failure> {
        let wanted = self.wanted(store, config).await?;
        let found = store.audit().list(&wanted, self.after, self.limit).await;
        let found = found.map_err(|error| services::of_store(&error, config))?;
        // A full page may be the last one; the next is then empty.
        let is_full = u32::try_from(found.len()).is_ok_and(|rows| rows >= self.limit);
        let next = found.last().filter(|_| is_full).map(|row| row.id.to_string());
        if output.json {
            return output.json_line(&Shown {
                audit: found.into_iter().map(Row::from).collect(),
                next,
            });
        }
        if self.full {
            for record in found {
                output.data(&in_full(record))?;
            }
        } else {
            output.data(&text(found.into_iter().map(Row::from).collect()))?;
        }
        meant::more(output, next.as_deref());
        Ok(())
    }

    async fn wanted(&self, store: &Store, config: &Config) -> Result<Wanted, Failure> {
        let times = [("since", &self.since), ("until", &self.until)]
            .into_iter()
            .filter_map(|(key, value)| Some((key, value.as_deref()?)));
        let times = Filter::parse(times, now(store, config).await?).map_err(|why| {
            usage(
                why,
                "--since, --until",
                "write an age such as 2h, or an RFC 3339 instant",
            )
        })?;
        let mut wanted = Wanted {
            who: self.who.clone(),
            what: self.what.iter().map(|word| deed(word)).collect(),
            subject: self.subject.clone(),
            replay_id: self.run,
            full: self.full,
            ..Wanted::default()
        };
        for condition in times.conditions() {
            match condition {
                Condition::Since(time) => wanted.since = Some(*time),
                Condition::Until(time) => wanted.until = Some(*time),
                _ => {}
            }
        }
        Ok(wanted)
    }
}

/// The deed that `word` names, in full or by its last word.
fn deed(word: &str) -> String {
    [what::REPLAY, what::EDIT, what::DISCARD, what::STOP]
        .into_iter()
        .find(|deed| deed.rsplit('.').next() == Some(word))
        .unwrap_or(word)
        .to_owned()
}

/// One row with what stood there before and after.
fn in_full(record: Record) -> String {
    let (before, after) = (record.before.clone(), record.after.clone());
    let mut full = text(vec![Row::from(record)]);
    for (name, bytes) in [("BEFORE", before), ("AFTER", after)] {
        if let Some(bytes) = bytes {
            full.push_str(&format!("{name}\n{}\n", body::shown(&bytes, None).text));
        }
    }
    full.push('\n');
    full
}
