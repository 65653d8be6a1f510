//! Compares what was sent with what was seen. Pure: the table of the report and the exit code come from here.
//!
//! Imports `journal` only.

use chrono::{DateTime, TimeDelta, Utc};

use crate::journal::{DeadLetter, Ended, Run};

/// The end that a task is expected to come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// A handler did it.
    Done,
    /// It lies in the archive of dead letters with this reason.
    Dead(&'static str),
}

/// What should become of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expect {
    /// Runs of a handler, the last one included.
    pub(crate) attempts: u32,
    /// The end.
    pub(crate) end: End,
}

/// A message that was sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    /// Step of the scenario.
    pub(crate) step: u8,
    /// Task type, or what stands in for it.
    pub(crate) task_type: String,
    /// See [`crate::journal::key`].
    pub(crate) key: String,
    /// The bytes, where the example itself sent them.
    pub(crate) body: Option<Vec<u8>>,
    /// When it should start.
    pub(crate) planned: DateTime<Utc>,
    /// What should become of it.
    pub(crate) expect: Expect,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing final was seen.
    Waiting,
    /// Done.
    Done,
    /// Dead-lettered with this reason.
    Dead(String),
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Waiting => f.write_str("waiting"),
            Self::Done => f.write_str("done"),
            Self::Dead(reason) => write!(f, "dead: {reason}"),
        }
    }
}

/// One line of the table.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) step: Option<u8>,
    pub(crate) task_type: String,
    pub(crate) key: String,
    pub(crate) planned: Option<DateTime<Utc>>,
    pub(crate) started: Option<DateTime<Utc>>,
    pub(crate) attempts: u32,
    pub(crate) outcome: Outcome,
    /// What differs from the expectation; empty where nothing does.
    pub(crate) differs: Vec<String>,
}

impl Row {
    /// First start after the planned time; negative would be early.
    pub(crate) fn lateness(&self) -> Option<TimeDelta> {
        Some(self.started? - self.planned?)
    }
}

/// Judges every message, step by step, and whatever was seen that nobody sent.
pub(crate) fn judge(sent: &[Sent], runs: &[Run], dead: &[DeadLetter], latest: TimeDelta) -> Vec<Row> {
    let mut rows = Vec::new();
    for (index, message) in sent.iter().enumerate() {
        // The same task sent twice: the first delivery belongs to the first of the two, and so on.
        let nth = sent[..index]
            .iter()
            .filter(|earlier| earlier.key == message.key)
            .count();
        let runs = deliveries(runs, &message.key)
            .into_iter()
            .nth(nth)
            .unwrap_or_default();
        let letter = dead.iter().filter(|letter| letter.key == message.key).nth(nth);
        rows.push(judge_one(message, &runs, letter, latest));
    }
    rows.sort_by_key(|row| row.step);
    rows.extend(surplus(sent, runs, dead));
    rows
}

fn judge_one(message: &Sent, runs: &[Run], letter: Option<&DeadLetter>, latest: TimeDelta) -> Row {
    let outcome = match (letter, runs.last()) {
        (Some(letter), _) => Outcome::Dead(letter.reason.clone()),
        (
            None,
            Some(Run {
                ended: Ended::Done, ..
            }),
        ) => Outcome::Done,
        (None, _) => Outcome::Waiting,
    };
    let mut row = Row {
        step: Some(message.step),
        task_type: message.task_type.clone(),
        key: message.key.clone(),
        planned: Some(message.planned),
        started: runs.first().map(|run| run.started),
        attempts: u32::try_from(runs.len()).unwrap_or(u32::MAX),
        outcome,
        differs: Vec::new(),
    };
    let Expect { attempts, end } = message.expect;
    let as_expected = match (&row.outcome, end) {
        (Outcome::Done, End::Done) => true,
        (Outcome::Dead(reason), End::Dead(wanted)) => reason == wanted,
        _ => false,
    };
    if !as_expected {
        let wanted = match end {
            End::Done => Outcome::Done,
            End::Dead(reason) => Outcome::Dead(reason.to_owned()),
        };
        row.differs.push(format!("expected {wanted}"));
    }
    if row.attempts != attempts {
        row.differs.push(format!("expected {attempts} attempts"));
    }
    if runs.iter().zip(1..).any(|(run, number)| run.attempt != number) {
        let numbers: Vec<_> = runs.iter().map(|run| run.attempt).collect();
        row.differs.push(format!("attempts numbered {numbers:?}"));
    }
    match row.lateness() {
        Some(late) if late < TimeDelta::zero() => row.differs.push("started early".to_owned()),
        Some(late) if late > latest => row
            .differs
            .push(format!("more than {} ms late", latest.num_milliseconds())),
        _ => {}
    }
    if let (Some(letter), Some(body)) = (letter, &message.body)
        && letter.body != *body
    {
        row.differs
            .push("the dead letter's bytes are not those that were sent".to_owned());
    }
    row
}

