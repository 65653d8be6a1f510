//! Scheduled tasks by plain SQL, most of them long before their time, and cancels: well before, and in a race with the relay.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use rand::{Rng, rngs::StdRng};
use sqlx::PgPool;
use tokio::{task::JoinSet, time::sleep};

use crate::installation::{Installation, WORK};

/// One of ten is cancelled, half of these as it becomes due.
const CANCELED: (u32, u32) = (1, 10);

/// Rows per statement.
const BATCH: usize = 500;

/// A task to be.
#[derive(Clone)]
pub(super) struct Planned {
    id: String,
    due: DateTime<Utc>,
    /// When it is inserted; `None`: before everything.
    insert: Option<DateTime<Utc>>,
    cancel: Option<DateTime<Utc>>,
}

/// What a cancel answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Answer {
    /// It waited: it runs nowhere.
    Certain,
    /// Cancelled, but the broker may have it.
    InFlight,
    /// Too late, or not there yet.
    No,
    /// The database went away before it answered.
    Unknown,
}

/// What was asked for, and what was answered.
#[derive(Default)]
pub(super) struct Requests {
    pub(super) due: BTreeMap<String, DateTime<Utc>>,
    pub(super) cancels: BTreeMap<String, Answer>,
}

/// `count` tasks that are due between the two instants.
pub(super) fn plan(
    random: &mut StdRng,
    count: usize,
    (from, to): (DateTime<Utc>, DateTime<Utc>),
) -> Vec<Planned> {
    let span = (to - from).num_milliseconds();
    (0..count)
        .map(|n| {
            let due = from + TimeDelta::milliseconds(random.random_range(0..span));
            // One of five comes some seconds before it is due.
            let insert = (n % 5 == 0).then(|| due - TimeDelta::milliseconds(random.random_range(0..5_000)));
            let cancel = random.random_ratio(CANCELED.0, CANCELED.1).then(|| {
                if random.random() {
                    due + TimeDelta::milliseconds(random.random_range(-60..60))
                } else {
                    due - TimeDelta::milliseconds(random.random_range(500..8_000))
                }
            });
            Planned {
                id: format!("torture-{n}"),
                due,
                insert,
                cancel,
            }
        })
        .collect()
}

/// Inserts and cancels as planned; ends when all has been sent.
pub(super) async fn send_and_cancel(installation: &Arc<Installation>, plan: Vec<Planned>) -> Requests {
    let sql = installation.sql();
    let due = plan
        .iter()
        .map(|planned| (planned.id.clone(), planned.due))
        .collect();
    let (early, later): (Vec<_>, Vec<_>) = plan
        .clone()
        .into_iter()
        .partition(|planned| planned.insert.is_none());
    let cancels = Arc::new(Mutex::new(BTreeMap::new()));
    for batch in early.chunks(BATCH) {
        insert(&sql, batch).await;
    }
    let mut work = JoinSet::new();
    for planned in later {
        let sql = sql.clone();
        work.spawn(async move {
            until(planned.insert.unwrap_or(planned.due)).await;
            insert(&sql, std::slice::from_ref(&planned)).await;
        });
    }
    for planned in plan {
        let Some(at) = planned.cancel else { continue };
        let (sql, cancels) = (sql.clone(), Arc::clone(&cancels));
        work.spawn(async move {
            until(at).await;
            let answer = cancel(&sql, &planned.id).await;
            cancels.lock().unwrap().insert(planned.id, answer);
        });
    }
    while let Some(ended) = work.join_next().await {
        ended.unwrap();
    }
    let cancels = std::mem::take(&mut *cancels.lock().unwrap());
    Requests { due, cancels }
}

async fn until(at: DateTime<Utc>) {
    sleep((at - Utc::now()).to_std().unwrap_or_default()).await;
}

/// Until it is in: of a commit without an answer nothing is known, and the same ids again do no harm.
async fn insert(sql: &PgPool, tasks: &[Planned]) {
    let ids: Vec<&str> = tasks.iter().map(|task| task.id.as_str()).collect();
    let due: Vec<DateTime<Utc>> = tasks.iter().map(|task| task.due).collect();
    loop {
        let done = sqlx::query(
            "INSERT INTO tidegate.tasks (task_id, task_type, envelope, due_at) \
             SELECT id, $3, format('{\"taskId\":\"%s\",\"taskType\":\"%s\",\"payload\":{}}', id, $3), due \
             FROM unnest($1::text[], $2::timestamptz[]) AS t (id, due) ON CONFLICT (task_id) DO NOTHING",
        )
        .bind(&ids)
        .bind(&due)
        .bind(WORK)
        .execute(sql)
        .await;
        if done.is_ok() {
            return;
        }
        sleep(Duration::from_millis(200)).await;
    }
}

/// As any client does it with nothing but SQL.
async fn cancel(sql: &PgPool, id: &str) -> Answer {
    let answer = sqlx::query_scalar::<_, String>("SELECT tidegate.cancel($1)")
        .bind(id)
        .fetch_one(sql)
        .await;
    match answer.as_deref() {
        Ok("canceled") => Answer::Certain,
        Ok("canceled_in_flight") => Answer::InFlight,
        Ok(_) => Answer::No,
        Err(_) => Answer::Unknown,
    }
}
