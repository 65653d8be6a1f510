//! What the ledger and the consumer know, against the calendar and the plan.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Write},
};

use chrono::{DateTime, Utc};
use sqlx::PgPool;

use super::{
    rows::Row,
    tasks::{Answer, Requests},
};
use crate::consumer::Arrivals;

/// One row of `cron_fires`.
#[derive(sqlx::FromRow)]
struct Fire {
    cron_task_id: i64,
    fire_at: DateTime<Utc>,
    last_at: Option<DateTime<Utc>>,
    occurrences: i64,
    outcome: String,
    task_id: Option<String>,
}

#[derive(sqlx::FromRow)]
struct Task {
    state: String,
    due_at: DateTime<Utc>,
}

/// The tables when everything is at rest.
pub(super) struct Ledger {
    fires: Vec<Fire>,
    tasks: BTreeMap<String, Task>,
}

impl Ledger {
    pub(super) async fn read(sql: &PgPool) -> Self {
        let fires =
            "SELECT cron_task_id, fire_at, last_at, occurrences, outcome, task_id FROM tidegate.cron_fires";
        let fires = sqlx::query_as(fires).fetch_all(sql).await.unwrap();
        let tasks: Vec<(String, String, DateTime<Utc>)> =
            sqlx::query_as("SELECT task_id, state, due_at FROM tidegate.tasks")
                .fetch_all(sql)
                .await
                .unwrap();
        let tasks = tasks
            .into_iter()
            .map(|(id, state, due_at)| (id, Task { state, due_at }));
        Self {
            fires,
            tasks: tasks.collect(),
        }
    }

    /// Whether everything that was handed over has arrived.
    pub(super) fn is_all_in(&self, arrivals: &Arrivals) -> bool {
        let handed_over = self.tasks.iter().filter(|(_, task)| task.state == "PUBLISHED");
        handed_over.into_iter().all(|(id, _)| arrivals.contains_key(id))
    }
}

pub(super) struct Books<'a> {
    pub(super) rows: &'a [Row],
    pub(super) requests: &'a Requests,
    pub(super) ledger: &'a Ledger,
    pub(super) arrivals: &'a Arrivals,
}

/// Every count; the first lists are empty if all is well.
#[derive(Default)]
pub(super) struct Verdict {
    /// What went wrong, by kind. Each kind is there, with nothing in it.
    wrong: BTreeMap<&'static str, Vec<String>>,
    lines: Vec<String>,
}

const MISSING: &str = "occurrences missing in cron_fires";
const DOUBLE: &str = "occurrences twice in cron_fires";
const STRANGE: &str = "occurrences that are in no calendar";
const UNSENT: &str = "cron tasks that did not arrive";
const UNPUBLISHED: &str = "scheduled tasks that did not arrive";
const CANCELED: &str = "tasks seen though cancelled while pending";
const EARLY: &str = "early";
const FOREIGN: &str = "arrivals of no task";
const HOLLOW: &str = "things that must have happened and did not";

