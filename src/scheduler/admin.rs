//! Schedules as people keep them: checked as the claim would check them, then stored, all or nothing.
//!
//! May import: `store`, `core`, [`super::occurrence`]. The one place where a schedule is added, changed, resumed or run
//! by hand, for every face of the program. Each call is one transaction: if the process dies within it, nothing has
//! happened; if it dies after the commit, the scheduler knows.

use std::fmt;

use chrono::{DateTime, SubsecRound, TimeDelta, Utc};
use tidegate_core::envelope::{Envelope, Limits};

use super::occurrence;
use crate::store::{
    Store, StoreError,
    cron_admin::{Change, Definition, Edit, Scope},
    cron_tasks::CronTask,
};

/// Most definitions at once.
pub const MAX_DEFINITIONS: usize = 10_000;

/// Tries to find a free instant for a run by hand: two at the same microsecond collide.
const TRIES: i64 = 8;

/// Why schedules were not changed.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The ledger failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No schedule has this name.
    #[error("no schedule is called {0:?}")]
    NotFound(String),
    /// Schedules of these names exist and are defined otherwise.
    #[error("{}", exists(.0))]
    Exists(Vec<String>),
    /// Definitions that can't be used.
    #[error("{}", refused(.0))]
    Refused(Vec<Refusal>),
}

/// What is wrong with a definition and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The schedule.
    pub name: String,
    /// What is wrong.
    pub why: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "schedule {:?}: {}", self.name, self.why)
    }
}

fn exists(names: &[String]) -> String {
    format!("defined otherwise already: {}", names.join(", "))
}

fn refused(refusals: &[Refusal]) -> String {
    let list: Vec<String> = refusals.iter().map(Refusal::to_string).collect();
    list.join("; ")
}

/// What a call may do beyond adding schedules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutOptions {
    /// How much of a definition is meant where the schedule exists.
    pub scope: Scope,
    /// Change schedules that are defined otherwise.
    pub replace: bool,
    /// Only say what would happen.
    pub dry_run: bool,
}

/// What a definition did, or would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The schedule.
    pub name: String,
    /// What.
    pub change: Change,
    /// Whether it fires.
    pub enabled: bool,
    /// When it fires next, if it does.
    pub next: Option<DateTime<Utc>>,
}

/// Adds `definitions`, or changes the schedules of their names where that is asked for; answers in their order.
/// All or nothing. A dry run tells of schedules that are defined otherwise by [`Change::Differs`] instead of an error.
/// Of several equal calls at once one adds, and the others find its schedules unchanged.
pub async fn put(
    store: &Store,
    definitions: &[Definition],
    options: PutOptions,
) -> Result<Vec<Placed>, AdminError> {
    match put_once(store, definitions, options).await {
        // Somebody added one between the look and the insert: the second look sees it.
        Err(AdminError::Store(StoreError::Conflict(_))) => put_once(store, definitions, options).await,
        done => done,
    }
}

async fn put_once(
    store: &Store,
    definitions: &[Definition],
    options: PutOptions,
) -> Result<Vec<Placed>, AdminError> {
    let mut edit = store.edit_cron().await?;
    let now = edit.now();
    let refusals: Vec<Refusal> = definitions
        .iter()
        .flat_map(|definition| {
            let refusal = |why| Refusal {
                name: definition.name.clone(),
                why,
            };
            problems(definition, now).into_iter().map(refusal)
        })
        .collect();
    if !refusals.is_empty() {
        return Err(AdminError::Refused(refusals));
    }
    let changes = edit.compare(definitions, options.scope).await?;
    let of = |wanted: Change| {
        let pairs = definitions.iter().zip(&changes);
        pairs.filter(move |(_, change)| **change == wanted)
    };
    if !options.replace && !options.dry_run && of(Change::Differs).next().is_some() {
        let names = of(Change::Differs).map(|(definition, _)| definition.name.clone());
        return Err(AdminError::Exists(names.collect()));
    }
    edit.put(definitions, &changes, options.scope).await?;
    let placed = check(&mut edit, definitions, &changes, now).await?;
    if !options.dry_run {
        edit.commit().await?;
    }
    Ok(placed)
}

/// Reads back what was written and decides as the scheduler will.
async fn check(
    edit: &mut Edit,
    definitions: &[Definition],
    changes: &[Change],
    now: DateTime<Utc>,
) -> Result<Vec<Placed>, AdminError> {
    let names: Vec<&str> = definitions.iter().map(|d| d.name.as_str()).collect();
    let rows = edit.rows(&names).await?;
    let rows: std::collections::HashMap<&str, &CronTask> =
        rows.iter().map(|row| (row.name.as_str(), row)).collect();
    let (mut placed, mut refusals) = (Vec::new(), Vec::new());
    for (name, change) in names.iter().zip(changes) {
        let Some(row) = rows.get(name) else {
            return Err(AdminError::NotFound((*name).to_owned()));
        };
        let next = match occurrence::check(row, now) {
            Ok(Some(next)) => Some(next),
            // It has fired and ended: that was so before this call.
            Ok(None) if *change == Change::Unchanged => None,
            checked => {
                let why = checked.err().unwrap_or_else(never);
                refusals.push(Refusal {
                    name: row.name.clone(),
                    why,
                });
                None
            }
        };
        placed.push(Placed {
            name: row.name.clone(),
            change: *change,
            enabled: row.enabled,
            next: next.filter(|_| row.enabled),
        });
    }
    if refusals.is_empty() {
        Ok(placed)
    } else {
        Err(AdminError::Refused(refusals))
    }
}

