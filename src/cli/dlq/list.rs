//! `tidegate dlq list`: pages of dead letters.
//!
//! May import: `store`, `services`.

use serde::Serialize;

use super::{
    Failure, Output,
    meant::{self, Flags, Meant},
    now, services, shown,
};
use crate::{
    cli::output::table,
    config::Config,
    store::{
        Store,
        dead_letters::{
            Listed,
            look::{Cursor, MAX_PAGE},
        },
    },
};

pub(super) const HELP: &str = meant::WORDS;

/// Which ones, and how many.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct List {
    #[command(flatten)]
    meant: Meant,
    #[command(flatten)]
    flags: Flags,
    /// How many
    #[arg(long, value_name = "COUNT", default_value_t = 50, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_PAGE)))]
    limit: u32,
    /// Go on where a page ended: the place that it named
    #[arg(long, value_name = "PLACE", value_parser = Cursor::parse)]
    after: Option<Cursor>,
}

/// A dead letter of a list.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Line {
    id: String,
    died_at: String,
    archived_at: String,
    task_id: Option<String>,
    task_type: Option<String>,
    queue: String,
    reason: String,
    error_kind: String,
    error: String,
    attempts: i32,
    deaths: i32,
    fingerprint: String,
    state: String,
    replay_id: Option<String>,
}

impl From<Listed> for Line {
    fn from(listed: Listed) -> Self {
        Self {
            id: listed.id.to_string(),
            died_at: shown(listed.died_at),
            archived_at: shown(listed.archived_at),
            task_id: listed.task_id,
            task_type: listed.task_type,
            queue: listed.queue,
            reason: listed.reason,
            error_kind: listed.error_kind,
            error: listed.error,
            attempts: listed.attempts,
            deaths: listed.deaths,
            fingerprint: listed.fingerprint.to_string(),
            state: listed.state.as_str().to_lowercase(),
            replay_id: listed.replay_id.map(|id| id.to_string()),
        }
    }
}

const HEAD: [&str; 8] = [
    "ID",
    "DIED",
    "TASK TYPE",
    "QUEUE",
    "REASON",
    "ATTEMPTS",
    "STATE",
    "ERROR",
];

/// `lines` as a table.
pub(super) fn text(lines: Vec<Line>) -> String {
    let cells = |line: Line| {
        vec![
            line.id,
            line.died_at,
            line.task_type.unwrap_or_else(|| "-".to_owned()),
            line.queue,
            line.reason,
            line.attempts.to_string(),
            line.state,
            line.error,
        ]
    };
    table(&HEAD, lines.into_iter().map(cells).collect())
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    dead_letters: Vec<Line>,
    next: Option<String>,
}

impl List {
    pub(super) async fn run(self, store: &Store, config: &Config, output: Output) -> Result<(), Failure> {
        let filter = self.meant.filter_with(&self.flags, now(store, config).await?)?;
        let page = store
            .dead_letters()
            .list(&filter, self.after.as_ref(), self.limit)
            .await;
        let page = page.map_err(|error| services::of_store(&error, config))?;
        let next = page.next.map(|cursor| cursor.to_string());
        let dead_letters: Vec<Line> = page.letters.into_iter().map(Line::from).collect();
        if output.json {
            return output.json_line(&Shown { dead_letters, next });
        }
        output.data(&text(dead_letters))?;
        meant::more(output, next.as_deref());
        Ok(())
    }
}
