//! `tidegate task cancel`, `promote` and `move`: each a call of the ledger per task, whose answer is shown.
//!
//! May import: `core`, `store`, `services`. Of several tasks each is asked for on its own. One that somebody else holds is
//! told as busy and holds up no other; a failure of the database in between leaves those shown before changed, and the
//! others as they were.

use std::fmt;

use serde::Serialize;
use tidegate_core::{
    envelope::Limits,
    lifecycle::{CancelOutcome, MoveOutcome},
};

use super::{When, unknown, view::shown};
use crate::{
    cli::{
        failure::{Detail, Exit, Failure},
        output::{Output, table},
        services,
    },
    config::Config,
    store::{Store, StoreError},
};

/// What the answers of `cancel` mean.
pub(super) const CANCEL_HELP: &str = "\
Answers:
  canceled            it had not been handed over: it will never run, anywhere
  canceled_in_flight  the broker has it, or may have it: a worker with the ledger
                      will not start it, others may
  cancel_requested    it runs: its handler is told, and decides
  already_canceled    nothing was changed
  already_ended       it had succeeded or failed (exit code 5)
  not_found           no such task (exit code 4)
  busy                somebody else had it in hand: nothing was changed, try again
                      (exit code 5)";

/// An answer.
trait Answer: Copy + fmt::Display {
    /// How the command ends for it, if not well.
    fn exit(self) -> Option<Exit>;

    /// What it means, for people.
    fn meaning(self) -> &'static str;
}

impl Answer for CancelOutcome {
    fn exit(self) -> Option<Exit> {
        match self {
            // Whoever asks again has what was asked for.
            Self::Canceled | Self::CanceledInFlight | Self::CancelRequested | Self::AlreadyCanceled => None,
            Self::AlreadyEnded => Some(Exit::Conflict),
            Self::NotFound => Some(Exit::NotFound),
        }
    }

    fn meaning(self) -> &'static str {
        match self {
            Self::Canceled => "will never run",
            Self::CanceledInFlight => "the broker may have it; a worker with the ledger will not start it",
            Self::CancelRequested => "it runs; its handler decides",
            Self::AlreadyCanceled => "was canceled before",
            Self::AlreadyEnded => "has ended",
            Self::NotFound => "no such task",
        }
    }
}

impl Answer for MoveOutcome {
    fn exit(self) -> Option<Exit> {
        match self {
            Self::Promoted | Self::Rescheduled => None,
            Self::AlreadyPublished | Self::AlreadyCanceled | Self::AlreadyEnded => Some(Exit::Conflict),
            Self::NotFound => Some(Exit::NotFound),
        }
    }

    fn meaning(self) -> &'static str {
        match self {
            Self::Promoted => "is due now",
            Self::Rescheduled => "is due then",
            Self::AlreadyPublished => "the broker has it, or may have it",
            Self::AlreadyCanceled => "was canceled",
            Self::AlreadyEnded => "has ended",
            Self::NotFound => "no such task",
        }
    }
}

/// An answer, or none as yet.
#[derive(Clone, Copy)]
enum Asked<A> {
    Answered(A),
    /// A relay has the task in hand, or another client.
    Busy,
}

impl<A: Answer> fmt::Display for Asked<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered(answer) => answer.fmt(f),
            Self::Busy => f.write_str("busy"),
        }
    }
}

impl<A: Answer> Answer for Asked<A> {
    fn exit(self) -> Option<Exit> {
        match self {
            Self::Answered(answer) => answer.exit(),
            Self::Busy => Some(Exit::Conflict),
        }
    }

