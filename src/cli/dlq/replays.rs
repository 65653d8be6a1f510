//! `tidegate dlq replays`: runs, and stopping one.
//!
//! May import: `store`, `services`.

use serde::Serialize;
use uuid::Uuid;

use super::{Exit, Failure, Output, by::By, services, shown};
use crate::{
    cli::output::{fields, table},
    config::Config,
    store::{
        Store,
        dead_letters::runs::{MAX_RUNS, RunRow, RunState, StopAsked},
    },
};

/// Commands of `dlq replays`.
#[derive(Debug, clap::Subcommand)]
pub(in crate::cli) enum Replays {
    /// Runs, latest first
    List {
        /// Only those under way
        #[arg(long)]
        running: bool,
        /// How many
        #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_RUNS)))]
        limit: u32,
    },
    /// One run: what was asked for, how far it is, who is at it
    Show {
        /// Its id
        run: Uuid,
    },
    /// End a run: what is in flight is confirmed first, all others are open as before
    Stop {
        /// Its id
        run: Uuid,
        /// Why; kept in the audit log
        #[arg(long, value_name = "TEXT")]
        reason: String,
        #[command(flatten)]
        by: By,
    },
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct View {
    run: String,
    began_at: String,
    asked_by: String,
    why: String,
    state: &'static str,
    is_worked_on: bool,
    planned: u64,
    sent: u64,
    refused: u64,
    lost: u64,
    unsettled: u64,
    ended_at: Option<String>,
    outcome: Option<String>,
    owner: String,
    stop_asked: bool,
    filter: String,
    edit: String,
    options: String,
}

impl View {
    fn of(row: RunRow) -> Self {
        Self {
            run: row.id.to_string(),
            began_at: shown(row.began_at),
            asked_by: row.asked_by,
            why: row.why,
            state: row.state.as_str(),
            is_worked_on: row.state == RunState::Running && !row.lease_left.is_zero(),
            planned: row.planned,
            sent: row.sent,
            refused: row.refused,
            lost: row.lost,
            unsettled: row.unsettled,
            ended_at: row.ended_at.map(shown),
            outcome: row.outcome,
            owner: row.owner,
            stop_asked: row.stop_asked,
            filter: row.filter,
            edit: row.edit,
            options: row.options,
        }
    }

    fn cells(&self) -> Vec<String> {
        vec![
            self.run.clone(),
            self.began_at.clone(),
            self.state.to_lowercase(),
            format!("{} of {}", self.sent, self.planned),
            self.refused.to_string(),
            self.lost.to_string(),
            self.asked_by.clone(),
            self.why.clone(),
        ]
    }

    fn fields(&self) -> Vec<Vec<String>> {
        let optional = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let at_it = match self.state {
            "RUNNING" if self.is_worked_on => self.owner.clone(),
            "RUNNING" => format!("nobody; last {}", self.owner),
            _ => "-".to_owned(),
        };
        [
            ("run", self.run.clone()),
            ("began", self.began_at.clone()),
            ("asked by", self.asked_by.clone()),
            ("why", self.why.clone()),
            ("state", self.state.to_lowercase()),
            ("planned", self.planned.to_string()),
            ("sent", self.sent.to_string()),
            ("refused", self.refused.to_string()),
            ("lost to others", self.lost.to_string()),
            ("claimed, unconfirmed", self.unsettled.to_string()),
            ("ended", optional(&self.ended_at)),
            ("outcome", optional(&self.outcome)),
            ("worked on by", at_it),
            ("stop asked", self.stop_asked.to_string()),
            ("filter", self.filter.clone()),
            ("edit", self.edit.clone()),
            ("options", self.options.clone()),
        ]
        .into_iter()
        .map(|(name, value)| vec![name.to_owned(), value])
        .collect()
    }
}

impl Replays {
    pub(super) async fn run(self, store: &Store, config: &Config, output: Output) -> Result<(), Failure> {
        let failed = |error| services::of_store(&error, config);
        match self {
            Self::List { running, limit } => {
                let runs = store.dead_letters().runs(running, limit).await.map_err(failed)?;
                let views: Vec<View> = runs.into_iter().map(View::of).collect();
                if output.json {
                    return output.json_line(&views);
                }
                let head = [
                    "RUN", "BEGAN", "STATE", "SENT", "REFUSED", "LOST", "ASKED BY", "WHY",
                ];
                output.data(&table(&head, views.iter().map(View::cells).collect()))
            }
            Self::Show { run } => {
                let row = store.dead_letters().run(run).await.map_err(failed)?;
                let view = View::of(row.ok_or_else(|| unknown(run))?);
                if output.json {
                    return output.json_line(&view);
                }
                output.data(&fields(view.fields()))
            }
            Self::Stop { run, reason, by } => {
                let reason = by.reason(&reason)?;
                let asked = store
                    .dead_letters()
                    .stop_run(run, reason.who(), reason.why())
                    .await;
                match asked.map_err(failed)? {
                    StopAsked::Asked => output.message("asked; it ends within seconds"),
                    StopAsked::Stopped => {
                        output.message("stopped; nobody worked on it, and what it had claimed is open again");
                    }
                    StopAsked::Ended(row) => {
                        return Err(Failure::new(
                            Exit::Conflict,
                            format!("the run has ended: {}", row.state.as_str()),
                            format!("run {run}"),
                            "nothing is to be stopped",
                        ));
                    }
                    StopAsked::Unknown => return Err(unknown(run)),
                }
                Ok(())
            }
        }
    }
}

pub(super) fn unknown(run: Uuid) -> Failure {
    Failure::new(
        Exit::NotFound,
        "there is no such run",
        format!("run {run}"),
        "`tidegate dlq replays list` names them",
    )
}
