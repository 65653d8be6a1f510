//! `tidegate dlq groups`: dead letters by what they have in common.
//!
//! May import: `core`, `store`, `services`.

use serde::Serialize;
use tidegate_core::fingerprint::normalise;

use super::{
    Failure, Output,
    meant::{Flags, Meant},
    now, services, shown, usage,
};
use crate::{
    cli::output::table,
    config::Config,
    store::{
        Store,
        dead_letters::groups::{Group, GroupFilter, MAX_GROUPS},
    },
};

pub(super) const HELP: &str = "\
Dead letters of one type, reason, error kind and message, whatever numbers and ids the
message holds, are one group. Those with most open dead letters come first.

Which ones: type=, queue=, reason=, fingerprint= as for `dlq list`, and since=, which
counts from the beginning of that day (UTC).

Examples:
  tidegate dlq groups
  tidegate dlq groups type=order.# since=7d --json
  tidegate dlq list state=open fingerprint=5f1c07aa20b4   # the dead letters of one group";

/// Digits of a fingerprint in the table; `--json` has all of them.
const DIGITS: usize = 12;

/// Which groups, and how many.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Groups {
    #[command(flatten)]
    meant: Meant,
    #[command(flatten)]
    flags: Flags,
    /// How many
    #[arg(long, value_name = "COUNT", default_value_t = 50, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_GROUPS)))]
    limit: u32,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    fingerprint: String,
    task_type: Option<String>,
    reason: String,
    error_kind: String,
    /// The sample's error without what differs each time.
    message: Option<String>,
    queue: String,
    queues: i64,
    total: i64,
    open: i64,
    replaying: i64,
    replayed: i64,
    discarded: i64,
    /// Of the dead letters of its type on the same days, 0 to 1.
    share_of_type: f64,
    first_died_at: String,
    last_died_at: String,
    sample_id: String,
    sample_error: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    groups: Vec<Line>,
    /// How many groups there are.
    total: i64,
    /// Open dead letters of all of them.
    open: i64,
}

impl From<Group> for Line {
    fn from(group: Group) -> Self {
        let total = group.counts.total();
        Self {
            fingerprint: group.fingerprint.to_string(),
            task_type: group.task_type,
            reason: group.reason,
            error_kind: group.error_kind,
            message: group.sample_error.as_deref().map(normalise),
            queue: group.queue,
            queues: group.queues,
            total,
            open: group.counts.open,
            replaying: group.counts.replaying,
            replayed: group.counts.replayed,
            discarded: group.counts.discarded,
            // Both are far below what a double holds exactly.
            share_of_type: total as f64 / group.of_type.max(1) as f64,
            first_died_at: shown(group.first_died_at),
            last_died_at: shown(group.last_died_at),
            sample_id: group.sample.to_string(),
            sample_error: group.sample_error,
        }
    }
}

const HEAD: [&str; 10] = [
    "FINGERPRINT",
    "OPEN",
    "TOTAL",
    "OF TYPE",
    "TASK TYPE",
    "REASON",
    "FIRST",
    "LAST",
    "SAMPLE",
    "MESSAGE",
];

fn cells(line: Line) -> Vec<String> {
    vec![
        line.fingerprint.chars().take(DIGITS).collect(),
        line.open.to_string(),
        line.total.to_string(),
        format!("{:.0}%", line.share_of_type * 100.0),
        line.task_type.unwrap_or_else(|| "-".to_owned()),
        line.reason,
        line.first_died_at,
        line.last_died_at,
        line.sample_id,
        line.message.unwrap_or_else(|| "-".to_owned()),
    ]
}

impl Groups {
    pub(super) async fn run(self, store: &Store, config: &Config, output: Output) -> Result<(), Failure> {
        let filter = self.meant.filter_with(&self.flags, now(store, config).await?)?;
        let wanted = GroupFilter::new(&filter).map_err(|key| {
            usage(
                format!("groups can't be asked for by {key}"),
                "which groups",
                "use type, queue, reason, fingerprint and since; `tidegate dlq list` knows all conditions",
            )
        })?;
        let found = store.dead_letters().groups(&wanted, self.limit).await;
        let found = found.map_err(|error| services::of_store(&error, config))?;
        let lines: Vec<Line> = found.groups.into_iter().map(Line::from).collect();
        if output.json {
            return output.json_line(&Shown {
                groups: lines,
                total: found.total,
                open: found.open,
            });
        }
        let listed = i64::try_from(lines.len()).unwrap_or(i64::MAX);
        output.data(&table(&HEAD, lines.into_iter().map(cells).collect()))?;
        if found.total > listed {
            output.message(&format!(
                "note: {} more groups; --limit shows them",
                found.total - listed
            ));
        }
        Ok(())
    }
}