impl Books<'_> {
    pub(super) fn close(&self) -> Verdict {
        let mut verdict = Verdict::default();
        for kind in [
            MISSING,
            DOUBLE,
            STRANGE,
            UNSENT,
            UNPUBLISHED,
            CANCELED,
            EARLY,
            FOREIGN,
            HOLLOW,
        ] {
            verdict.wrong.insert(kind, Vec::new());
        }
        self.occurrences(&mut verdict);
        self.scheduled(&mut verdict);
        self.arrived(&mut verdict);
        verdict
    }

    /// Each occurrence of the calendar once, alone or in a span.
    fn occurrences(&self, verdict: &mut Verdict) {
        let mut recorded: BTreeMap<(i64, DateTime<Utc>), usize> = BTreeMap::new();
        let calendars: BTreeMap<i64, BTreeSet<DateTime<Utc>>> = self
            .rows
            .iter()
            .map(|row| (row.id, row.occurrences().into_iter().collect()))
            .collect();
        let (mut outcomes, mut ids) = (BTreeMap::<&str, i64>::new(), BTreeSet::new());
        for fire in &self.ledger.fires {
            let (row, first) = (fire.cron_task_id, fire.fire_at);
            *outcomes.entry(&fire.outcome).or_default() += fire.occurrences;
            let last = fire.last_at.unwrap_or(first);
            let calendar = &calendars[&row];
            let within: Vec<_> = calendar.range(first..=last).copied().collect();
            if within.len() as i64 != fire.occurrences
                || within.first() != Some(&first)
                || within.last() != Some(&last)
            {
                verdict.add(
                    STRANGE,
                    format!("{row}: {first} to {last}, {} times", fire.occurrences),
                );
            }
            for at in within {
                *recorded.entry((row, at)).or_default() += 1;
            }
            let Some(id) = &fire.task_id else { continue };
            if !ids.insert(id) {
                verdict.add(DOUBLE, format!("task {id}"));
            }
            match self.arrivals.get(id) {
                None => verdict.add(UNSENT, id.clone()),
                Some(arrival) if arrival.first < first => {
                    verdict.add(EARLY, format!("{id}: {} before {first}", arrival.first))
                }
                Some(_) => {}
            }
        }
        for (row, calendar) in &calendars {
            for at in calendar {
                match recorded.get(&(*row, *at)) {
                    None => verdict.add(MISSING, format!("{row}: {at}")),
                    Some(1) => {}
                    Some(times) => verdict.add(DOUBLE, format!("{row}: {at}, {times} times")),
                }
            }
        }
        let expected: usize = calendars.values().map(BTreeSet::len).sum();
        verdict.lines.push(format!(
            "cron rows {}, occurrences {expected}: {outcomes:?}",
            self.rows.len()
        ));
    }

    /// Each scheduled task arrives, unless it was cancelled while it waited: then it never does.
    fn scheduled(&self, verdict: &mut Verdict) {
        let (mut arrived, mut certain, mut in_flight, mut unknown) = (0, 0, 0, 0);
        for id in self.requests.due.keys() {
            let answer = self.requests.cancels.get(id);
            let state = self
                .ledger
                .tasks
                .get(id)
                .map_or("absent", |task| task.state.as_str());
            let has_arrived = self.arrivals.contains_key(id);
            arrived += usize::from(has_arrived);
            match answer {
                Some(Answer::Certain) => {
                    certain += 1;
                    if has_arrived || state != "CANCELED" {
                        verdict.add(CANCELED, format!("{id}: {state}, due {}", self.requests.due[id]));
                    }
                    continue;
                }
                Some(Answer::InFlight) => in_flight += 1,
                Some(Answer::Unknown) => unknown += 1,
                Some(Answer::No) | None => {}
            }
            // Of a cancel in flight, or one whose answer got lost, either may come.
            let may_stay_away =
                matches!(answer, Some(Answer::InFlight | Answer::Unknown)) && state == "CANCELED";
            if !(may_stay_away || has_arrived && !matches!(state, "PENDING" | "absent")) {
                verdict.add(
                    UNPUBLISHED,
                    format!("{id}: {state}, seen {has_arrived}, cancel {answer:?}"),
                );
            }
        }
        if certain == 0 {
            verdict.add(HOLLOW, "no task was cancelled while it was pending".to_owned());
        }
        verdict.lines.push(format!(
            "scheduled tasks {}: arrived {arrived}; cancels {}: {certain} while pending, {in_flight} in flight, {unknown} without an answer",
            self.requests.due.len(),
            self.requests.cancels.len()
        ));
    }

    /// Nothing before its time.
    fn arrived(&self, verdict: &mut Verdict) {
        let (mut late, mut copies) = (Vec::new(), 0);
        for (id, arrival) in self.arrivals {
            copies += arrival.copies - 1;
            let Some(task) = self.ledger.tasks.get(id) else {
                verdict.add(FOREIGN, id.clone());
                continue;
            };
            // The plan and not the row says when a scheduled task is due; of cron tasks jitter is in the row only.
            let due = self.requests.due.get(id).copied().unwrap_or(task.due_at);
            if arrival.first < due {
                verdict.add(EARLY, format!("{id}: {} before {due}", arrival.first));
            }
            late.push((arrival.first - due).num_milliseconds());
        }
        late.sort_unstable();
        let of = |part: f64| {
            late.get((late.len() as f64 * part) as usize)
                .copied()
                .unwrap_or_default()
        };
        verdict.lines.push(format!(
            "arrivals {}, second copies {copies}; lateness amid all this p50 {} ms, p90 {} ms, p99 {} ms, most {} ms",
            self.arrivals.len(),
            of(0.5),
            of(0.9),
            of(0.99),
            late.last().copied().unwrap_or_default()
        ));
    }
}

impl Verdict {
    fn add(&mut self, kind: &'static str, what: String) {
        self.wrong.entry(kind).or_default().push(what);
    }

    pub(super) fn assert_clean(&self) {
        let mut complaints = String::new();
        for (kind, what) in self.wrong.iter().filter(|(_, what)| !what.is_empty()) {
            writeln!(complaints, "{kind}: {:#?}", &what[..what.len().min(10)]).unwrap();
        }
        assert!(complaints.is_empty(), "{complaints}{self}");
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.lines {
            writeln!(f, "  {line}")?;
        }
        for (kind, what) in &self.wrong {
            writeln!(f, "  {kind}: {}", what.len())?;
        }
        Ok(())
    }
}
