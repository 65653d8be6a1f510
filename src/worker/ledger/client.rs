//! The worker's side of the ledger: claims, results, and requests to cancel what runs.
//!
//! May import: `batcher`, `telemetry`. One per worker, shared by all its queues, so that their tasks go in the
//! same batches. A claim has no answer while the ledger is away: what may have been cancelled never runs. A result
//! waits for a bounded time, and is then told in the background.

use std::{
    collections::HashMap,
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures::FutureExt;
use tokio::{sync::Notify, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{Ask, End, Ledger, LedgerError, Report, Verdict};
use crate::{
    batcher::{BatchLoop, Batcher, MOST, Statement, batcher},
    telemetry::{health::Health, metrics},
};

/// Longest wait for a result to be written before its delivery is acknowledged anyway.
const PATIENCE: Duration = Duration::from_secs(5);

/// The same once the grace period is over.
const LAST_PATIENCE: Duration = Duration::from_millis(500);

/// How often the ledger is asked whether something that runs is to be cancelled.
const CANCEL_POLL: Duration = Duration::from_secs(1);

/// Longest wait for one look at the requests to cancel.
const CANCEL_LIMIT: Duration = Duration::from_secs(15);

/// Most results that wait, in line and again being told; further ones are lost and counted.
const RESULTS: usize = 4_096;

/// Most claims that wait beside those being asked; their deliveries are bounded by the workers' concurrency.
const CLAIMS: usize = 1_024;

/// Claims.
struct Starts {
    ledger: Arc<dyn Ledger>,
    results: Batcher<Results>,
}

#[async_trait]
impl Statement for Starts {
    type Item = Ask;
    type Answer = Verdict;
    const KIND: &'static str = "start";
    const PART: &'static str = "ledger";
    const OUTLIVES_CALLER: bool = false;

    fn task_id(item: &Ask) -> &str {
        &item.task_id
    }

    async fn perform(&self, items: &[Ask]) -> Result<Vec<Option<Verdict>>, LedgerError> {
        self.ledger.start(items).await
    }

    /// The claim was given up while it was on its way, and the delivery has gone back or to the ladder.
    fn unheard(&self, item: Ask, answer: Verdict) {
        if let Verdict::Start { run: run @ Some(_) } = answer {
            let back = Report {
                task_id: item.task_id,
                queue: item.queue,
                run,
                end: End::GivenBack,
                error: None,
            };
            if !self.results.try_submit(back) {
                metrics::ledger_result_lost();
            }
        }
    }
}

/// Results.
struct Results {
    ledger: Arc<dyn Ledger>,
}

#[async_trait]
impl Statement for Results {
    type Item = Report;
    type Answer = ();
    const KIND: &'static str = "result";
    const PART: &'static str = "ledger results";
    const OUTLIVES_CALLER: bool = true;

    fn task_id(item: &Report) -> &str {
        &item.task_id
    }

    async fn perform(&self, items: &[Report]) -> Result<Vec<Option<()>>, LedgerError> {
        if items.is_empty() {
            self.ledger.start(&[]).await?;
            return Ok(Vec::new());
        }
        let settled = self.ledger.report(items).await?;
        Ok(settled.into_iter().map(|settled| settled.then_some(())).collect())
    }

    fn refused(&self, item: &Report, why: &str) -> Option<()> {
        tracing::error!(task_id = %item.task_id, end = ?item.end, why, "the ledger refuses a result; it is lost");
        metrics::ledger_result_lost();
        Some(())
    }
}

/// What runs at this moment, to find whom a request to cancel concerns.
#[derive(Default)]
struct Running {
    tasks: Mutex<HashMap<u64, (String, CancellationToken)>>,
    serial: AtomicU64,
    /// Something began to run.
    began: Notify,
}

impl Running {
    // A poisoned lock only means that another thread panicked while holding it; the map is still whole.
    fn tasks(&self) -> std::sync::MutexGuard<'_, HashMap<u64, (String, CancellationToken)>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn to_ask_about(&self) -> Vec<String> {
        let tasks = self.tasks();
        let uncancelled = tasks.values().filter(|(_, cancel)| !cancel.is_cancelled());
        uncancelled.map(|(id, _)| id.clone()).collect()
    }

    fn cancel(&self, asked: &[String]) {
        for (id, cancel) in self.tasks().values() {
            if asked.contains(id) && !cancel.is_cancelled() {
                tracing::info!(task_id = %id, "asked to cancel what runs; telling its handler");
                cancel.cancel();
            }
        }
    }
}

/// A task that runs, for as long as this lives.
pub(in crate::worker) struct Watched {
    running: Arc<Running>,
    serial: u64,
    /// Cancelled when somebody asks to cancel the task.
    pub(in crate::worker) cancel: CancellationToken,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.running.tasks().remove(&self.serial);
    }
}

