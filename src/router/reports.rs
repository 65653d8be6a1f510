//! Tells the ledger what became of its tasks at consumers that tell it nothing: retried, or dead.
//!
//! May import: `core`, `batcher`, `telemetry`. Told once the message is confirmed where it goes next, and nobody waits for it:
//! the router routes as fast with the ledger away. What is not told yet is in memory; if the process dies, or more waits than
//! there is room for, the rows stay as they were, and their loss is counted.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use tidegate_core::{
    dispose::Disposition,
    headers::{self, Origin},
    lifecycle::End,
};
use tokio_util::sync::CancellationToken;

use super::Ledger;
use crate::{
    batcher::{BatchLoop, Batcher, LedgerError, Statement, batcher},
    broker::{consumer::Incoming, message},
    publish::resend::{Failure, Known},
    telemetry::{health::Health, metrics},
};

/// Most reports that wait, in line and again being told.
const ROOM: usize = 4_096;

/// How long what is left is told after the router has ended.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// What became of a task of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The task.
    pub task_id: String,
    /// The queue whose attempt failed.
    pub queue: String,
    /// [`End::Retrying`] or [`End::Failed`].
    pub end: End,
    /// Why, bounded as in headers.
    pub error: Option<String>,
}

struct Reports {
    ledger: Arc<dyn Ledger>,
}

#[async_trait]
impl Statement for Reports {
    type Item = Ended;
    type Answer = ();
    const KIND: &'static str = "routed";
    const PART: &'static str = "router reports";
    const OUTLIVES_CALLER: bool = true;

    fn task_id(item: &Ended) -> &str {
        &item.task_id
    }

    async fn perform(&self, items: &[Ended]) -> Result<Vec<Option<()>>, LedgerError> {
        let told = self.ledger.ended(items).await?;
        Ok(told.into_iter().map(|told| told.then_some(())).collect())
    }

    fn refused(&self, item: &Ended, why: &str) -> Option<()> {
        tracing::error!(task_id = %item.task_id, end = ?item.end, why, "the ledger refuses a report; it is lost");
        metrics::ledger_result_lost();
        Some(())
    }
}

/// Where the routes leave their reports.
#[derive(Clone)]
pub(super) struct Desk(Option<Batcher<Reports>>);

/// The loop that tells them; `None` where there is no ledger.
pub(super) struct Telling(Option<BatchLoop<Reports>>);

pub(super) fn desk(ledger: Option<&Arc<dyn Ledger>>, health: &Health) -> (Desk, Telling) {
    let pair = ledger.map(|ledger| {
        let ledger = ledger.clone();
        batcher(Reports { ledger }, ROOM, health.clone())
    });
    let (desk, telling) = pair.unzip();
    (Desk(desk), Telling(telling))
}

impl Desk {
    /// Leaves word of what `disposition` made of `incoming`, if the ledger has its row.
    pub(super) fn settled(
        &self,
        incoming: &Incoming,
        known: &Known,
        queue: &str,
        disposition: Disposition,
        failure: &Failure,
    ) {
        let (Some(desk), Some(task_id)) = (&self.0, &known.task_id) else {
            return;
        };
        let origin = message::text(&incoming.properties, headers::ORIGIN).and_then(Origin::parse);
        let end = match disposition {
            Disposition::Retry { .. } => End::Retrying,
            Disposition::Dead { .. } => End::Failed,
            Disposition::Ack | Disposition::PutOff { .. } | Disposition::GiveBack => return,
        };
        if !origin.is_some_and(Origin::has_row) {
            return;
        }
        let ended = Ended {
            task_id: task_id.clone(),
            queue: queue.to_owned(),
            end,
            error: failure.line(disposition.dead_reason()),
        };
        if !desk.try_submit(ended) {
            metrics::ledger_result_lost();
        }
    }
}

impl Telling {
    /// Tells until every desk is gone; what is left then, for a moment more.
    pub(super) async fn run(self, ended: CancellationToken) {
        let Some(telling) = self.0 else { return };
        let until = async {
            ended.cancelled().await;
            tokio::time::sleep(LAST_WORDS).await;
        };
        tokio::select! {
            () = telling.run() => {}
            () = until => tracing::warn!("reports to the ledger were given up at the stop; their rows stay as they were"),
        }
    }
}
