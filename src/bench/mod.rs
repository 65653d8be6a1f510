//! Measures publisher and worker on a broker, beside plain lapin at the same work in the same run.
//!
//! May import: `broker`, `ledger`, `publish`, `topology`, `worker`. Everything happens in a throw-away virtual host: no
//! task of anybody else is touched, and a killed run leaves that behind for the next one to delete. The sides take turns,
//! so that what slows the machine down slows all of them.

mod cpu;
mod ground;
mod ours;
mod report;

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use self::{ground::Ground, ours::Handled};
pub use self::{
    ground::TASK_TYPE,
    report::{Figure, Report},
};
use crate::{
    broker::{
        BrokerSettings,
        connection::LinkError,
        declare::DeclareError,
        management::{Management, ManagementError},
        plain::{self, Drain, PlainError, Sending},
    },
    ledger::PostgresLedger,
    publish::SendError,
};

/// Messages that plain lapin acknowledges at once where it acknowledges several.
const BATCH: u64 = 50;

/// Tasks a second of the part about delays, where nobody says otherwise.
const DELAYED: f64 = 500.0;

/// What to measure with.
#[derive(Clone, Debug)]
pub struct BenchSettings {
    /// Bytes of a message.
    pub size: usize,
    /// How long each side publishes in each part.
    pub length: Duration,
    /// At most so many tasks a second end to end; `None`: as many as go.
    pub per_second: Option<f64>,
    /// Workers, each with a connection of its own.
    pub workers: usize,
    /// Handlers that run at once in each.
    pub concurrency: usize,
    /// Unacknowledged messages of each consumer, ours and lapin's.
    pub prefetch: u16,
    /// How often the whole is repeated.
    pub runs: usize,
}

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A virtual host can't be made or deleted by this user: it needs the tag `administrator`.
    #[error("a throw-away virtual host can't be made or deleted: {0}")]
    NoVhost(#[source] ManagementError),
    /// The broker doesn't answer, or refuses.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The queue can't be declared.
    #[error(transparent)]
    Declare(#[from] DeclareError),
    /// Plain lapin failed.
    #[error("plain lapin: {0}")]
    Plain(#[from] PlainError),
    /// Ours failed.
    #[error("publishing: {0}")]
    Send(#[from] SendError),
    /// Publisher or worker can't be built.
    #[error("{0}")]
    Build(String),
    /// Tasks that were published were not handled.
    #[error("{handled} of {published} tasks were handled, and no more came for a while")]
    Missing {
        /// So many were handled.
        handled: u64,
        /// So many were confirmed.
        published: u64,
    },
    /// Told to stop.
    #[error("interrupted")]
    Interrupted,
}

/// Runs everything. With a `ledger`, also end to end with idempotency; its rows are deleted afterwards.
pub async fn run(
    broker: &BrokerSettings,
    management: &Management,
    ledger: Option<PostgresLedger>,
    settings: &BenchSettings,
    cancel: &CancellationToken,
    progress: impl Fn(&str),
) -> Result<Report, BenchError> {
    let ground = Ground::create(broker, management, ledger, settings).await?;
    let measured = tokio::select! {
        () = cancel.cancelled() => Err(BenchError::Interrupted),
        measured = measure(&ground, settings, progress) => measured,
    };
    let cleared = ground.clear().await;
    let report = measured?;
    cleared?;
    Ok(report)
}

const OURS: &str = "Tidegate";
const SINGLE: &str = "plain lapin, an ack each";
const BATCHED: &str = "plain lapin, an ack per 50";

async fn measure(
    ground: &Ground,
    settings: &BenchSettings,
    progress: impl Fn(&str),
) -> Result<Report, BenchError> {
    let mut report = Report::default();
    for run in 1..=settings.runs {
        let step = |what: &str| progress(&format!("run {run} of {}: {what} …", settings.runs));
        step("publish and drain");
        for side in [OURS, SINGLE, BATCHED] {
            publish_and_drain(ground, settings, side, &mut report).await?;
        }
        step("end to end");
        for side in [OURS, SINGLE, BATCHED] {
            end_to_end(ground, settings, side, false, &mut report).await?;
        }
        if ground.ledger.is_some() {
            step("end to end with idempotency");
            end_to_end(ground, settings, OURS, true, &mut report).await?;
        }
        step("delays");
        delays(ground, settings, &mut report).await?;
    }
    report.compare("publish", OURS, &[SINGLE]);
    report.compare("drain", OURS, &[SINGLE, BATCHED]);
    report.compare("end to end", OURS, &[SINGLE, BATCHED]);
    report.compare_across("end to end with idempotency", "end to end", OURS, &[OURS, SINGLE]);
    Ok(report)
}

fn rate(count: u64, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64().max(1e-6)
}

async fn publish_and_drain(
    ground: &Ground,
    settings: &BenchSettings,
    side: &'static str,
    report: &mut Report,
) -> Result<(), BenchError> {
    let (published, took) = publish(ground, settings, side, None).await?;
    if side != BATCHED {
        report.add("publish", side, "tasks/s", rate(published, took));
    }
    let before = cpu::used();
    let took = match side {
        OURS => {
            let workers = ground.workers(settings, false)?;
            workers.expect(published);
            workers.finish().await?.span
        }
        _ => {
            let batch = if side == BATCHED { BATCH } else { 1 };
            let drain = Drain::start(ground.broker(), ground::QUEUE, settings.prefetch, batch).await?;
            drain.take(known(published)).await?
        }
    };
    report.add("drain", side, "tasks/s", rate(published, took));
    if let Some(micros) = cpu::per_task(before, published) {
        report.add("CPU time: drain", side, "µs/task", micros);
    }
    Ok(())
}

async fn end_to_end(
    ground: &Ground,
    settings: &BenchSettings,
    side: &'static str,
    idempotent: bool,
    report: &mut Report,
) -> Result<(), BenchError> {
    let part = if idempotent {
        "end to end with idempotency"
    } else {
        "end to end"
    };
    let before = cpu::used();
    let (published, took) = if side == OURS {
        let workers = ground.workers(settings, idempotent)?;
        workers.ready().await;
        let began = Instant::now();
        let (published, _) = publish(ground, settings, side, settings.per_second).await?;
        report.behind(part, published, workers.handled());
        workers.expect(published);
        let Handled { last, .. } = workers.finish().await?;
        (published, last.duration_since(began))
    } else {
        let batch = if side == BATCHED { BATCH } else { 1 };
        let drain = Drain::start(ground.broker(), ground::QUEUE, settings.prefetch, batch).await?;
        let (count, known) = tokio::sync::mpsc::channel(1);
        let taking = tokio::spawn(drain.take(known));
        let began = Instant::now();
        let (published, _) = publish(ground, settings, side, settings.per_second).await?;
        let _ = count.send(published).await;
        taking
            .await
            .map_err(|error| BenchError::Build(error.to_string()))??;
        (published, began.elapsed())
    };
    report.add(part, side, "tasks/s", rate(published, took));
    if let Some(micros) = cpu::per_task(before, published) {
        report.add(&format!("CPU time: {part}"), side, "µs/task", micros);
    }
    Ok(())
}

async fn publish(
    ground: &Ground,
    settings: &BenchSettings,
    side: &'static str,
    per_second: Option<f64>,
) -> Result<(u64, Duration), BenchError> {
    if side == OURS {
        return ground.publish(settings.length, per_second).await;
    }
    let sending = Sending {
        exchange: ground.exchange(),
        key: ground::TASK_TYPE.to_owned(),
        body: ground.bodies(),
        length: settings.length,
        per_second,
    };
    Ok(plain::publish(ground.broker(), &sending).await?)
}

/// Delays between a fifth of a second and the length of a part, at a steady rate.
async fn delays(ground: &Ground, settings: &BenchSettings, report: &mut Report) -> Result<(), BenchError> {
    let workers = ground.workers(settings, false)?;
    workers.ready().await;
    let per_second = settings.per_second.unwrap_or(DELAYED).min(DELAYED);
    let published = ground.publish_delayed(settings.length, per_second).await?;
    workers.expect(published);
    let mut late = workers.finish().await?.late;
    late.sort_unstable_by(f64::total_cmp);
    for (name, share) in [("p50", 0.50), ("p99", 0.99)] {
        let at = ((late.len() as f64 * share) as usize).min(late.len().saturating_sub(1));
        let value = late.get(at).copied().unwrap_or_default();
        report.add("lateness of delays", name, "ms", value);
    }
    Ok(())
}

fn known(count: u64) -> tokio::sync::mpsc::Receiver<u64> {
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    // There is room for one.
    let _ = sender.try_send(count);
    receiver
}
