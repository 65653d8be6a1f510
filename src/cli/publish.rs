//! `tidegate publish`: one task from a file, stdin or flags, or many as lines.
//!
//! May import: `publish`, `services`. All input is checked before the first task is sent. If the process dies while
//! sending, the tasks it has printed are stored; of the others some may be.

use std::{
    fs::File,
    io::{self, Read},
    path::PathBuf,
};

use chrono::{DateTime, SecondsFormat, Utc};
use futures::{StreamExt, stream};

use super::{
    delay,
    failure::{Detail, Exit, Failure},
    output::Output,
    published::{Published, not_sent, print},
    services,
};
use crate::{
    broker::{connection::Link, publisher::Publisher, unrouted::UnroutedWatch},
    config::{Config, Loaded},
    publish::{
        SendError, TaskPublisher,
        prepare::{Draft, DueFrom, Prepared, When, prepare},
    },
    topology::Topology,
};

/// Most input in bytes, one task or many.
const MAX_INPUT_BYTES: u64 = 64 * 1024 * 1024;

const EXAMPLES: &str = "\
Examples:
  tidegate publish --type order.close --payload '{\"orderId\":\"1\"}' --delay 30s
  tidegate publish task.json --at 2026-12-24T18:00:00+01:00
  producer | tidegate publish - --lines --json

The envelope is sent byte for byte; only a missing taskId is added. Exit code 4: no queue takes the key;
7: the broker is away, blocked or did not confirm: the same taskId may be sent again.";

/// Arguments of `publish`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Publish {
    /// File that holds the envelope; `-` is stdin
    #[arg(value_name = "FILE", required_unless_present = "task_type")]
    file: Option<PathBuf>,
    /// The input is many envelopes, one per line; all of it is read and checked before the first task is sent
    #[arg(long, requires = "file")]
    lines: bool,
    /// Task type, to make the envelope from flags
    #[arg(long = "type", value_name = "TYPE", conflicts_with = "file")]
    task_type: Option<String>,
    /// Payload: a JSON object
    #[arg(long, value_name = "JSON", requires = "task_type", default_value = "{}")]
    payload: String,
    /// Task id; a UUIDv7 where absent
    #[arg(long, requires = "task_type")]
    id: Option<String>,
    /// 0 to 255
    #[arg(long, requires = "task_type")]
    priority: Option<u8>,
    /// Trace id
    #[arg(long, value_name = "TRACE_ID", requires = "task_type")]
    trace: Option<String>,
    /// Delay, e.g. 30s, 0.5s, 500ms, 1h30m
    #[arg(long, conflicts_with = "at", allow_hyphen_values = true)]
    delay: Option<String>,
    /// Instant with offset, e.g. 2026-12-24T18:00:00+01:00; one in the past is now
    #[arg(long, value_name = "RFC3339")]
    at: Option<String>,
    /// Routing key; by default the task type
    #[arg(long)]
    key: Option<String>,
    /// Exchange; by default the platform's
    #[arg(long)]
    exchange: Option<String>,
    /// Send even if no queue of the topology files takes the key
    #[arg(long)]
    allow_unrouted: bool,
}

