//! Cron rows as teams insert them, and the count of their occurrences.

use std::{collections::BTreeMap, time::Duration};

use chrono::{DateTime, Utc};
use sqlx::PgPool;
use tidegate::core::cron::Schedule;
use tidegate_testkit::eventually;

use crate::installation::{PATIENCE, TICK};

const ZONES: [&str; 5] = [
    "UTC",
    "Asia/Shanghai",
    "America/New_York",
    "Asia/Kathmandu",
    "Pacific/Chatham",
];

/// Time between registering rows and their first occurrence: a server has that long to notice them.
const NOTICE: Duration = Duration::from_secs(10);

#[derive(Debug)]
struct Row {
    id: i64,
    schedule: Schedule,
}

/// Registered rows that all begin and end at the same instants.
#[derive(Debug)]
pub(crate) struct Schedules {
    rows: Vec<Row>,
    pub(crate) starts_at: DateTime<Utc>,
    pub(crate) ends_at: DateTime<Utc>,
}

/// One occurrence that the ledger accounts for, or a run of them that were skipped.
#[derive(Clone, Debug, sqlx::FromRow)]
pub(crate) struct Fire {
    cron_task_id: i64,
    /// The first, and the only one unless it was skipped.
    #[sqlx(rename = "fire_at")]
    pub(crate) at: DateTime<Utc>,
    last_at: Option<DateTime<Utc>>,
    occurrences: i64,
    pub(crate) outcome: String,
    pub(crate) task_id: Option<String>,
    pub(crate) recorded_at: DateTime<Utc>,
}

impl Fire {
    /// Every occurrence that it stands for.
    fn instants(&self, schedule: &Schedule) -> Vec<DateTime<Utc>> {
        let last = self.last_at.unwrap_or(self.at);
        let all: Vec<_> = std::iter::successors(Some(self.at), |at| schedule.next_after(*at))
            .take_while(|at| *at <= last)
            .collect();
        assert_eq!(all.len() as i64, self.occurrences, "{self:?}");
        all
    }
}

impl Schedules {
    /// Registers a row per period, a number of seconds from 1 to 59, in zones that take turns, to run for `lifetime`. A server
    /// must be running.
    pub(crate) async fn register(sql: &PgPool, periods: &[u32], lifetime: Duration) -> Self {
        let (starts_at, ends_at): (DateTime<Utc>, DateTime<Utc>) = sqlx::query_as(
            "SELECT now() + $1 * interval '1 second', now() + ($1 + $2) * interval '1 second'",
        )
        .bind(NOTICE.as_secs_f64())
        .bind(lifetime.as_secs_f64())
        .fetch_one(sql)
        .await
        .unwrap();
        let mut rows = Vec::new();
        for (n, period) in periods.iter().enumerate() {
            let (expression, zone) = (format!("*/{period} * * * * *"), ZONES[n % ZONES.len()]);
            let id = sqlx::query_scalar(
                "INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression, time_zone, starts_at, ends_at, payload) \
                 VALUES ($1, $2, $3, $4, $5, $6, '{\"ms\": 5}') RETURNING id",
            )
            .bind(format!("row-{n}"))
            .bind(TICK)
            .bind(&expression)
            .bind(zone)
            .bind(starts_at)
            .bind(ends_at)
            .fetch_one(sql)
            .await
            .unwrap();
            rows.push(Row {
                id,
                schedule: Schedule::parse(&expression, zone).unwrap(),
            });
        }
        eventually(PATIENCE, "every row to have its first time", async || {
            let waiting =
                "SELECT count(*) FROM tidegate.cron_tasks WHERE next_fire_at IS NULL AND NOT exhausted";
            sqlx::query_scalar::<_, i64>(waiting)
                .fetch_one(sql)
                .await
                .unwrap()
                == 0
        })
        .await;
        assert!(Utc::now() < starts_at, "the rows were noticed within {NOTICE:?}");
        Self {
            rows,
            starts_at,
            ends_at,
        }
    }

    /// Waits until every row has been worked off to its end.
    pub(crate) async fn ended(&self, sql: &PgPool, patience: Duration) {
        eventually(patience, "every schedule to have ended", async || {
            let left = "SELECT count(*) FROM tidegate.cron_tasks WHERE NOT exhausted";
            // The database may be down.
            sqlx::query_scalar::<_, i64>(left)
                .fetch_one(sql)
                .await
                .is_ok_and(|left| left == 0)
        })
        .await;
    }

    /// All recorded occurrences, after comparing them with the calendar: none is missing, none is there that should not be.
    /// That none is there twice is asked of the rows and not of the table's key.
    pub(crate) async fn verified(&self, sql: &PgPool) -> Vec<Fire> {
        let fires: Vec<Fire> = sqlx::query_as(
            "SELECT cron_task_id, fire_at, last_at, occurrences, outcome, task_id, recorded_at FROM tidegate.cron_fires",
        )
        .fetch_all(sql)
        .await
        .unwrap();
        let mut recorded: BTreeMap<i64, Vec<DateTime<Utc>>> = BTreeMap::new();
        for fire in &fires {
            let row = self.rows.iter().find(|row| row.id == fire.cron_task_id);
            let row = row.unwrap_or_else(|| panic!("an occurrence of no row: {fire:?}"));
            recorded
                .entry(fire.cron_task_id)
                .or_default()
                .extend(fire.instants(&row.schedule));
        }
        for row in &self.rows {
            let mut found = recorded.remove(&row.id).unwrap_or_default();
            found.sort();
            let expected = self.occurrences(&row.schedule);
            assert_eq!(found, expected, "occurrences of row {}", row.id);
        }
        let mut ids: Vec<_> = fires.iter().filter_map(|fire| fire.task_id.as_deref()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(
            ids.len(),
            fires.iter().filter(|fire| fire.task_id.is_some()).count(),
            "task ids are unique"
        );
        fires
    }

    fn occurrences(&self, schedule: &Schedule) -> Vec<DateTime<Utc>> {
        let mut at = self.starts_at - chrono::TimeDelta::microseconds(1);
        let mut all = Vec::new();
        while let Some(next) = schedule.next_after(at).filter(|next| *next < self.ends_at) {
            all.push(next);
            at = next;
        }
        all
    }
}
