//! A worker with the ledger as a process of its own: this test program, started again with nothing to do but that.

use std::{path::Path, process::Command, sync::Arc, time::Duration};

use serde::Deserialize;
use tidegate::{
    broker::BrokerSettings,
    ledger::{PostgresLedger, Transaction},
    topology::Topology,
    worker::{Context, TaskError, Worker, extract::Payload},
};
use tidegate_testkit::Process;

use super::{
    marks::{self, Pen, What},
    plan::{ATTEMPTS, CHARGE, CREDIT, QUEUE},
};
use crate::installation::Installation;

/// Handlers that run at once in one process.
pub(super) const CONCURRENCY: usize = 32;
/// Most transactions of handlers in one process.
const TRANSACTIONS: u32 = 8;

/// Where effects of `soak.credit` go; no key forbids a second one.
pub(super) const EFFECTS: &str = "CREATE TABLE soak_effects (key bigint NOT NULL)";

const AMQP: &str = "TIDEGATE_SOAK_WORKER_AMQP_URL";
const POSTGRES: &str = "TIDEGATE_SOAK_WORKER_DATABASE_URL";
const DIR: &str = "TIDEGATE_SOAK_WORKER_DIR";
const NAME: &str = "TIDEGATE_SOAK_WORKER_NAME";

/// What a handler is to do, as the payload says it.
#[derive(Clone, Debug, Deserialize)]
struct Order {
    n: u32,
    key: u32,
    behaviour: String,
    ms: u64,
}

/// Starts the `number`th process in `slot`.
pub(super) fn start(installation: &Installation, slot: usize, number: usize) -> Process {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "soak::worker::process", "--ignored", "--nocapture"]);
    command
        .env(AMQP, installation.vhost.amqp_url())
        .env(POSTGRES, installation.database.url())
        .env(DIR, installation.path())
        .env(NAME, format!("{slot}-{number}"));
    Process::start("worker", &mut command)
}

#[tokio::test]
#[ignore = "the worker process that the soak starts"]
async fn process() {
    let Ok(url) = std::env::var(AMQP) else { return };
    // Not at info: each retry and each dead letter would be a line.
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_max_level(tracing::Level::WARN)
        .init();
    let (dir, name) = (std::env::var(DIR).unwrap(), std::env::var(NAME).unwrap());
    let dir = Path::new(&dir);
    let (slot, number) = name.split_once('-').unwrap();
    let pen = marks::path(dir, slot.parse().unwrap(), number.parse().unwrap());
    let pen = Arc::new(Pen::open(&pen));
    let mut settings = BrokerSettings::new(url.into());
    settings.name = format!("soak worker {name}");
    let ledger = PostgresLedger::connect(&std::env::var(POSTGRES).unwrap().into()).unwrap();
    let credits = pen.clone();
    Worker::builder(settings, Arc::new(Topology::load(&dir.join("topology")).unwrap()))
        .concurrency(CONCURRENCY)
        .ledger(ledger.transactions(TRANSACTIONS))
        .queue(QUEUE)
        .handle(CHARGE, move |context: Context, Payload(order): Payload<Order>| {
            charge(pen.clone(), context, order)
        })
        .handle(CREDIT, move |context: Context, Payload(order): Payload<Order>| {
            credit(credits.clone(), context, order)
        })
        .build()
        .unwrap()
        .run_until_signal()
        .await;
}

async fn charge(pen: Arc<Pen>, context: Context, order: Order) -> Result<(), TaskError> {
    order.fail(&pen, &context).await?;
    pen.mark(What::Effect, order.key)?;
    Ok(())
}

async fn credit(pen: Arc<Pen>, context: Context, order: Order) -> Result<(), TaskError> {
    order.fail(&pen, &context).await?;
    let mut transaction = Transaction::of(&context).await?;
    sqlx::query("INSERT INTO soak_effects VALUES ($1)")
        .bind(i64::from(order.key))
        .execute(&mut *transaction)
        .await?;
    pen.mark(What::Written, order.key)?;
    Ok(())
}

impl Order {
    /// What it does before it has an effect; an error, if it is to have none.
    async fn fail(&self, pen: &Pen, context: &Context) -> Result<(), TaskError> {
        if self.ms > 0 {
            tokio::time::sleep(Duration::from_millis(self.ms)).await;
        }
        match self.behaviour.as_str() {
            "second_time" if context.attempt == 1 => Err(TaskError::retry("once", "not yet")),
            "never" => {
                if context.attempt == ATTEMPTS {
                    pen.mark(What::Failed, self.n)?;
                }
                Err(TaskError::retry("never", "it never works"))
            }
            "rejects" => {
                pen.mark(What::Failed, self.n)?;
                Err(TaskError::reject("business", "an error of business"))
            }
            _ => Ok(()),
        }
    }
}
