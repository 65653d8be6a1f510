//! A worker as a process of its own, whose handlers may end it: this test program, started again with nothing to do
//! but that, and again whenever it has died.

use std::{
    collections::BTreeMap,
    fs::OpenOptions,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    sync::Arc,
    time::Duration,
};

use serde::Deserialize;
use tempfile::TempDir;
use tidegate::{
    broker::BrokerSettings,
    topology::Topology,
    worker::{Context, TaskError, Worker, extract::Payload},
};
use tidegate_testkit::{Process, eventually};

use crate::platform::TOPOLOGY;

const AMQP: &str = "TIDEGATE_FLOW_WORKER_AMQP_URL";
const JOURNAL: &str = "TIDEGATE_FLOW_WORKER_JOURNAL";
const SLOTS: &str = "TIDEGATE_FLOW_WORKER_SLOTS";

/// What a handler is to do.
#[derive(Clone, Debug, Deserialize)]
struct Order {
    #[serde(default)]
    ms: u64,
    /// Ends the process after `ms`.
    #[serde(default)]
    kills: bool,
    /// Fails instead of succeeding, on the first attempt.
    #[serde(default)]
    fails_first: bool,
}

/// A body for these handlers.
pub(crate) fn order(id: &str, payload: &str, more: &str) -> String {
    format!(r#"{{"taskId":"{id}","taskType":"order.close.timeout","payload":{payload}{more}}}"#)
}

/// A supervised worker process and what it wrote down.
pub(crate) struct Supervised {
    amqp: String,
    slots: usize,
    process: Process,
    dir: TempDir,
    /// What the processes before this one printed.
    printed: String,
    pub(crate) deaths: usize,
}

/// What became of one task.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entry {
    pub(crate) starts: usize,
    pub(crate) ends: usize,
}

impl Supervised {
    pub(crate) fn start(amqp: &str, slots: usize) -> Self {
        let dir = TempDir::with_prefix("tidegate-crash-").unwrap();
        Self {
            process: start(amqp, &journal(&dir), slots),
            amqp: amqp.to_owned(),
            slots,
            dir,
            printed: String::new(),
            deaths: 0,
        }
    }

    /// Starts the process again if it has died.
    pub(crate) fn supervise(&mut self) {
        if !self.process.is_running() {
            self.deaths += 1;
            self.printed += &self.process.output();
            self.process = start(&self.amqp, &journal(&self.dir), self.slots);
        }
    }

    /// Supervises until `done` says so of what was written down.
    pub(crate) async fn until(
        &mut self,
        patience: Duration,
        what: &str,
        done: impl Fn(&BTreeMap<String, Entry>) -> bool,
    ) {
        eventually(patience, what, async || {
            self.supervise();
            done(&self.journal())
        })
        .await;
    }

    /// Ends the process as the kernel does when memory is short.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Asks it to stop.
    pub(crate) fn terminate(&self) {
        self.process.terminate();
    }

    /// Waits for its end; nobody starts it again.
    pub(crate) async fn ended(&mut self, patience: Duration) -> ExitStatus {
        self.process.wait(patience).await
    }

    pub(crate) fn journal(&self) -> BTreeMap<String, Entry> {
        let mut entries = BTreeMap::<String, Entry>::new();
        let text = std::fs::read_to_string(journal(&self.dir)).unwrap_or_default();
        for line in text.lines() {
            let (event, id) = line.split_once(' ').unwrap();
            let entry = entries.entry(id.to_owned()).or_default();
            match event {
                "start" => entry.starts += 1,
                "end" => entry.ends += 1,
                _ => panic!("{line}"),
            }
        }
        entries
    }

    /// All that its processes printed.
    pub(crate) fn output(&self) -> String {
        format!("{}{}", self.printed, self.process.output())
    }
}

fn journal(dir: &TempDir) -> PathBuf {
    dir.path().join("journal")
}

fn start(amqp: &str, journal: &Path, slots: usize) -> Process {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "crashing_worker::process", "--ignored", "--nocapture"]);
    command
        .env(AMQP, amqp)
        .env(JOURNAL, journal)
        .env(SLOTS, slots.to_string());
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
    let pen = OpenOptions::new()
        .create(true)
        .append(true)
        .open(std::env::var(JOURNAL).unwrap())
        .unwrap();
    let (pen, slots) = (Arc::new(pen), std::env::var(SLOTS).unwrap().parse().unwrap());
    let topology = Topology::parse(&[("platform.toml", ""), ("test.toml", TOPOLOGY)]).unwrap();
    Worker::builder(BrokerSettings::new(url.into()), Arc::new(topology))
        .queue("order.close.queue")
        .concurrency(slots)
        .handle(
            "order.close.timeout",
            move |context: Context, Payload(order): Payload<Order>| {
                let pen = pen.clone();
                async move {
                    let id = context.envelope.task_id.to_string();
                    // One write each: lines of several processes don't mix.
                    (&*pen).write_all(format!("start {id}\n").as_bytes())?;
                    tokio::time::sleep(Duration::from_millis(order.ms)).await;
                    if order.kills {
                        std::process::abort();
                    }
                    if order.fails_first && context.attempt == 1 {
                        return Err(TaskError::retry("first", "not yet"));
                    }
                    (&*pen).write_all(format!("end {id}\n").as_bytes())?;
                    Ok(())
                }
            },
        )
        .build()
        .unwrap()
        .run_until_signal()
        .await;
}
