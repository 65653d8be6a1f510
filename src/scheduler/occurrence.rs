//! A cron row and the time → what to write back and which tasks to send.
//!
//! May import: `core`, `payload`, the row types of `store`. Pure: everything here is a function of the row and of the
//! database's `now`.

use std::{any::Any, panic, time::Duration};

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use serde::Serialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use tidegate_core::{
    cron::{FirePolicy, MisfirePolicy, Overlap, Schedule, plan},
    envelope::{Envelope, Limits},
    headers::Origin,
    task::TaskId,
};

use super::payload::{Payload, Values};
use crate::store::{
    cron_tasks::{CronTask, Decision, Fire, Verdict},
    tasks::NewTask,
};

/// `producer` of every task that comes from a cron row.
pub const PRODUCER: &str = "tidegate";

/// Most characters of a row's `last_error`.
const MAX_ERROR: usize = 1000;

/// The envelope of a cron task. The payload is spliced as it stands.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    task_id: &'a str,
    task_type: &'a str,
    payload_version: i32,
    payload: &'a RawValue,
    schedule_time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_retries: Option<i32>,
    priority: i16,
    producer: &'a str,
}

/// Checks the whole definition of `row`: expression, zone, window, payload with its templates, and the task they make.
/// Returns when it fires first after `now`; `None`: nothing is left before its end. The error says what to correct.
/// Looks at nothing but the columns that a definition consists of, `id_part`, `kept_fire_at` and `accounted_until`.
pub fn check(row: &CronTask, now: DateTime<Utc>) -> Result<Option<DateTime<Utc>>, String> {
    match initialise(row, now).verdict {
        Verdict::Next(at) => Ok(Some(at)),
        Verdict::Exhausted => Ok(None),
        Verdict::Broken(why) => Err(why),
    }
}

/// The task of a run that somebody asks for at `now`: as configured, without jitter, and no occurrence. The error says
/// what to correct.
pub fn manual(row: &CronTask, now: DateTime<Utc>) -> Result<NewTask, String> {
    let definition = Definition::read(row)?;
    let task = definition.task_called(&format!("cron:{}:run:{}", row.id_part, compact(now)), now, now)?;
    definition.check(&task, now)?;
    Ok(task)
}

/// Computes when a new, edited or enabled row fires first: strictly after `now` and after whatever was accounted for,
/// never at once. After an edit of what it sends it has the time it had, though that may have passed meanwhile.
pub fn initialise(row: &CronTask, now: DateTime<Utc>) -> Decision {
    decide(row, || {
        let definition = Definition::read(row)?;
        definition.check(&definition.task(now)?, now)?;
        let closed = row.closed_until();
        if let Some(kept) = row
            .kept_fire_at
            .filter(|kept| closed.is_none_or(|closed| *kept > closed))
        {
            return Ok((window(row, Some(kept))?, Vec::new()));
        }
        let after = closed.map_or(now, |closed| closed.max(now));
        Ok((definition.first_after(after)?, Vec::new()))
    })
}

/// Decides about a row that is due: which occurrences to record, which tasks to send, when it fires next.
/// An occurrence later than `grace` is a misfire, treated as the row's policy says. An occurrence that was accounted
/// for, as after an edit of `next_fire_at` by hand, is none.
pub fn fire(row: &CronTask, now: DateTime<Utc>, grace: Duration) -> Decision {
    decide(row, || {
        let definition = Definition::read(row)?;
        let mut planned = row.next_fire_at.ok_or("it is not due")?;
        if let Some(closed) = row.closed_until().filter(|closed| planned <= *closed) {
            match definition.first_after(closed)? {
                Verdict::Next(at) => planned = at,
                other => return Ok((other, Vec::new())),
            }
        }
        let plan = plan(&definition.schedule, planned, now, &policy(row, grace)?);
        let mut fires = Vec::with_capacity(plan.spans.len());
        let mut checked = false;
        for span in plan.spans {
            let mut task = None;
            if span.outcome.fires() {
                let made = definition.task(span.first)?;
                // Without templates all tasks of a row are alike.
                if !checked || definition.payload.has_templates() {
                    definition.check(&made, now)?;
                    checked = true;
                }
                task = Some(made);
            }
            fires.push(Fire { span, task });
        }
        if !checked {
            definition.check(&definition.task(now)?, now)?;
        }
        Ok((window(row, plan.next)?, fires))
    })
}

fn policy(row: &CronTask, grace: Duration) -> Result<FirePolicy, String> {
    Ok(FirePolicy {
        misfire: MisfirePolicy::parse(&row.misfire_policy)
            .ok_or_else(|| format!("unknown misfire_policy {:?}", row.misfire_policy))?,
        catch_up_limit: u32::try_from(row.catch_up_limit).unwrap_or_default(),
        overlap: match row.overlap_policy.as_str() {
            "skip" => Overlap::Skip { busy: row.busy },
            _ => Overlap::Allow,
        },
        grace,
        ends_at: row.ends_at,
    })
}

