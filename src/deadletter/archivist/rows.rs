//! Tells the ledger which of its tasks are dead, where whoever failed with them told it nothing: a worker without a ledger, or one
//! whose report was lost.
//!
//! May import: `core`, `broker`, `publish`, `store`, `supervisor`, `telemetry`. Told after the commit and before the
//! acknowledgement: dying in between, the messages come again, and are told of again, which changes nothing. A row that can't be
//! written holds up the archive for some seconds and no longer; it stays as it was, and is counted.

use std::{collections::HashMap, time::Duration};

use tidegate_core::{
    headers::{self, Origin},
    lifecycle::End,
};
use tokio::time::{Instant, sleep};

use super::batch::Taken;
use crate::{
    broker::message,
    publish::resend::Failure,
    store::{Store, life::Told},
    supervisor::backoff,
    telemetry::metrics,
};

/// How long rows are tried that somebody has locked, or while the database is away.
const PATIENCE: Duration = Duration::from_secs(5);

/// Tells of those of `taken` whose tasks have rows.
pub(super) async fn tell(store: &Store, taken: &[Taken]) {
    let mut left = reports(taken);
    let (began, mut waits) = (Instant::now(), backoff());
    while !left.is_empty() {
        let why = match store.unless_lost(store.life().report(&left)).await {
            Ok(settled) => {
                let mut settled = settled.into_iter();
                left.retain(|_| settled.next() != Some(true));
                "somebody has locked their rows".to_owned()
            }
            Err(error) if error.is_transient() => error.to_string(),
            Err(error) => return lost(&left, &error.to_string()),
        };
        let pause = waits.next().unwrap_or_default();
        if began.elapsed() + pause > PATIENCE && !left.is_empty() {
            return lost(&left, &why);
        }
        if !left.is_empty() {
            sleep(pause).await;
        }
    }
}

fn lost(left: &[Told], why: &str) {
    tracing::warn!(
        tasks = left.len(),
        why,
        "the ledger's rows of dead tasks stay as they were"
    );
    for _ in left {
        metrics::ledger_result_lost();
    }
}

/// One for each task, however many of its deaths are in the batch: the last.
fn reports(taken: &[Taken]) -> Vec<Told> {
    let of_tasks: HashMap<&str, Told> = taken
        .iter()
        .filter(|taken| {
            let origin = message::text(&taken.incoming.properties, headers::ORIGIN);
            origin.and_then(Origin::parse).is_some_and(Origin::has_row)
        })
        .filter_map(|Taken { letter, .. }| {
            let failure = Failure {
                kind: letter.error_kind.clone(),
                message: letter.error.clone(),
            };
            let task_id = letter.task_id.as_deref()?;
            let told = Told {
                task_id: task_id.to_owned(),
                queue: letter.queue.clone(),
                run: None,
                end: End::Failed,
                error: failure.line(Some(letter.reason)),
            };
            Some((task_id, told))
        })
        .collect();
    of_tasks.into_values().collect()
}
