//! Two thousand tasks, while worker, server, broker and database are killed at random.

use std::{sync::Arc, time::Duration};

use chrono::Utc;
use rand::{Rng, SeedableRng, rngs::StdRng};
use tidegate_testkit::{PrivateServices, Process};
use tokio::{sync::Mutex, time::Instant};

use crate::{
    accounts::{Accounts, DeadLetters},
    installation::{Installation, PATIENCE},
    killer::{Habit, harass},
    load,
    producers::{self, Log},
    schedules::Schedules,
    seed,
};

/// How long things are killed. Longer where a kill of something slow is still missing.
const CHAOS: Duration = Duration::from_secs(60);
/// How long after the last kill everything must have ended: the longest delay, retries, and the back-off of what could not be
/// sent.
const CALM: Duration = Duration::from_secs(120);

const PERIODS: [u32; 9] = [1, 2, 3, 4, 5, 6, 7, 9, 10];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_task_ends_while_everything_is_killed() {
    let (seed, began) = (seed(), Instant::now());
    tidegate_testkit::report(&format!("chaos: TIDEGATE_SEED={seed}"));
    let mut random = StdRng::seed_from_u64(seed);
    let services = PrivateServices::start().await;
    let installation = Arc::new(Installation::on(services.services()).await);
    let server = Mutex::new(installation.serve(&[]).await);
    let worker = Mutex::new(installation.worker());
    server.lock().await.wait_ready().await;
    let sql = installation.sql();
    let schedules = Schedules::register(&sql, &PERIODS, CHAOS).await;
    let set_up = began.elapsed();

    let log = Arc::new(Log::default());
    let plan = load::plan(&mut random, CHAOS - Duration::from_secs(5));
    let planned = plan.len();
    let until = Instant::now() + CHAOS;
    let seeds: [u64; 4] = random.random();
    let habit = |up, down| Habit {
        up,
        down,
        at_least: 3,
    };
    let sends = producers::send_all(&installation, plan, &log);
    let workers = harass(
        seeds[0],
        habit(2_000..6_000, 100..1_500),
        until,
        async || worker.lock().await.kill(),
        async || *worker.lock().await = installation.worker(),
    );
    let servers = harass(
        seeds[1],
        habit(2_000..7_000, 100..2_000),
        until,
        async || server.lock().await.process.kill(),
        async || *server.lock().await = installation.serve(&[]).await,
    );
    let brokers = harass(
        seeds[2],
        habit(5_000..9_000, 200..2_000),
        until,
        async || services.kill_broker().await,
        async || services.start_broker().await,
    );
    let databases = harass(
        seeds[3],
        habit(4_000..10_000, 200..3_000),
        until,
        async || services.kill_postgres().await,
        async || services.start_postgres().await,
    );
    let ((), workers, servers, brokers, databases) =
        tokio::join!(sends, workers, servers, brokers, databases);
    let chaos = began.elapsed() - set_up;
    assert_eq!(
        log.accepted.lock().unwrap().len(),
        planned,
        "everything was accepted in the end"
    );

    let calm = Instant::now();
    schedules.ended(&sql, CALM).await;
    let fires = schedules.verified(&sql).await;
    let mut dead = DeadLetters::default();
    let mut quiet = 0;
    // Quiet is to be seen twice, as counts can be a second old.
    while quiet < 2 {
        let journal = installation.journal();
        dead = DeadLetters::archived(&sql).await.unwrap();
        let accounts = Accounts {
            log: &log,
            fires: &fires,
            journal: &journal,
            dead: &dead,
        };
        let open = accounts.open();
        let waiting = waiting(&installation).await;
        let pending: i64 =
            // The worker has no ledger; of those that died the archivist told.
            sqlx::query_scalar("SELECT count(*) FROM tidegate.tasks WHERE state NOT IN ('PUBLISHED', 'FAILED')")
                .fetch_one(&sql)
                .await
                .unwrap();
        quiet = if open.is_empty() && waiting.is_empty() && pending == 0 {
            quiet + 1
        } else {
            0
        };
        if calm.elapsed() > CALM {
            let worker = tail(&worker.lock().await.output());
            let server = tail(&server.lock().await.process.output());
            panic!(
                "not at rest {CALM:?} after the last kill (seed {seed}): {} open {open:?}, queues {waiting:?}, {pending} rows \
                 not handed over\n{worker}\n{server}",
                open.len()
            );
        }
        tokio::time::sleep(Duration::from_millis(1_200)).await;
    }
    let journal = installation.journal();
    let accounts = Accounts {
        log: &log,
        fires: &fires,
        journal: &journal,
        dead: &dead,
    };
    let books = accounts.close();
    // Every occurrence was accounted for within a minute, so none is a misfire, and each has sent its task.
    assert!(fires.iter().all(|fire| fire.task_id.is_some()), "{fires:?}");
    tidegate_testkit::report(&format!(
        "chaos: TIDEGATE_SEED={seed}\n  kills: worker {workers}, serve {servers}, RabbitMQ {brokers}, Postgres {databases}\n{books}  \
         took: set-up {set_up:.1?}, chaos {chaos:.1?}, calm {:.1?}",
        calm.elapsed()
    ));
    assert!(Utc::now() > schedules.ends_at);
    server.lock().await.wait_ready().await;
    stop(&mut *worker.lock().await).await;
    stop(&mut server.lock().await.process).await;
}

/// Queues that hold messages, with their counts.
async fn waiting(installation: &Installation) -> Vec<(String, u64)> {
    let queues = installation.vhost.management().queues().await;
    assert!(queues.len() > 100, "the queues are all there");
    queues
        .into_iter()
        .filter(|queue| queue.messages > 0)
        .map(|queue| (queue.name, queue.messages))
        .collect()
}

async fn stop(process: &mut Process) {
    process.terminate();
    let status = process.wait(PATIENCE).await;
    assert!(status.success(), "{status}:\n{}", tail(&process.output()));
}

/// The last lines of a log.
fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}