/// When `row` fires first after `now`; `Err` says why it never does.
fn first(row: &CronTask, now: DateTime<Utc>) -> Result<DateTime<Utc>, String> {
    occurrence::check(row, now)?.ok_or_else(never)
}

fn never() -> String {
    "it can never fire: no occurrence is left before ends_at; give a later one, or none".to_owned()
}

/// What the tables would refuse without saying why, or change without saying so.
fn problems(definition: &Definition, now: DateTime<Utc>) -> Vec<String> {
    let mut problems = Vec::new();
    let mut length = |what: &str, text: Option<&str>, most: usize| {
        if let Some(text) = text
            && (text.is_empty() || text.len() > most || text.contains('\0'))
        {
            problems.push(format!(
                "{what} has {} bytes; write 1 to {most} without NUL",
                text.len()
            ));
        }
    };
    length("name", Some(&definition.name), 255);
    let is_blank = !definition.name.is_empty() && definition.name.trim().is_empty();
    length("task type", Some(&definition.task_type), 128);
    length("expression", Some(&definition.cron_expression), usize::MAX);
    length("exchange", definition.exchange.as_deref(), 255);
    length("routing key", definition.routing_key.as_deref(), 255);
    length("owner", definition.owner.as_deref(), 255);
    let mut range = |what: &str, value: Option<i32>, least: i32, most: i32| {
        if let Some(value) = value.filter(|value| !(least..=most).contains(value)) {
            problems.push(format!("{what} is {value}; write {least} to {most}"));
        }
    };
    range("payload version", Some(definition.payload_version), 1, i32::MAX);
    range("catch-up limit", Some(definition.catch_up_limit), 1, 1_000);
    range("jitter in ms", Some(definition.jitter_ms), 0, 86_400_000);
    range("max retries", definition.max_retries, 0, 100);
    range("time-out in ms", definition.timeout_ms, 1, 86_400_000);
    range("priority", Some(definition.priority.into()), 0, 255);
    if is_blank {
        problems.push("the name is blank; write something that can be read".to_owned());
    }
    if let (Some(start), Some(end)) = (definition.starts_at, definition.ends_at)
        && start >= end
    {
        problems.push("it starts at or after its end; occurrences lie in [starts_at, ends_at)".to_owned());
    }
    for at in [definition.starts_at, definition.ends_at].into_iter().flatten() {
        if at < DateTime::UNIX_EPOCH || at.timestamp() >= 253_402_214_400 {
            problems.push(format!("{at} is no instant between 1970 and 9999-12-30"));
        }
    }
    problems.extend(payload_problems(definition.payload.get(), now));
    problems
}

/// The tables keep the payload as jsonb, which drops duplicate keys: what was written is checked before.
fn payload_problems(payload: &str, now: DateTime<Utc>) -> Vec<String> {
    let envelope = format!("{{\"taskId\":\"check\",\"taskType\":\"check.payload\",\"payload\":{payload}}}");
    match Envelope::parse(envelope.as_bytes(), &Limits::standard(), now) {
        Ok(_) => Vec::new(),
        Err(error) => error
            .violations
            .iter()
            .map(|v| format!("{} [{}]: {}", v.pointer, v.rule.as_str(), v.advice))
            .collect(),
    }
}

/// Removes the schedule with its history. Tasks that it has made stay.
pub async fn remove(store: &Store, name: &str) -> Result<(), AdminError> {
    let mut edit = store.edit_cron().await?;
    if !edit.remove(name).await? {
        return Err(AdminError::NotFound(name.to_owned()));
    }
    Ok(edit.commit().await?)
}

/// Stops the schedule; returns whether it was running. What would have come meanwhile does not happen and is not
/// made up for.
pub async fn pause(store: &Store, name: &str) -> Result<bool, AdminError> {
    let mut edit = store.edit_cron().await?;
    let changed = edit.enable(name, false).await?;
    row(&mut edit, name).await?;
    edit.commit().await?;
    Ok(changed)
}

/// Lets the schedule fire again, from now on; returns its next time, and whether it was paused.
pub async fn resume(store: &Store, name: &str) -> Result<(DateTime<Utc>, bool), AdminError> {
    let mut edit = store.edit_cron().await?;
    let changed = edit.enable(name, true).await?;
    let row = row(&mut edit, name).await?;
    let next = first(&row, edit.now()).map_err(|why| refusal(name, why))?;
    edit.commit().await?;
    Ok((row.next_fire_at.unwrap_or(next), changed))
}

/// Enqueues one task of the schedule now, as configured, whether it is paused or not; returns the task's id. That is
/// no occurrence: the next one comes when it comes.
pub async fn run(store: &Store, name: &str) -> Result<String, AdminError> {
    let mut moved = TimeDelta::zero();
    loop {
        let mut edit = store.edit_cron().await?;
        let row = row(&mut edit, name).await?;
        // The database's clock, in its own resolution.
        let at = edit.now().trunc_subsecs(6) + moved;
        let task = occurrence::manual(&row, at).map_err(|why| refusal(name, why))?;
        let task_id = task.task_id.clone();
        match edit.run(row.id, at, task).await {
            Ok(()) => {
                edit.commit().await?;
                return Ok(task_id);
            }
            Err(StoreError::Conflict(_)) if moved.num_microseconds().unwrap_or(TRIES) < TRIES => {
                moved += TimeDelta::microseconds(1);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

async fn row(edit: &mut Edit, name: &str) -> Result<CronTask, AdminError> {
    let row = edit.rows(&[name]).await?.pop();
    row.ok_or_else(|| AdminError::NotFound(name.to_owned()))
}

fn refusal(name: &str, why: String) -> AdminError {
    AdminError::Refused(vec![Refusal {
        name: name.to_owned(),
        why,
    }])
}
