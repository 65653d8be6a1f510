//! What a replay says while it runs, on stderr, and what it came to.
//!
//! May import: `core`, `deadletter::replay`, `store` (its rows).

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use chrono::SecondsFormat;
use serde_json::{Value, json};

use super::super::{Exit, Failure, Output};
use crate::{
    cli::{failure::Detail, output::escaped},
    deadletter::replay::told::{Event, Refusals, Report},
    store::dead_letters::{outcomes::Party, runs::RunState},
};

/// Between two messages about how far it is.
const TOLD_EVERY: Duration = Duration::from_secs(2);

/// Tells how far a run is, not too often.
pub(super) struct Teller {
    output: Output,
    last: Mutex<Instant>,
    said: Mutex<String>,
}

impl Teller {
    pub(super) fn new(output: Output) -> Self {
        Self {
            output,
            last: Mutex::new(Instant::now()),
            said: Mutex::default(),
        }
    }

    pub(super) fn tell(&self, event: &Event<'_>) {
        match event {
            Event::Progress(progress) => {
                if self.is_time() {
                    self.output.message(&format!(
                        "{} of {} sent, {} refused …",
                        progress.sent, progress.planned, progress.refused
                    ));
                }
            }
            // By reason at the end; a thousand lines of the same help nobody.
            Event::Refused { .. } => {}
            Event::Watching { until, outcomes } => {
                if self.is_time() {
                    let until = until.to_rfc3339_opts(SecondsFormat::Secs, true);
                    self.output.message(&format!(
                        "watching the canary until {until}: {} known to have succeeded, {} dead again …",
                        outcomes.succeeded, outcomes.died
                    ));
                }
            }
            Event::Trouble(why) => {
                let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
                if *said != *why || self.is_time() {
                    self.output
                        .message(&format!("can't go on for now, trying again: {}", escaped(why)));
                    (*why).clone_into(&mut said);
                }
            }
        }
    }

    fn is_time(&self) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_time = last.elapsed() > TOLD_EVERY;
        if is_time {
            *last = Instant::now();
        }
        is_time
    }
}

/// Who has had what was wanted.
pub(super) fn party(party: &Party) -> Detail {
    let text = match (&party.run, &party.asked_by, &party.began_at) {
        (Some(run), Some(who), Some(at)) => format!(
            "{} by run {run} of {}, begun {}",
            party.count,
            escaped(who),
            at.to_rfc3339_opts(SecondsFormat::Secs, true)
        ),
        _ if party.state == "DISCARDED" => {
            format!("{} discarded; `tidegate dlq audit` says by whom", party.count)
        }
        _ => format!("{} {}", party.count, party.state.to_lowercase()),
    };
    Detail {
        text,
        data: json!({"count": party.count, "state": party.state, "run": party.run.map(|run| run.to_string()), "askedBy": party.asked_by,
            "beganAt": party.began_at}),
    }
}

pub(super) fn refusals(refusals: &Refusals) -> Vec<Value> {
    refusals
        .by_count()
        .into_iter()
        .map(|(why, refused)| {
            let ids: Vec<String> = refused.ids.iter().map(ToString::to_string).collect();
            json!({"count": refused.count, "why": why, "first": ids})
        })
        .collect()
}

/// Shows how a run ended; not all that was wanted is a failure.
pub(super) fn show(report: &Report, output: Output) -> Result<(), Failure> {
    if output.json {
        output.json_line(&json!({
            "run": report.run.to_string(), "end": report.end.as_str(), "planned": report.planned, "sent": report.sent,
            "refused": report.refused, "lost": report.lost, "openAgain": report.released,
            "refusals": refusals(&report.refusals),
            "rivals": report.rivals.iter().map(|rival| party(rival).data).collect::<Vec<_>>(),
        }))?;
    } else {
        output.data(&format!(
            "run {}: {} of {} sent, {} refused\n",
            report.run, report.sent, report.planned, report.refused
        ))?;
    }
    if report.lost > 0 {
        output.message(&format!(
            "note: others had {} of those that were meant:",
            report.lost
        ));
        for rival in &report.rivals {
            output.message(&format!("  {}", party(rival).text));
        }
        let named: u64 = report.rivals.iter().map(|rival| rival.count.unsigned_abs()).sum();
        if let Some(others @ 1..) = report.lost.checked_sub(named) {
            output.message(&format!(
                "  {others} were discarded, or taken by hand; `tidegate dlq audit` says by whom"
            ));
        }
    }
    if report.released > 0 {
        output.message(&format!(
            "note: {} were claimed and have no confirm: they are open again, and may be out nevertheless",
            report.released
        ));
    }
    verdict(report)
}

fn verdict(report: &Report) -> Result<(), Failure> {
    let place = format!("run {}", report.run);
    let failed = |what: String, next: &str| Err(Failure::new(Exit::Failed, what, &place, next));
    match report.end {
        RunState::CanaryFailed => failed(
            format!("{} of the canary died again: the run has ended", report.died),
            "look at them by `tidegate dlq list`; all others are open as before",
        ),
        RunState::Stopped => failed(
            "the run was stopped".to_owned(),
            "what was not sent is open as before; begin another run for it",
        ),
        RunState::Failed => failed(
            report.why.clone().unwrap_or_else(|| "the run failed".to_owned()),
            "mend that, then begin another run: what was not sent is open as before",
        ),
        RunState::Done | RunState::Running if report.refused > 0 => {
            let reasons = report
                .refusals
                .by_count()
                .into_iter()
                .map(|(why, refused)| Detail {
                    text: format!("{}: {}", refused.count, escaped(why)),
                    data: json!({"count": refused.count, "why": why}),
                });
            let failure = Failure::new(
                Exit::Failed,
                format!("{} were not sent, and are open as before", report.refused),
                place,
                "change the edit or the target for them, and begin another run",
            );
            Err(failure.with_details(reasons.collect()))
        }
        RunState::Done | RunState::Running if report.sent == 0 => Err(Failure::new(
            Exit::Conflict,
            "nothing was sent: others had all that was meant",
            place,
            "look at them by `tidegate dlq show`",
        )
        .with_details(report.rivals.iter().map(party).collect())),
        RunState::Done | RunState::Running if report.lost > 0 => Err(Failure::new(
            Exit::Conflict,
            format!(
                "others had {} of what was meant; {} were sent",
                report.lost, report.sent
            ),
            place,
            "look what became of theirs by `tidegate dlq show`: they went out as others wanted, or shall not",
        )),
        RunState::Done | RunState::Running => Ok(()),
    }
}
