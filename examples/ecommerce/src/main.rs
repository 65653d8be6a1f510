//! A shop on Tidegate: the e-commerce scenario, run against real RabbitMQ and Postgres, and checked.
//!
//! Also the manual of the library by example. Where to look: `shop/` for handlers and the worker, `scenario/producer.rs`
//! for publishing by the library and by any AMQP client, `scenario/mod.rs` for what is sent and expected,
//! `python/consumer.py` for a consumer without an SDK, `stage/tidegate_binary.rs` for running the server.
//!
//! Exit code 0: every task came to the end that was expected. 1: one differed, or it could not be run. 130: stopped.

mod journal;
mod narrator;
mod problem;
mod report;
mod scenario;
mod shop;
mod stage;
mod verdict;

use std::{io::Write, panic::AssertUnwindSafe, process::ExitCode, sync::Arc, time::Duration};

use clap::Parser;
use futures::FutureExt;
use tidegate::topology::Topology;
use tokio::{
    signal::unix::{SignalKind, signal},
    time::timeout,
};

use crate::{
    journal::Journal,
    narrator::Narrator,
    problem::Problem,
    scenario::{play, producer::Producer, watch},
    shop::Shop,
    stage::Stage,
};

/// Longest start-up.
const START_UP: Duration = Duration::from_secs(180);

/// Longest run of the scenario.
const LONGEST: Duration = Duration::from_secs(60);

/// Runs the e-commerce scenario on RabbitMQ and Postgres and checks every task.
///
/// Needs AMQP_URL, MANAGEMENT_URL and DATABASE_URL; `./dev demo` sets them.
#[derive(Debug, Parser)]
struct Arguments {
    /// Leave server and workers running until Ctrl-C, and print where to look.
    #[arg(long)]
    keep: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let narrator = Narrator::new();
    let mut stage = match Stage::plan(narrator) {
        Ok(stage) => stage,
        Err(problem) => return failed(&problem),
    };
    let ended = {
        let show = AssertUnwindSafe(show(&mut stage, narrator)).catch_unwind();
        tokio::select! {
            ended = show => ended.unwrap_or_else(|_| Err(Problem::Child("the example panicked".to_owned()))),
            () = stopped() => Err(Problem::Interrupted),
        }
    };
    if matches!(
        ended,
        Ok(false) | Err(Problem::Child(_) | Problem::Send(_) | Problem::Database(_) | Problem::Broker(_))
    ) {
        narrator.print(stage.logs());
    }
    if arguments.keep && ended.is_ok() {
        invite(&stage, &narrator);
        stopped().await;
    }
    stage.strike().await;
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(Problem::Interrupted) => ExitCode::from(130),
        Err(problem) => failed(&problem),
    }
}

/// From the empty stage to the verdict; `false` if something differs.
async fn show(stage: &mut Stage, narrator: Narrator) -> Result<bool, Problem> {
    // What the worker logs goes to a file that is shown only if something goes wrong.
    let log = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_max_level(tracing::Level::INFO);
    log.with_writer(stage.log("worker.log")?).init();

    narrator.print("A shop on Tidegate: ten things that happen in it, each with an expected end.\n");
    let topology = Arc::new(Topology::load(&Stage::topology_dir())?);
    let Ok(set) = timeout(START_UP, set(stage, &topology, narrator)).await else {
        return Err(Problem::Child(format!(
            "not everything was up within {START_UP:?}"
        )));
    };
    let shop = set?;

    let scenario = async {
        let watching = watch::dead_letters(&shop);
        let producer = Producer::connect(stage.broker(), stage.amqp_url(), topology).await?;
        let sent = play::play(&shop, &producer).await?;
        let rows = watch::ends(&shop, &sent).await?;
        let checks = watch::facts(&shop).await?;
        drop(watching);
        Ok(report::print(&narrator, &rows, &checks))
    };
    match timeout(LONGEST, scenario).await {
        Ok(ended) => ended,
        Err(_) => Err(Problem::Child(format!(
            "the scenario did not end within {LONGEST:?}"
        ))),
    }
}

/// Server, tables, workers, in this order.
async fn set(stage: &mut Stage, topology: &Arc<Topology>, narrator: Narrator) -> Result<Shop, Problem> {
    stage.set().await?;
    let shop = Shop {
        pool: stage.pool()?,
        journal: Journal::default(),
        narrator,
    };
    shop.open().await?;
    stage.cast(&shop, topology.clone()).await?;
    Ok(shop)
}

/// What to look at and try while everything runs.
fn invite(stage: &Stage, narrator: &Narrator) {
    let (pages, user) = stage.management();
    let name = stage.name();
    narrator.print(format_args!(
        r#"
Everything still runs, until Ctrl-C.

  queues       {pages}
               user {user}; the password is in MANAGEMENT_URL (in .dev/env, if ./dev started the broker)
  dead         the table tidegate.dead_letters: bodies, headers, reasons and errors
  metrics      {metrics}/metrics
  health       {health}/readyz
  names        vhost and database are both called {name}

Try, in another terminal, after:  set -a; . .dev/env; set +a
  a task from Rust, Python or Go, one now and one in 5 s; this one line, then a line below it
               export AMQP_URL="${{AMQP_URL%/*}}/{name}"
               cargo run --example first_task
               python3 examples/producers/python/first_task.py
               (cd examples/producers/go && go run .)
  a cron row, by any SQL client
               psql "${{DATABASE_URL%/*}}/{name}" -c "INSERT INTO tidegate.cron_tasks
               (name, task_type, cron_expression) VALUES ('mine', 'notify.push.send', '*/5 * * * * *')"
"#,
        metrics = stage.metrics_url,
        health = stage.health_url,
    ));
}

/// Waits for Ctrl-C, SIGTERM or a terminal that was closed.
async fn stopped() {
    let wait = |kind| async move {
        match signal(kind) {
            Ok(mut signal) => {
                signal.recv().await;
            }
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        () = wait(SignalKind::interrupt()) => {}
        () = wait(SignalKind::terminate()) => {}
        () = wait(SignalKind::hangup()) => {}
    }
}

fn failed(problem: &Problem) -> ExitCode {
    let _ = writeln!(std::io::stderr().lock(), "tidegate-ecommerce: error: {problem}");
    ExitCode::FAILURE
}