    fn meaning(self) -> &'static str {
        match self {
            Self::Answered(answer) => answer.meaning(),
            Self::Busy => "nothing changed, try again",
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    task_id: String,
    outcome: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    due_at: Option<String>,
}

/// Cancels `ids`.
pub(super) async fn cancel(
    store: &Store,
    ids: &[String],
    config: &Config,
    output: Output,
) -> Result<(), Failure> {
    each(
        ids,
        async |id| store.tasks().cancel(id).await,
        None,
        config,
        output,
    )
    .await
}

/// Makes `ids` due now.
pub(super) async fn promote(
    store: &Store,
    ids: &[String],
    config: &Config,
    output: Output,
) -> Result<(), Failure> {
    each(
        ids,
        async |id| store.tasks().promote(id).await,
        None,
        config,
        output,
    )
    .await
}

/// Moves `id` to another time, by the database's clock.
pub(super) async fn reschedule(
    store: &Store,
    id: &str,
    when: &When,
    config: &Config,
    output: Output,
) -> Result<(), Failure> {
    let now = store.tasks().now().await;
    let now = now.map_err(|error| services::of_store(&error, config))?;
    let limit = Limits::standard().max_schedule_ahead;
    let due = match (when.to, when.r#in) {
        (Some(to), _) => to,
        (None, delay) => now + delay.unwrap_or_default().min(limit * 2),
    };
    if (due - now).to_std().is_ok_and(|ahead| ahead > limit) {
        return Err(Failure::new(
            Exit::Usage,
            format!("{} is more than 90 days ahead", shown(due)),
            "--to or --in",
            "give an earlier time; nothing was changed",
        ));
    }
    let call = async |id: &str| store.tasks().reschedule(id, due).await;
    each(&[id.to_owned()], call, Some(shown(due)), config, output).await
}

/// Asks for each of `ids` and shows the answers; ends as the worst of them says.
async fn each<A: Answer>(
    ids: &[String],
    call: impl AsyncFn(&str) -> Result<A, StoreError>,
    due: Option<String>,
    config: &Config,
    output: Output,
) -> Result<(), Failure> {
    let mut answers = Vec::with_capacity(ids.len());
    let mut broken = None;
    for id in ids {
        match call(id).await {
            Ok(answer) => answers.push((id.as_str(), Asked::Answered(answer))),
            Err(StoreError::Busy(_)) => answers.push((id.as_str(), Asked::Busy)),
            Err(error) => {
                broken = Some(services::of_store(&error, config));
                break;
            }
        }
    }
    show(&answers, due, output)?;
    match broken {
        Some(failure) => Err(failure),
        None => verdict(&answers),
    }
}

fn show<A: Answer>(answers: &[(&str, A)], due: Option<String>, output: Output) -> Result<(), Failure> {
    if output.json {
        let lines: Vec<Line> = answers
            .iter()
            .map(|(id, answer)| Line {
                task_id: (*id).to_owned(),
                outcome: answer.to_string(),
                due_at: due.clone().filter(|_| answer.exit().is_none()),
            })
            .collect();
        return output.json_line(&lines);
    }
    let rows = answers
        .iter()
        .map(|(id, answer)| vec![(*id).to_owned(), answer.to_string(), answer.meaning().to_owned()])
        .collect();
    output.data(&table(&["TASK ID", "ANSWER", "MEANING"], rows))
}

fn verdict<A: Answer>(answers: &[(&str, Asked<A>)]) -> Result<(), Failure> {
    let of = |exit: Exit| {
        answers
            .iter()
            .filter(move |(_, answer)| answer.exit() == Some(exit))
    };
    let refused: Vec<Detail> = of(Exit::Conflict)
        .map(|(id, answer)| Detail {
            text: match answer {
                Asked::Busy => format!("{id}: busy: {}", answer.meaning()),
                Asked::Answered(_) => format!("{id}: {}", answer.meaning()),
            },
            data: serde_json::json!({"taskId": id, "outcome": answer.to_string()}),
        })
        .collect();
    if !refused.is_empty() {
        let busy = answers
            .iter()
            .filter(|(_, answer)| matches!(answer, Asked::Busy))
            .count();
        let (what, next) = if busy == refused.len() {
            ("are busy", "try again with these ids")
        } else if busy == 0 {
            (
                "can't be changed any more",
                "`tidegate task get` tells where a task is",
            )
        } else {
            (
                "are busy or can't be changed any more",
                "try again with the busy ones; `tidegate task get` tells where a task is",
            )
        };
        let what = format!("{} of {} tasks {what}", refused.len(), answers.len());
        return Err(Failure::new(Exit::Conflict, what, "tidegate.tasks", next).with_details(refused));
    }
    let missing: Vec<&str> = of(Exit::NotFound).map(|(id, _)| *id).collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(unknown(&missing))
    }
}