/// The ledger as stations use it; cheap to clone.
#[derive(Clone)]
pub(in crate::worker) struct Client {
    starts: Batcher<Starts>,
    results: Batcher<Results>,
    running: Arc<Running>,
    /// Cancelled when the grace period is over.
    hurry: CancellationToken,
}

/// What works behind the [`Client`]s.
pub(in crate::worker) struct Loops {
    ledger: Arc<dyn Ledger>,
    starts: BatchLoop<Starts>,
    results: BatchLoop<Results>,
    running: Arc<Running>,
}

/// A client of `ledger` and what works behind it, whose parts `health` shows.
pub(in crate::worker) fn client(
    ledger: Arc<dyn Ledger>,
    health: &Health,
    hurry: CancellationToken,
) -> (Client, Loops) {
    health.expect(Starts::PART);
    health.expect(Results::PART);
    let results = Results {
        ledger: ledger.clone(),
    };
    let (results, telling) = batcher(results, RESULTS, health.clone());
    let starts = Starts {
        ledger: ledger.clone(),
        results: results.clone(),
    };
    let (starts, asking) = batcher(starts, CLAIMS, health.clone());
    let running = Arc::new(Running::default());
    let client = Client {
        starts,
        results,
        running: running.clone(),
        hurry,
    };
    let loops = Loops {
        ledger,
        starts: asking,
        results: telling,
        running,
    };
    (client, loops)
}

impl Client {
    /// Claims a delivery, however long the ledger is away. Dropped before it ends, the delivery counts as not started.
    pub(in crate::worker) async fn start(&self, ask: &Ask) -> Verdict {
        loop {
            let Some(answer) = self.starts.submit(ask.clone()).await else {
                // The loop ends after all stations only.
                return std::future::pending().await;
            };
            // No answer: the ledger panicked. Ask again.
            if let Ok(verdict) = answer.await {
                return verdict;
            }
        }
    }

    /// Lets `task_id` be cancelled while it runs.
    pub(in crate::worker) fn watch(&self, task_id: &str) -> Watched {
        let serial = self.running.serial.fetch_add(1, Ordering::Relaxed);
        let cancel = CancellationToken::new();
        self.running
            .tasks()
            .insert(serial, (task_id.to_owned(), cancel.clone()));
        self.running.began.notify_one();
        Watched {
            running: self.running.clone(),
            serial,
            cancel,
        }
    }

    /// Tells a result, and waits a bounded time for it to be written. What takes longer is told in the background.
    pub(in crate::worker) async fn report(&self, report: Report) {
        let patience = async {
            tokio::select! {
                () = tokio::time::sleep(PATIENCE) => {}
                () = async {
                    self.hurry.cancelled().await;
                    tokio::time::sleep(LAST_PATIENCE).await;
                } => {}
            }
        };
        tokio::pin!(patience);
        let task_id = report.task_id.clone();
        let answer = tokio::select! {
            answer = self.results.submit(report) => answer,
            () = &mut patience => None,
        };
        let Some(answer) = answer else {
            metrics::ledger_result_lost();
            tracing::warn!(task_id, "too many results wait for the ledger; this one is lost");
            return;
        };
        tokio::select! {
            _ = answer => {}
            () = patience => {
                metrics::ledger_result_late();
                tracing::debug!(task_id, "acknowledged before the ledger has the result");
            }
        }
    }
}

impl Loops {
    /// Works until every client is gone and every result is written.
    pub(in crate::worker) async fn run(self) {
        let batches = async { tokio::join!(self.starts.run(), self.results.run()) };
        tokio::select! {
            _ = batches => {}
            () = watch_over(self.ledger, self.running) => {}
        }
    }
}

/// Asks once per second about everything that runs, and nothing while nothing runs.
///
/// A poll rather than `LISTEN`: it needs no connection of its own, works through a pooler, and can't miss a request.
async fn watch_over(ledger: Arc<dyn Ledger>, running: Arc<Running>) {
    let mut away = false;
    loop {
        let ids = running.to_ask_about();
        if ids.is_empty() {
            running.began.notified().await;
        }
        for ids in ids.chunks(MOST) {
            metrics::ledger_asked("cancel", ids.len());
            let asked = AssertUnwindSafe(timeout(CANCEL_LIMIT, ledger.cancel_requested(ids))).catch_unwind();
            let why = match asked.await {
                Ok(Ok(Ok(asked))) => {
                    running.cancel(&asked);
                    away = false;
                    continue;
                }
                Ok(Ok(Err(error))) => error.to_string(),
                Ok(Err(_)) => format!("no answer within {CANCEL_LIMIT:?}"),
                Err(_) => "asking it panicked".to_owned(),
            };
            if !away {
                tracing::warn!(why, "can't see requests to cancel what runs; trying again");
            }
            away = true;
        }
        tokio::time::sleep(CANCEL_POLL).await;
    }
}
