//! `tidegate dlq discard`: dead letters that shall not run.
//!
//! May import: `store`, `deadletter::discard`, `services`.

use std::{
    io::IsTerminal,
    time::{Duration, Instant},
};

use serde_json::json;
use tidegate_core::dead_letter_filter::{Condition, Filter};

use super::{
    Exit, Failure, Output,
    by::By,
    list::{Line, text},
    meant::Meant,
    now, services, usage,
};
use crate::{
    config::Config,
    deadletter::discard::{discard, preview},
    store::{Store, StoreError},
};

pub(super) const HELP: &str = "\
Only open ones are discarded; what was replayed or discarded before, or is claimed by a
replay, stays as it is and is counted. There is no way back: what was discarded stays
in the archive with its body, who did it and why.

Examples:
  tidegate dlq discard 0196a5e0-7f20-7f1b-ae7d-00000000000f --reason 'order 17 was refunded'
  tidegate dlq discard type=order.close text=refunded --reason 'refunded' --dry-run

Conditions are those of `tidegate dlq list --help`. Exit code 4: an id is not in the
archive; 5: what an id stands for was not open.";

/// Samples of a dry run.
const SAMPLES: u32 = 5;

/// Between two messages about how far it is.
const TOLD_EVERY: Duration = Duration::from_secs(2);

/// Which ones, by whom and why.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Discard {
    #[command(flatten)]
    meant: Meant,
    /// Why; it is kept in the audit log
    #[arg(long, value_name = "TEXT")]
    reason: String,
    #[command(flatten)]
    by: By,
    /// Only say how many it would be, and show the newest
    #[arg(long)]
    dry_run: bool,
}

impl Discard {
    pub(super) async fn run(self, store: &Store, config: &Config, output: Output) -> Result<(), Failure> {
        let failed = |error: StoreError| services::of_store(&error, config);
        let reason = self.by.reason(&self.reason)?;
        let filter = self.meant.filter(now(store, config).await?)?;
        if filter.conditions().is_empty() {
            return Err(usage(
                "nothing says which dead letters are meant",
                "dlq discard",
                "name ids or conditions; `state=open` is all that are open",
            ));
        }
        if self.dry_run {
            return would(store, &filter, config, output).await;
        }
        let (mut told, on_terminal) = (Instant::now(), std::io::stderr().is_terminal());
        let done = discard(store, &filter, &reason, |discarded| {
            if on_terminal && told.elapsed() > TOLD_EVERY {
                told = Instant::now();
                output.message(&format!("{discarded} discarded …"));
            }
        });
        let done = done.await.map_err(failed)?;
        if output.json {
            output.json_line(&json!({"discarded": done.discarded, "notOpen": done.not_open}))?;
        } else {
            output.data(&format!(
                "discarded {}; {} more that were meant were not open\n",
                done.discarded, done.not_open
            ))?;
        }
        all_there(&filter, done.discarded, done.not_open)
    }
}

/// What it would come to.
async fn would(store: &Store, filter: &Filter, config: &Config, output: Output) -> Result<(), Failure> {
    let failed = |error: StoreError| services::of_store(&error, config);
    let counts = preview(store, filter).await.map_err(failed)?;
    let page = store
        .dead_letters()
        .list(filter, None, SAMPLES)
        .await
        .map_err(failed)?;
    let samples: Vec<Line> = page.letters.into_iter().map(Line::from).collect();
    let not_open = counts.total() - counts.open;
    if output.json {
        return output.json_line(&json!({
            "dryRun": true, "discarded": counts.open, "notOpen": not_open, "samples": samples,
        }));
    }
    output.data(&format!(
        "would discard {}; {not_open} more that are meant are not open\n",
        counts.open
    ))?;
    output.data(&text(samples))
}

/// Where ids were named, each must have been there and open.
fn all_there(filter: &Filter, discarded: u64, not_open: u64) -> Result<(), Failure> {
    let [Condition::Id(ids)] = filter.conditions() else {
        return Ok(());
    };
    let missing = (ids.len() as u64).saturating_sub(discarded + not_open);
    if missing > 0 {
        return Err(Failure::new(
            Exit::NotFound,
            format!("{missing} of the ids are not in the archive"),
            "tidegate.dead_letters",
            "check the ids; what was kept long enough is removed",
        ));
    }
    if not_open > 0 {
        return Err(Failure::new(
            Exit::Conflict,
            format!("{not_open} of the dead letters were not open"),
            "tidegate.dead_letters",
            "look at them with `tidegate dlq show`: they were replayed or discarded before",
        ));
    }
    Ok(())
}
