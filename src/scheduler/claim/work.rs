//! Rows that were read, decided about and written back.
//!
//! May import: `store`, `telemetry`, `occurrence`. The first decisions are made as soon as the rows are read, so that
//! they are ready when the statement before them is done.

use std::{time::Duration, vec};

use chrono::{DateTime, Utc};

use super::{Kind, Tally};
use crate::{
    scheduler::occurrence,
    store::{
        Store, StoreError,
        cron_tasks::{Batch, Committed, CronTask, Decision, SHARDS, Taken, Verdict, Written},
    },
    telemetry::metrics,
};

/// A statement carries no more than about as many bytes of tasks as this: a batch of rows that all make up for an
/// outage is written in parts.
const STATEMENT_BYTES: usize = 4 * 1024 * 1024;

/// A batch of rows, the first of them decided about.
#[derive(Debug)]
pub(super) struct Work {
    kind: Kind,
    read_at: DateTime<Utc>,
    grace: Duration,
    /// As many rows as were asked for: there may be more.
    pub(super) full: bool,
    /// Where the rows come from: until they are written nobody need look there.
    pub(super) shards: Vec<i64>,
    rows: vec::IntoIter<CronTask>,
    first: Vec<Decision>,
    broken: bool,
}

/// What came of writing it.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    pub(super) tally: Tally,
    /// Whether all decisions still counted when they were written.
    pub(super) in_time: bool,
    /// Whether a row can't be scheduled.
    pub(super) broken: bool,
    /// Rows that can neither be written back nor flagged.
    pub(super) stuck: Vec<i64>,
}

impl Work {
    pub(super) fn new(kind: Kind, batch: Batch, limit: u32, grace: Duration) -> Self {
        let mut shards: Vec<i64> = batch
            .rows
            .iter()
            .map(|row| row.id & (SHARDS as i64 - 1))
            .collect();
        shards.sort_unstable();
        shards.dedup();
        let mut work = Self {
            kind,
            read_at: batch.now,
            grace,
            full: batch.rows.len() >= limit as usize,
            shards,
            rows: batch.rows.into_iter(),
            first: Vec::new(),
            broken: false,
        };
        work.first = work.decide();
        work
    }

    /// Decides about rows until what is to be written is enough for one statement.
    fn decide(&mut self) -> Vec<Decision> {
        let mut decisions = Vec::new();
        let mut bytes = 0;
        while bytes < STATEMENT_BYTES
            && let Some(row) = self.rows.next()
        {
            let decision = match self.kind {
                Kind::Uninitialised => occurrence::initialise(&row, self.read_at),
                Kind::Due => occurrence::fire(&row, self.read_at, self.grace),
            };
            if let Verdict::Broken(why) = &decision.verdict {
                tracing::warn!(cron_task = %row.name, error = %why, "cron row can't be scheduled; flagged in last_error");
                self.broken = true;
            }
            bytes += decision
                .fires
                .iter()
                .map(|fire| fire.task.as_ref().map_or(0, |task| task.envelope.len()))
                .sum::<usize>();
            decisions.push(decision);
        }
        decisions
    }

    /// Writes everything back, statement by statement.
    pub(super) async fn write(mut self, store: &Store) -> Result<Outcome, StoreError> {
        let mut outcome = Outcome {
            in_time: true,
            ..Outcome::default()
        };
        let mut part = std::mem::take(&mut self.first);
        while outcome.in_time && !part.is_empty() {
            outcome.in_time = write(store, self.read_at, &part, &mut outcome).await?;
            if outcome.in_time {
                part = self.decide();
            }
        }
        outcome.broken = self.broken;
        Ok(outcome)
    }
}

/// Writes `decisions`; returns whether they still counted. If the tables refuse something of them, the halves are
/// written on their own, and so on until the row to blame stands alone and is flagged: it stops nobody else.
async fn write(
    store: &Store,
    read_at: DateTime<Utc>,
    decisions: &[Decision],
    outcome: &mut Outcome,
) -> Result<bool, StoreError> {
    let tally = &mut outcome.tally;
    let mut parts = vec![decisions];
    while let Some(part) = parts.pop() {
        match store.cron_tasks().write(read_at, part).await? {
            Written::Done(committed) => {
                tally.written += committed.rows;
                tally.lost += committed.lost;
                measure(&committed, read_at);
                tell(store, part, &committed.taken).await;
            }
            Written::Stale => return Ok(false),
            Written::Refused(why) => match part {
                [alone] => {
                    let name = alone.name.as_str();
                    match store.cron_tasks().mark_error(alone.id, alone.version, &why).await {
                        // What the tables refuse now they refuse the next time.
                        Ok(()) => {
                            tracing::warn!(cron_task = name, error = %why, "the tables refuse what a cron row sends; flagged in last_error");
                            tally.flagged += 1;
                        }
                        Err(error) if error.is_transient() => return Err(error),
                        // Not even that: it stays due, and the others go on.
                        Err(error) => {
                            tracing::error!(cron_task = name, error = %why, not_flagged = %error,
                                "a cron row can't be written back, nor flagged in last_error; it is tried again, within a minute");
                            outcome.stuck.push(alone.id);
                        }
                    }
                }
                several => {
                    let (first, second) = several.split_at(several.len() / 2);
                    parts.extend([second, first]);
                }
            },
        }
    }
    Ok(true)
}

/// Says of occurrences that are recorded as fired that their task was not sent.
async fn tell(store: &Store, decisions: &[Decision], taken: &[Taken]) {
    for Taken { id, task_id } in taken {
        let name = decisions.iter().find(|decision| decision.id == *id);
        let name = name.map_or("", |decision| decision.name.as_str());
        metrics::cron_id_taken();
        tracing::error!(cron_task = name, %task_id, "a cron row's task was not sent: its id stands for a task of another type or origin");
        let why = format!(
            "the occurrence's task {task_id} was not sent: its id stands for a task of another type or origin"
        );
        if let Err(error) = store.cron_tasks().tell(*id, &why).await {
            tracing::error!(cron_task = name, %error, "that could not be written into last_error");
        }
    }
}

fn measure(committed: &Committed, now: DateTime<Utc>) {
    for span in &committed.fires {
        metrics::cron_fired(
            span.outcome.as_str(),
            span.occurrences,
            (now - span.last).to_std().unwrap_or_default(),
        );
    }
}