/// The runs of `key`, a list for each delivery: a run numbered 1 begins a new one.
fn deliveries(runs: &[Run], key: &str) -> Vec<Vec<Run>> {
    let mut mine: Vec<_> = runs.iter().filter(|run| run.key == key).cloned().collect();
    mine.sort_by_key(|run| run.started);
    let mut deliveries: Vec<Vec<Run>> = Vec::new();
    for run in mine {
        match deliveries.last_mut() {
            Some(open) if run.attempt > 1 => open.push(run),
            _ => deliveries.push(vec![run]),
        }
    }
    deliveries
}

/// Deliveries and dead letters beyond what was sent.
fn surplus(sent: &[Sent], runs: &[Run], dead: &[DeadLetter]) -> Vec<Row> {
    let unexpected = |key: &str, started, attempts, outcome| Row {
        step: None,
        task_type: "(not sent)".to_owned(),
        key: key.to_owned(),
        planned: None,
        started,
        attempts,
        outcome,
        differs: vec!["more was seen than was sent".to_owned()],
    };
    let mut keys: Vec<_> = runs
        .iter()
        .map(|run| &run.key)
        .chain(dead.iter().map(|letter| &letter.key))
        .collect();
    keys.sort();
    keys.dedup();
    let mut rows = Vec::new();
    for key in keys {
        let times = sent.iter().filter(|message| message.key == *key).count();
        for extra in deliveries(runs, key).into_iter().skip(times) {
            let attempts = u32::try_from(extra.len()).unwrap_or(u32::MAX);
            rows.push(unexpected(
                key,
                extra.first().map(|run| run.started),
                attempts,
                Outcome::Waiting,
            ));
        }
        for extra in dead.iter().filter(|letter| letter.key == *key).skip(times) {
            rows.push(unexpected(key, None, 0, Outcome::Dead(extra.reason.clone())));
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> DateTime<Utc> {
        DateTime::from_timestamp_millis(1_700_000_000_000 + ms).unwrap()
    }

    fn sent(key: &str, planned: i64, attempts: u32, end: End) -> Sent {
        Sent {
            step: 1,
            task_type: "order.close.timeout".to_owned(),
            key: key.to_owned(),
            body: Some(key.as_bytes().to_vec()),
            planned: at(planned),
            expect: Expect { attempts, end },
        }
    }

    fn run(key: &str, attempt: u32, started: i64, ended: Ended) -> Run {
        Run {
            key: key.to_owned(),
            attempt,
            started: at(started),
            ended,
        }
    }

    fn dead(key: &str, reason: &str, body: &[u8]) -> DeadLetter {
        DeadLetter {
            key: key.to_owned(),
            reason: reason.to_owned(),
            body: body.to_vec(),
        }
    }

    fn differs(sent: &[Sent], runs: &[Run], dead: &[DeadLetter]) -> Vec<Vec<String>> {
        judge(sent, runs, dead, TimeDelta::seconds(2))
            .into_iter()
            .map(|row| row.differs)
            .collect()
    }

    #[test]
    fn what_came_as_expected_differs_in_nothing() {
        let sent = [
            sent("a", 0, 1, End::Done),
            sent("b", 0, 3, End::Done),
            sent("c", 0, 0, End::Dead("rejected")),
        ];
        let runs = [
            run("b", 1, 5, Ended::Failed),
            run("a", 1, 0, Ended::Done),
            run("b", 2, 1_000, Ended::Failed),
            run("b", 3, 4_000, Ended::Done),
        ];
        let rows = judge(
            &sent,
            &runs,
            &[dead("c", "rejected", b"c")],
            TimeDelta::seconds(2),
        );
        assert!(rows.iter().all(|row| row.differs.is_empty()), "{rows:?}");
        assert_eq!(rows[1].lateness(), Some(TimeDelta::milliseconds(5)));
        assert_eq!(rows[2].outcome, Outcome::Dead("rejected".to_owned()));
    }

    #[test]
    fn early_late_and_lost_differ() {
        let sent = [
            sent("a", 1_000, 1, End::Done),
            sent("b", 0, 1, End::Done),
            sent("c", 0, 1, End::Done),
        ];
        let runs = [run("a", 1, 999, Ended::Done), run("b", 1, 2_001, Ended::Done)];
        let expected = [
            vec!["started early".to_owned()],
            vec!["more than 2000 ms late".to_owned()],
            vec!["expected done".to_owned(), "expected 1 attempts".to_owned()],
        ];
        assert_eq!(differs(&sent, &runs, &[]), expected);
    }

    #[test]
    fn a_failure_that_was_not_retried_is_still_waiting() {
        let sent = [sent("a", 0, 2, End::Done)];
        let rows = judge(
            &sent,
            &[run("a", 1, 0, Ended::Failed)],
            &[],
            TimeDelta::seconds(2),
        );
        assert_eq!(rows[0].outcome, Outcome::Waiting);
        assert_eq!(rows[0].differs, ["expected done", "expected 2 attempts"]);
    }

    #[test]
    fn the_same_task_sent_twice_has_two_rows() {
        let twice = [sent("a", 0, 1, End::Done), sent("a", 10, 1, End::Done)];
        let runs = [run("a", 1, 3, Ended::Done), run("a", 1, 12, Ended::Done)];
        assert_eq!(differs(&twice, &runs, &[]), [Vec::<String>::new(), Vec::new()]);
        assert_eq!(
            differs(&twice, &runs[..1], &[])[1],
            ["expected done", "expected 1 attempts"]
        );
    }

    #[test]
    fn a_changed_body_an_other_reason_and_skipped_numbers_differ() {
        let poison = [sent("p", 0, 0, End::Dead("invalid_envelope"))];
        let changed = "the dead letter's bytes are not those that were sent";
        assert_eq!(
            differs(&poison, &[], &[dead("p", "invalid_envelope", b"q")]),
            [vec![changed]]
        );
        let other = differs(&poison, &[], &[dead("p", "expired", b"p")]);
        assert_eq!(other, [vec!["expected dead: invalid_envelope"]]);
        let skipped = [run("a", 1, 0, Ended::Failed), run("a", 3, 1, Ended::Done)];
        assert_eq!(
            differs(&[sent("a", 0, 2, End::Done)], &skipped, &[]),
            [vec!["attempts numbered [1, 3]"]]
        );
    }

    #[test]
    fn what_nobody_sent_differs() {
        let sent = [sent("a", 0, 1, End::Done)];
        let runs = [run("a", 1, 0, Ended::Done), run("a", 1, 5, Ended::Done)];
        let rows = judge(&sent, &runs, &[dead("x", "expired", b"x")], TimeDelta::seconds(2));
        assert_eq!(rows.iter().filter(|row| row.step.is_none()).count(), 2);
    }
}
