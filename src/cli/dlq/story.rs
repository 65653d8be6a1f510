//! A dead letter's story as text and as JSON.
//!
//! May import: `deadletter`, `store`, `output`. Pure.

use serde::Serialize;
use serde_json::value::RawValue;

use super::{
    Exit, Failure,
    audit::Row,
    list::{self, Line},
    shown,
};
use crate::{
    cli::output::{escaped, fields, table},
    deadletter::{export::write_line, look::Story},
    store::dead_letters::one::RunNote,
};

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Told {
    /// As the export has it.
    dead_letter: Box<RawValue>,
    body_shown: BodyShown,
    headers: Vec<Header>,
    deaths: Vec<Line>,
    runs: Vec<Run>,
    audit: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct BodyShown {
    kind: &'static str,
    unpacked: bool,
    bytes: usize,
    text: String,
}

#[derive(Debug, Serialize)]
struct Header {
    name: String,
    value: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Run {
    id: String,
    who: String,
    why: String,
    began_at: String,
}

impl From<RunNote> for Run {
    fn from(run: RunNote) -> Self {
        Self {
            id: run.id.to_string(),
            who: run.asked_by,
            why: run.why,
            began_at: shown(run.began_at),
        }
    }
}

/// `story` for programs.
pub(super) fn json(story: Story) -> Result<Told, Failure> {
    let bug =
        |why: &dyn std::fmt::Display| Failure::new(Exit::Failed, why, "JSON output", "report this as a bug");
    let mut line = Vec::new();
    write_line(&story.letter, &mut line).map_err(|why| bug(&why))?;
    let dead_letter = serde_json::from_slice(&line).map_err(|why| bug(&why))?;
    let header = |(name, value)| Header { name, value };
    Ok(Told {
        dead_letter,
        body_shown: BodyShown {
            kind: story.body.kind.as_str(),
            unpacked: story.body.unpacked,
            bytes: story.body.bytes,
            text: story.body.text,
        },
        headers: story.headers.into_iter().map(header).collect(),
        deaths: story.deaths.into_iter().map(Line::from).collect(),
        runs: story.runs.into_iter().map(Run::from).collect(),
        audit: story.audit.into_iter().map(Row::from).collect(),
    })
}

/// `story` for people.
pub(super) fn text(story: Story) -> String {
    let mut text = fields(facts(&story));
    let packed = if story.body.unpacked { ", unpacked" } else { "" };
    text.push_str(&format!(
        "\nBODY ({}{packed}, {} bytes)\n{}\n",
        story.body.kind.as_str(),
        story.body.bytes,
        story.body.text
    ));
    if !story.headers.is_empty() {
        text.push_str("\nPROPERTIES AND HEADERS\n");
        for (name, value) in &story.headers {
            text.push_str(&format!("{}: {}\n", escaped(name), escaped(value)));
        }
    }
    if story.deaths.len() > 1 {
        text.push_str("\nDEATHS OF THIS TASK\n");
        text.push_str(&list::text(story.deaths.into_iter().map(Line::from).collect()));
    }
    if !story.runs.is_empty() {
        let row = |run: Run| vec![run.id, run.who, run.began_at, run.why];
        text.push_str("\nREPLAYS\n");
        text.push_str(&table(
            &["RUN", "WHO", "BEGAN", "WHY"],
            story.runs.into_iter().map(Run::from).map(row).collect(),
        ));
    }
    if !story.audit.is_empty() {
        text.push_str("\nWHAT WAS DONE\n");
        text.push_str(&super::audit::text(
            story.audit.into_iter().map(Row::from).collect(),
        ));
    }
    text
}

fn facts(story: &Story) -> Vec<Vec<String>> {
    let (letter, listed) = (&story.letter, &story.letter.listed);
    let some = |name: &str, value: Option<String>| value.map(|value| vec![name.to_owned(), value]);
    let times = |n: i32, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let state = match letter.replayed_at {
        Some(at) => format!("{} at {}", listed.state.as_str().to_lowercase(), shown(at)),
        None => listed.state.as_str().to_lowercase(),
    };
    let attempts = match letter.first_failed_at {
        // Of one attempt they are the same failure, by two clocks.
        Some(first) if listed.attempts > 1 => format!(
            "{}: the first failed at {}, the last at {}",
            times(listed.attempts, "attempt"),
            shown(first),
            shown(listed.died_at)
        ),
        _ => times(listed.attempts, "attempt"),
    };
    let deaths = (listed.deaths > 1).then(|| format!("death {} of this task", listed.deaths));
    [
        some("id", Some(listed.id.to_string())),
        some("state", Some(state)),
        some("task type", listed.task_type.clone()),
        some("task id", listed.task_id.clone()),
        some("queue", Some(listed.queue.clone())),
        some("routing key", letter.routing_key.clone()),
        some("reason", Some(listed.reason.clone())),
        some("error kind", Some(listed.error_kind.clone())),
        some("error", Some(listed.error.clone())),
        some("attempts", Some(attempts)),
        some("history", deaths),
        some("died", Some(shown(listed.died_at))),
        some("archived", Some(shown(listed.archived_at))),
        some("fingerprint", Some(listed.fingerprint.to_string())),
        some("replay of", letter.parent.map(|id| id.to_string())),
        some("sent by run", letter.sent_by.map(|id| id.to_string())),
        some("replayed by run", listed.replay_id.map(|id| id.to_string())),
        some("sent as task id", letter.sent_task_id.clone()),
        some("edit refused in run", letter.refused_by.map(|id| id.to_string())),
        some(
            "discarded in",
            letter.discarded_in.map(|id| format!("audit row {id}")),
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}