impl Publish {
    /// Runs the command.
    pub(super) async fn run(self, loaded: &Loaded, output: Output) -> Result<(), Failure> {
        let config = &loaded.config;
        let tasks = self.tasks(config)?;
        let (topology, has_files) = services::topology_if_any(loaded)?;
        if !has_files {
            output.message(
                "note: there are no topology files here, so routing keys are not checked before sending",
            );
        } else if self.exchange.is_none() && !self.allow_unrouted {
            for task in &tasks {
                check_route(&topology, task.task.key())?;
            }
        }
        self.notes(&tasks, output);

        let settings = services::broker(config, "tidegate publish")?;
        // Says at once what a publish would only say by timing out: wrong address, wrong password.
        let link = Link::new(settings.clone(), "publish");
        link.channel()
            .await
            .map_err(|error| services::of_link(&error, config))?;
        let publisher = Publisher::start(&settings)
            .map_err(|why| Failure::new(Exit::Failed, why, "publisher", "report this as a bug"))?;
        let exchange = self.exchange.clone().unwrap_or_else(|| topology.names.exchange());
        let unrouted = topology.names.unrouted();
        let mut watch = self.watch(&link, &unrouted, output).await;
        let publisher = TaskPublisher::new(publisher, topology);
        let mut sent = stream::iter(tasks)
            .map(|task| send(&publisher, task, exchange.clone()))
            .buffered(config.amqp.in_flight)
            .ready_chunks(config.amqp.in_flight);
        let mut failed: Vec<(Published, SendError)> = Vec::new();
        while let Some(ended) = sent.next().await {
            if let Some(open) = &mut watch
                && let Err(error) = open.look().await
            {
                output.message(&format!(
                    "note: whether a queue takes the rest can't be checked: {error}"
                ));
                watch = None;
            }
            for (mut published, result) in ended {
                match published.judged(result, watch.as_ref()) {
                    Ok(()) => print(&published, output)?,
                    Err(error) => {
                        if output.json {
                            output.json_line(&published)?;
                        }
                        failed.push((published, error));
                    }
                }
            }
        }
        drop(sent);
        link.close().await;
        match failed.is_empty() {
            true => Ok(()),
            false => Err(not_sent(&failed)),
        }
    }

    fn tasks(&self, config: &Config) -> Result<Vec<Prepared>, Failure> {
        let when = self.when()?;
        let limits = config.limits.envelope();
        let now = Utc::now();
        let bodies = self.bodies()?;
        let mut tasks = Vec::with_capacity(bodies.len());
        for (place, body) in bodies {
            let mut task =
                prepare(body, when, &limits, now).map_err(|error| services::of_prepare(&error, &place))?;
            task.task.routing_key.clone_from(&self.key);
            task.task.exchange.clone_from(&self.exchange);
            tasks.push(task);
        }
        Ok(tasks)
    }

    fn when(&self) -> Result<When, Failure> {
        let usage = |why: String, flag: &str| {
            Failure::new(Exit::Usage, why, flag, "correct it; nothing was published")
        };
        match (&self.delay, &self.at) {
            (Some(text), _) => {
                delay::parse(text).map(When::After).map_err(|why| usage(format!("{text:?}: {why}"), "--delay"))
            }
            (None, Some(text)) => DateTime::parse_from_rfc3339(text).map(|at| When::At(at.to_utc())).map_err(|why| {
                usage(format!("{text:?} is not an instant with offset ({why}); write it like 2026-12-24T18:00:00+01:00"), "--at")
            }),
            (None, None) => Ok(When::AsWritten),
        }
    }

