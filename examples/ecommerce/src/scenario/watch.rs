//! Watches the ends: dead letters as they arrive, cron fires as they are written, and whether all is over.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use super::{FACTS, FIRES};
use crate::{
    journal::{self, DeadLetter},
    problem::Problem,
    report::Checked,
    shop::Shop,
    verdict::{End, Expect, Outcome, Row, Sent, judge},
};

/// Longest wait for everything to come to its end.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long to look out for what should not come: a second delivery, a second dead letter.
const QUIET: Duration = Duration::from_secs(1);

/// Time between two looks into the archive.
const LOOK: Duration = Duration::from_millis(50);

/// Later than this after its planned time is a difference.
const LATEST: TimeDelta = TimeDelta::seconds(2);

/// Writes dead letters down as they come into the archive, until what it returns is dropped.
pub(crate) fn dead_letters(shop: &Shop) -> AbortOnDropHandle<()> {
    let shop = shop.clone();
    AbortOnDropHandle::new(tokio::spawn(async move {
        let mut seen: Vec<Uuid> = Vec::new();
        loop {
            // A look that fails is repeated: whoever waits for the ends says what is missing.
            for letter in archived(&shop, &seen).await.unwrap_or_default() {
                let error: String = letter.error.chars().take(90).collect();
                shop.narrator.say(
                    "archive",
                    format_args!("dead letter from {}: {} ({error})", letter.queue, letter.reason),
                );
                seen.push(letter.id);
                shop.journal.died(DeadLetter {
                    key: journal::key(&letter.body),
                    reason: letter.reason,
                    body: letter.body,
                });
            }
            tokio::time::sleep(LOOK).await;
        }
    }))
}

/// A row of the archive.
#[derive(sqlx::FromRow)]
struct Letter {
    id: Uuid,
    queue: String,
    reason: String,
    error: String,
    body: Vec<u8>,
}

/// What has come since.
async fn archived(shop: &Shop, seen: &[Uuid]) -> Result<Vec<Letter>, sqlx::Error> {
    sqlx::query_as(
        "SELECT id, queue, reason, error, body FROM tidegate.dead_letters WHERE id <> ALL ($1) ORDER BY archived_at, id",
    )
    .bind(seen)
    .fetch_all(&shop.pool)
    .await
}

/// Waits until every message has come to its end or patience is over, and judges.
pub(crate) async fn ends(shop: &Shop, sent: &[Sent]) -> Result<Vec<Row>, Problem> {
    let end = Instant::now() + PATIENCE;
    let mut quiet_since = None;
    loop {
        let cron = cron_fires(shop).await?;
        let fires = cron.len();
        let all: Vec<_> = sent.iter().cloned().chain(cron).collect();
        let (runs, dead) = shop.journal.read();
        let rows = judge(&all, &runs, &dead, LATEST);
        let over = fires >= FIRES && rows.iter().all(|row| row.outcome != Outcome::Waiting);
        let since = *quiet_since.get_or_insert_with(Instant::now);
        if !over {
            quiet_since = None;
        }
        if (over && since.elapsed() >= QUIET) || Instant::now() > end {
            return Ok(rows);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// What the scheduler enqueued, each with its planned time.
async fn cron_fires(shop: &Shop) -> Result<Vec<Sent>, Problem> {
    let fires: Vec<(String, DateTime<Utc>)> = sqlx::query_as(
        "SELECT task_id, fire_at::timestamptz FROM tidegate.cron_fires WHERE task_id IS NOT NULL ORDER BY fire_at",
    )
    .fetch_all(&shop.pool)
    .await?;
    let fire = |(task_id, planned)| Sent {
        step: 5,
        task_type: "marketing.recall.push".to_owned(),
        key: task_id,
        body: None,
        planned,
        expect: Expect {
            attempts: 1,
            end: End::Done,
        },
    };
    Ok(fires.into_iter().map(fire).collect())
}

/// Asks the tables for every fact of the scenario.
pub(crate) async fn facts(shop: &Shop) -> Result<Vec<Checked>, Problem> {
    let mut checks = Vec::new();
    for &(step, what, question, wanted) in FACTS {
        let found: Option<String> = sqlx::query_scalar(question)
            .fetch_optional(&shop.pool)
            .await?
            .flatten();
        checks.push(Checked {
            step,
            what,
            wanted,
            found: found.unwrap_or_else(|| "nothing".to_owned()),
        });
    }
    Ok(checks)
}