/// A definition that breaks a rule, or even makes a library panic, must not stop the rows beside it.
fn decide(row: &CronTask, rule: impl FnOnce() -> Result<(Verdict, Vec<Fire>), String>) -> Decision {
    let (verdict, fires) = panic::catch_unwind(panic::AssertUnwindSafe(rule))
        .unwrap_or_else(|panic| Err(format!("the schedule can't be computed: {}", message(&*panic))))
        .unwrap_or_else(|why| (Verdict::Broken(storable(&why)), Vec::new()));
    Decision {
        id: row.id,
        name: row.name.clone(),
        version: row.version,
        verdict,
        fires,
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or(panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("panic")
}

/// A text that fits a column: Postgres knows no NUL.
fn storable(why: &str) -> String {
    why.chars()
        .map(|c| if c == '\0' { char::REPLACEMENT_CHARACTER } else { c })
        .take(MAX_ERROR)
        .collect()
}

impl CronTask {
    /// No occurrence at or before this instant fires: it was accounted for, or lies before `starts_at`.
    fn closed_until(&self) -> Option<DateTime<Utc>> {
        // An occurrence at starts_at itself counts.
        let before_start = self.starts_at.map(|start| start - TimeDelta::microseconds(1));
        self.accounted_until.max(before_start)
    }
}

/// A row that was read.
struct Definition<'a> {
    row: &'a CronTask,
    schedule: Schedule,
    payload: Payload<'a>,
}

impl<'a> Definition<'a> {
    fn read(row: &'a CronTask) -> Result<Self, String> {
        let schedule = Schedule::parse(&row.cron_expression, &row.time_zone).map_err(|e| e.to_string())?;
        let payload = row
            .payload
            .as_deref()
            .ok_or("payload is NULL; give a JSON object such as '{}'")?;
        Ok(Self {
            row,
            schedule,
            payload: Payload::parse(payload).map_err(|e| e.to_string())?,
        })
    }

    fn first_after(&self, after: DateTime<Utc>) -> Result<Verdict, String> {
        window(self.row, self.schedule.next_after(after))
    }

    /// Shows what is broken before it is due.
    fn check(&self, task: &NewTask, now: DateTime<Utc>) -> Result<(), String> {
        Envelope::parse(task.envelope.as_bytes(), &Limits::standard(), now)
            .map(drop)
            .map_err(|e| format!("its task would be refused: {e}"))
    }

    /// The task of the occurrence planned for `at`. Its id follows from name and instant, so whatever happens twice
    /// in between, the task is the same one.
    fn task(&self, at: DateTime<Utc>) -> Result<NewTask, String> {
        let task_id = format!("cron:{}:{}", self.row.id_part, compact(at));
        let due_at = at + jitter(&self.row.name, at, self.row.jitter_ms);
        self.task_called(&task_id, at, due_at)
    }

    fn task_called(
        &self,
        task_id: &str,
        at: DateTime<Utc>,
        due_at: DateTime<Utc>,
    ) -> Result<NewTask, String> {
        let row = self.row;
        TaskId::parse(task_id).map_err(|e| format!("task id {task_id:?}: {e}"))?;
        let values = Values {
            name: &row.name,
            task_type: &row.task_type,
            task_id,
            fire_time: at,
            zone: self.schedule.zone(),
        };
        let payload = self.payload.fill(&values).map_err(|e| e.to_string())?;
        let payload = RawValue::from_string(payload.into_owned()).map_err(|e| format!("payload: {e}"))?;
        let body = Body {
            task_id,
            task_type: &row.task_type,
            payload_version: row.payload_version,
            payload: &payload,
            schedule_time: due_at.to_rfc3339_opts(SecondsFormat::AutoSi, true),
            timeout_ms: row.timeout_ms,
            max_retries: row.max_retries,
            priority: row.priority,
            producer: PRODUCER,
        };
        let envelope = serde_json::to_string(&body).map_err(|e| format!("envelope: {e}"))?;
        Ok(NewTask {
            envelope,
            task_id: task_id.to_owned(),
            task_type: row.task_type.clone(),
            exchange: row.exchange.clone(),
            routing_key: row.routing_key.clone(),
            priority: u8::try_from(row.priority).map_err(|_| "priority must be 0 to 255")?,
            producer: Some(PRODUCER.to_owned()),
            trace_id: None,
            origin: Origin::Cron,
            due_at,
        })
    }
}

/// An instant as a part of a task id.
fn compact(at: DateTime<Utc>) -> impl std::fmt::Display {
    at.format("%Y%m%dT%H%M%S%.fZ")
}

fn window(row: &CronTask, next: Option<DateTime<Utc>>) -> Result<Verdict, String> {
    match (next, row.ends_at) {
        (Some(next), Some(end)) if next >= end => Ok(Verdict::Exhausted),
        (Some(next), _) => Ok(Verdict::Next(next)),
        (None, Some(_)) => Ok(Verdict::Exhausted),
        (None, None) => Err(format!("cron_expression {:?} never fires", row.cron_expression)),
    }
}

/// How much later than planned an occurrence is sent: from 0 to `limit_ms`, the same whoever computes it.
fn jitter(name: &str, planned: DateTime<Utc>, limit_ms: i32) -> TimeDelta {
    let Ok(limit) = u64::try_from(limit_ms) else {
        return TimeDelta::zero();
    };
    if limit == 0 {
        return TimeDelta::zero();
    }
    let hash = Sha256::new()
        .chain_update(planned.timestamp_micros().to_be_bytes())
        .chain_update(name)
        .finalize();
    let hash = hash
        .iter()
        .take(8)
        .fold(0_u64, |hash, byte| hash << 8 | u64::from(*byte));
    TimeDelta::milliseconds(i64::try_from(hash % (limit + 1)).unwrap_or_default())
}

#[cfg(test)]
mod tests;