    /// The envelopes as bytes, each with the place it is from.
    fn bodies(&self) -> Result<Vec<(String, Vec<u8>)>, Failure> {
        if let Some(task_type) = &self.task_type {
            let draft = Draft {
                task_id: self.id.clone(),
                task_type: task_type.clone(),
                payload: self.payload.clone(),
                priority: self.priority,
                trace_id: self.trace.clone(),
            };
            let body = draft
                .into_bytes()
                .map_err(|error| services::of_prepare(&error, "--payload"))?;
            return Ok(vec![("the flags of this command".to_owned(), body)]);
        }
        let file = self.file.clone().unwrap_or_else(|| "-".into());
        let is_stdin = file.as_os_str() == "-";
        let name = if is_stdin {
            "stdin".to_owned()
        } else {
            file.display().to_string()
        };
        let unreadable = |why: io::Error| {
            Failure::new(
                Exit::Usage,
                why,
                &name,
                "name a file that can be read, or - for stdin",
            )
        };
        let source: Box<dyn Read> = if is_stdin {
            Box::new(io::stdin())
        } else {
            Box::new(File::open(&file).map_err(unreadable)?)
        };
        let mut input = Vec::new();
        source
            .take(MAX_INPUT_BYTES + 1)
            .read_to_end(&mut input)
            .map_err(unreadable)?;
        if input.len() as u64 > MAX_INPUT_BYTES {
            return Err(Failure::new(
                Exit::Usage,
                format!("the input is over {MAX_INPUT_BYTES} bytes"),
                name,
                "split it",
            ));
        }
        if !self.lines {
            return Ok(vec![(name, input)]);
        }
        let lines = input.split(|byte| *byte == b'\n').enumerate();
        let bodies: Vec<_> = lines
            .map(|(n, line)| {
                (
                    format!("{name}, line {}", n + 1),
                    line.strip_suffix(b"\r").unwrap_or(line),
                )
            })
            .filter(|(_, line)| !line.is_empty())
            .map(|(place, line)| (place, line.to_vec()))
            .collect();
        if bodies.is_empty() {
            return Err(Failure::new(
                Exit::Usage,
                "there is no line in the input",
                name,
                "give one envelope per line",
            ));
        }
        Ok(bodies)
    }

    /// Sees live what no queue takes; the topology files say only what should be bound.
    async fn watch(&self, link: &Link, unrouted: &str, output: Output) -> Option<UnroutedWatch> {
        if self.allow_unrouted || self.exchange.is_some() {
            return None;
        }
        match UnroutedWatch::open(link, unrouted).await {
            Ok(watch) => Some(watch),
            Err(error) => {
                output.message(&format!(
                    "note: whether a queue takes it can't be checked: {error}"
                ));
                None
            }
        }
    }

    fn notes(&self, tasks: &[Prepared], output: Output) {
        let scheduled = tasks
            .iter()
            .filter(|task| task.due_from == DueFrom::ScheduleTime)
            .count();
        match (scheduled, tasks) {
            (0, _) => {}
            (_, [task]) => output.message(&format!(
                "note: delayed until its scheduleTime, {}",
                shown(task.due)
            )),
            (n, _) => output.message(&format!("note: {n} tasks are delayed until their scheduleTime")),
        }
        let ids = tasks
            .iter()
            .filter(|task| task.id_added && self.task_type.is_none())
            .count();
        if ids > 0 {
            output.message(&format!(
                "note: a taskId was added to {ids} of {} tasks",
                tasks.len()
            ));
        }
    }
}

async fn send(
    publisher: &TaskPublisher,
    task: Prepared,
    exchange: String,
) -> (Published, Result<(), SendError>) {
    let published = Published {
        task_id: task.task.task_id.clone(),
        task_type: task.task.task_type.clone(),
        exchange,
        routing_key: task.task.key().to_owned(),
        due: shown(task.due),
        status: "confirmed",
        error: None,
    };
    let result = publisher.send_due(task.task, task.delay, task.due).await;
    (published, result)
}

/// A task that no queue takes would end in the platform's queue of unrouted messages, confirmed.
fn check_route(topology: &Topology, key: &str) -> Result<(), Failure> {
    if topology.routes(key).next().is_some() {
        return Ok(());
    }
    let detail = |queue: &crate::topology::BusinessQueue| {
        let patterns: Vec<_> = queue.bind.iter().map(|pattern| pattern.as_str()).collect();
        Detail {
            text: format!("{} takes {}", queue.name, patterns.join(", ")),
            data: serde_json::json!({"queue": queue.name, "bind": patterns}),
        }
    };
    Err(Failure::new(
        Exit::NotFound,
        format!("no queue takes the routing key {key:?}; these patterns exist:"),
        "topology files",
        "correct --key or the task type, bind a queue to it, or send it anyway with --allow-unrouted",
    )
    .with_details(topology.queues.iter().map(detail).collect()))
}

fn shown(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}
