//! Cron rows of one second to one minute, with a calendar that owes nothing to the code under test: no zone has an offset with
//! seconds, so a row is a set of seconds of the minute.

use std::{collections::BTreeSet, ops::Range};

use chrono::{DateTime, DurationRound, TimeDelta, Timelike, Utc};
use rand::{Rng, rngs::StdRng, seq::IndexedRandom};
use sqlx::PgPool;
use tidegate_testkit::eventually;

use crate::installation::{PATIENCE, TICK};

const ZONES: [&str; 5] = [
    "UTC",
    "Asia/Shanghai",
    "America/New_York",
    "Asia/Kathmandu",
    "Pacific/Chatham",
];

/// A row that was registered.
pub(super) struct Row {
    pub(super) id: i64,
    seconds: BTreeSet<u32>,
    span: Range<DateTime<Utc>>,
}

impl Row {
    /// All instants at which it must fire.
    pub(super) fn occurrences(&self) -> Vec<DateTime<Utc>> {
        let second = TimeDelta::seconds(1);
        let mut at = self.span.start.duration_trunc(second).unwrap();
        if at < self.span.start {
            at += second;
        }
        let mut all = Vec::new();
        while at < self.span.end {
            if self.seconds.contains(&at.second()) {
                all.push(at);
            }
            at += second;
        }
        all
    }
}

pub(super) async fn database_now(sql: &PgPool) -> DateTime<Utc> {
    sqlx::query_scalar("SELECT now()").fetch_one(sql).await.unwrap()
}

/// An expression and its seconds of the minute.
fn expression(random: &mut StdRng) -> (String, BTreeSet<u32>) {
    match random.random_range(0..10) {
        0 => ("* * * * *".to_owned(), BTreeSet::from([0])),
        1..4 => {
            let count = random.random_range(1..=8);
            let seconds: BTreeSet<u32> = (0..count).map(|_| random.random_range(0..60)).collect();
            let list: Vec<String> = seconds.iter().map(ToString::to_string).collect();
            (format!("{} * * * * *", list.join(",")), seconds)
        }
        _ => {
            let period = random.random_range(1..=30);
            let seconds = (0..60).filter(|second| second % period == 0).collect();
            (format!("*/{period} * * * * *"), seconds)
        }
    }
}

/// Registers rows that begin and end with `span`, and waits until each has its first time. A server must be running.
pub(super) async fn register(
    sql: &PgPool,
    random: &mut StdRng,
    count: usize,
    (starts_at, ends_at): (DateTime<Utc>, DateTime<Utc>),
) -> Vec<Row> {
    let mut rows = Vec::new();
    for n in 0..count {
        let (expression, seconds) = expression(random);
        let misfire = ["fire_once", "skip", "catch_up"].choose(random).unwrap();
        let overlap = if random.random_ratio(1, 5) {
            "skip"
        } else {
            "allow"
        };
        let jitter = if random.random_ratio(1, 10) {
            random.random_range(1..2_000)
        } else {
            0
        };
        let id = sqlx::query_scalar(
            "INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression, time_zone, starts_at, ends_at, misfire_policy, \
               catch_up_limit, overlap_policy, jitter_ms) VALUES ($1, $2, $3, $4, $5, $6, $7, 1000, $8, $9) RETURNING id",
        )
        .bind(format!("torture-{n}"))
        .bind(TICK)
        .bind(expression)
        .bind(ZONES[n % ZONES.len()])
        .bind(starts_at)
        .bind(ends_at)
        .bind(misfire)
        .bind(overlap)
        .bind(jitter)
        .fetch_one(sql)
        .await
        .unwrap();
        rows.push(Row {
            id,
            seconds,
            span: starts_at..ends_at,
        });
    }
    eventually(PATIENCE, "every row to have its first time", async || {
        let waiting = "SELECT count(*) FROM tidegate.cron_tasks WHERE next_fire_at IS NULL AND NOT exhausted";
        // The torture has begun for the servers only later; nothing is down.
        sqlx::query_scalar::<_, i64>(waiting)
            .fetch_one(sql)
            .await
            .unwrap()
            == 0
    })
    .await;
    assert!(Utc::now() < starts_at, "the rows were noticed before their start");
    rows
}
