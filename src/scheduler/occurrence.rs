//! A cron row and the time → what to write back and which tasks to send.
//!
//! May import: `core`, the row types of `store`. Pure: everything here is a function of the row and of the
//! database's `now`.

use std::{any::Any, panic, time::Duration};

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use serde::Serialize;
use serde_json::value::RawValue;
use tidegate_core::{
    cron::{FirePolicy, MisfirePolicy, Overlap, Schedule, plan},
    envelope::{Envelope, Limits},
    headers::Origin,
    task::TaskId,
};

use crate::store::{
    cron_tasks::{CronTask, Decision, Fire, Verdict},
    tasks::NewTask,
};

/// `producer` of every task that comes from a cron row.
pub const PRODUCER: &str = "tidegate";

/// The envelope of a cron task. The payload is spliced as it stands.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Template<'a> {
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

/// Computes when a new, edited or enabled row fires first: strictly after `now`, never at once.
pub fn initialise(row: &CronTask, now: DateTime<Utc>) -> Decision {
    decide(row, || {
        let schedule = check(row, now)?;
        Ok((first_after(row, &schedule, now)?, Vec::new()))
    })
}

/// Decides about a row that is due: which occurrences to record, which tasks to send, when it fires next.
/// An occurrence later than `grace` is a misfire, treated as the row's policy says.
pub fn fire(row: &CronTask, now: DateTime<Utc>, grace: Duration) -> Decision {
    decide(row, || {
        let schedule = check(row, now)?;
        let planned = row.next_fire_at.ok_or("it is not due")?;
        let policy = FirePolicy {
            misfire: MisfirePolicy::parse(&row.misfire_policy)
                .ok_or_else(|| format!("unknown misfire_policy {:?}", row.misfire_policy))?,
            catch_up_limit: u32::try_from(row.catch_up_limit).unwrap_or_default(),
            overlap: match row.overlap_policy.as_str() {
                "skip" => Overlap::Skip { busy: row.busy },
                _ => Overlap::Allow,
            },
            grace,
            ends_at: row.ends_at,
        };
        let plan = plan(&schedule, planned, now, &policy);
        let fires = plan
            .spans
            .into_iter()
            .map(|span| {
                let task = span.outcome.fires().then(|| task(row, span.first, "")).transpose()?;
                Ok(Fire { span, task })
            })
            .collect::<Result<_, String>>()?;
        Ok((window(row, plan.next)?, fires))
    })
}

/// The task of a run that somebody asks for at `now`: as configured, and no occurrence. `Err` says what is wrong with
/// the definition.
pub fn manual(row: &CronTask, now: DateTime<Utc>) -> Result<NewTask, String> {
    check(row, now)?;
    task(row, now, "run:")
}

/// A definition that breaks a rule, or even makes a library panic, must not stop the rows beside it.
fn decide(row: &CronTask, rule: impl FnOnce() -> Result<(Verdict, Vec<Fire>), String>) -> Decision {
    let (verdict, fires) = panic::catch_unwind(panic::AssertUnwindSafe(rule))
        .unwrap_or_else(|panic| Err(format!("the schedule can't be computed: {}", message(&*panic))))
        .unwrap_or_else(|why| (Verdict::Broken(why), Vec::new()));
    Decision {
        id: row.id,
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

/// Checks the whole definition by building a task of it, so that what is broken shows before it is due.
fn check(row: &CronTask, now: DateTime<Utc>) -> Result<Schedule, String> {
    let schedule = Schedule::parse(&row.cron_expression, &row.time_zone).map_err(|e| e.to_string())?;
    let sample = task(row, now, "")?;
    Envelope::parse(sample.envelope.as_bytes(), &Limits::standard(), now)
        .map_err(|e| format!("its task would be refused: {e}"))?;
    Ok(schedule)
}

fn first_after(row: &CronTask, schedule: &Schedule, now: DateTime<Utc>) -> Result<Verdict, String> {
    // next_after is strict, and an occurrence at starts_at itself counts.
    let after = row
        .starts_at
        .map_or(now, |start| now.max(start - TimeDelta::microseconds(1)));
    window(row, schedule.next_after(after))
}

fn window(row: &CronTask, next: Option<DateTime<Utc>>) -> Result<Verdict, String> {
    match (next, row.ends_at) {
        (Some(next), Some(end)) if next >= end => Ok(Verdict::Exhausted),
        (Some(next), _) => Ok(Verdict::Next(next)),
        (None, Some(_)) => Ok(Verdict::Exhausted),
        (None, None) => Err(format!("cron_expression {:?} never fires", row.cron_expression)),
    }
}

/// The task of the occurrence at `at`. Its id follows from name and instant, so whatever happens twice in between,
/// the task is the same one.
fn task(row: &CronTask, at: DateTime<Utc>, kind: &str) -> Result<NewTask, String> {
    let task_id = format!("cron:{}:{kind}{}", row.id_part, at.format("%Y%m%dT%H%M%S%.fZ"));
    TaskId::parse(&task_id).map_err(|e| format!("task id {task_id:?}: {e}"))?;
    let payload = row
        .payload
        .clone()
        .ok_or("payload is NULL; give a JSON object such as '{}'")?;
    let payload = RawValue::from_string(payload).map_err(|e| format!("payload: {e}"))?;
    let envelope = Template {
        task_id: &task_id,
        task_type: &row.task_type,
        payload_version: row.payload_version,
        payload: &payload,
        schedule_time: at.to_rfc3339_opts(SecondsFormat::AutoSi, true),
        timeout_ms: row.timeout_ms,
        max_retries: row.max_retries,
        priority: row.priority,
        producer: PRODUCER,
    };
    let envelope = serde_json::to_string(&envelope).map_err(|e| format!("envelope: {e}"))?;
    Ok(NewTask {
        envelope,
        task_id,
        task_type: row.task_type.clone(),
        exchange: row.exchange.clone(),
        routing_key: row.routing_key.clone(),
        priority: u8::try_from(row.priority).map_err(|_| "priority must be 0 to 255")?,
        producer: Some(PRODUCER.to_owned()),
        trace_id: None,
        origin: Origin::Cron,
        due_at: at,
    })
}
