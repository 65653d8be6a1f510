//! A worker as a process of its own: this test program, started again with nothing to do but that.

use std::{path::Path, process::Command, sync::Arc, time::Duration};

use serde::Deserialize;
use tidegate::{
    broker::BrokerSettings,
    worker::{Context, TaskError, Worker, extract::Payload},
};
use tidegate_testkit::Process;

use crate::{
    installation::{TICK, TICK_QUEUE, WORK, WORK_QUEUE, topology},
    journal::Pen,
};

const AMQP: &str = "TIDEGATE_CHAOS_WORKER_AMQP_URL";
const JOURNAL: &str = "TIDEGATE_CHAOS_WORKER_JOURNAL";

/// What a handler is to do, as the payload says it.
#[derive(Clone, Debug, Deserialize)]
struct Order {
    #[serde(default)]
    behaviour: String,
    #[serde(default)]
    ms: u64,
}

/// Starts a worker on both queues, which writes what it does to `journal`.
pub(crate) fn start(amqp: &str, journal: &Path) -> Process {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "worker::process", "--ignored", "--nocapture"]);
    command.env(AMQP, amqp).env(JOURNAL, journal);
    Process::start("worker", &mut command)
}

#[tokio::test]
#[ignore = "the worker process that the other tests start"]
async fn process() {
    let Ok(url) = std::env::var(AMQP) else { return };
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_max_level(tracing::Level::INFO)
        .init();
    let pen = Arc::new(Pen::open(Path::new(&std::env::var(JOURNAL).unwrap())));
    let mut settings = BrokerSettings::new(url.into());
    settings.name = "chaos worker".to_owned();
    let mut worker = Worker::builder(settings, Arc::new(topology()))
        .concurrency(8)
        .prefetch(12);
    worker = worker.queue(WORK_QUEUE).queue(TICK_QUEUE);
    for task_type in [WORK, TICK] {
        let pen = pen.clone();
        worker = worker.handle(
            task_type,
            move |context: Context, Payload(order): Payload<Order>| work(pen.clone(), context, order),
        );
    }
    worker.build().unwrap().run_until_signal().await;
}

async fn work(pen: Arc<Pen>, context: Context, order: Order) -> Result<(), TaskError> {
    let (id, attempt) = (context.envelope.task_id.to_string(), context.attempt);
    pen.note("start", &id, attempt)?;
    tokio::time::sleep(Duration::from_millis(order.ms)).await;
    match order.behaviour.as_str() {
        "fails_always" => return Err(TaskError::retry("always", "it never works")),
        "fails_twice" if attempt <= 2 => return Err(TaskError::retry("twice", "not yet")),
        "rejects" => return Err(TaskError::reject("business", "an error of business")),
        _ => {}
    }
    pen.note("done", &id, attempt)?;
    Ok(())
}
