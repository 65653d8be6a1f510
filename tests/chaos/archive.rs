//! Many tasks fail while broker, database and archivists are killed: archive and queues hold every id, and nothing is archived twice.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use rand::{Rng, SeedableRng, rngs::StdRng};
use tidegate::{
    core::{
        envelope::{Envelope, Limits},
        headers::Origin,
    },
    publish::{Task, TaskPublisher},
    worker::{Context, TaskError, Worker},
};
use tidegate_testkit::{PrivateServices, eventually};
use tokio::{sync::Mutex, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    installation::{Installation, PATIENCE, WORK, WORK_QUEUE},
    killer::{Habit, harass},
    seed,
};

/// Producers that work at once.
const PRODUCERS: usize = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_dead_letter_is_archived_while_broker_database_and_archivists_are_killed() {
    let _turn = crate::turns::machine().await;
    let (seed, began) = (seed(), Instant::now());
    let count = if crate::is_long() { 20_000 } else { 1_000 };
    let most = if crate::is_long() { 240 } else { 20 };
    tidegate_testkit::report(&format!("archive: TIDEGATE_SEED={seed}"));
    let mut random = StdRng::seed_from_u64(seed);
    let services = PrivateServices::start().await;
    let installation = Arc::new(Installation::on(services.services()).await);
    let roles = ["--roles", "router,archivist", "--set", "archive.batch=100"];
    let server = Mutex::new(installation.serve(&roles).await);
    let other = installation.serve(&roles).await;
    let stop = CancellationToken::new();
    let worker = failing(&installation, &stop);
    other.wait_ready().await;
    let set_up = began.elapsed();

    let until = Instant::now() + Duration::from_secs(most);
    let seeds: [u64; 3] = random.random();
    let habit = |up, down| Habit {
        up,
        down,
        at_least: 2,
    };
    let sends = send_all(&installation, count, Duration::from_secs(most - 5));
    let servers = harass(
        seeds[0],
        habit(1_000..5_000, 100..2_000),
        until,
        async || server.lock().await.process.kill(),
        async || *server.lock().await = installation.serve(&roles).await,
    );
    let brokers = harass(
        seeds[1],
        habit(4_000..8_000, 200..2_000),
        until,
        async || services.kill_broker().await,
        async || services.start_broker().await,
    );
    let databases = harass(
        seeds[2],
        habit(2_000..7_000, 500..4_000),
        until,
        async || services.kill_postgres().await,
        async || services.start_postgres().await,
    );
    let ((), servers, brokers, databases) = tokio::join!(sends, servers, brokers, databases);
    let chaos = began.elapsed() - set_up;

    let (sql, calm) = (installation.sql(), Instant::now());
    let all: BTreeSet<String> = (0..count).map(id).collect();
    let archived = eventually(PATIENCE * 3, "every id in the archive", async || {
        let ids: Result<Vec<String>, _> = sqlx::query_scalar("SELECT task_id FROM tidegate.dead_letters")
            .fetch_all(&sql)
            .await;
        let ids = ids.ok()?;
        let distinct: BTreeSet<String> = ids.iter().cloned().collect();
        (distinct == all).then_some(ids)
    })
    .await;
    eventually(PATIENCE, "the queues to be empty", async || {
        let queues = installation.vhost.management().queues().await;
        queues.len() > 100 && queues.iter().all(|queue| queue.messages == 0)
    })
    .await;
    // One death is one row: rows of one task are deaths of their own, each named by whoever dead-lettered it.
    let named_twice: i64 = sqlx::query_scalar(
        "SELECT count(*) - count(DISTINCT substring(properties FROM 'x-task-dead-letter-id\":{\"t\":\"S\",\"v\":\"([-0-9a-f]{36})')) \
         FROM tidegate.dead_letter_messages",
    )
    .fetch_one(&sql)
    .await
    .unwrap();
    assert_eq!(named_twice, 0, "deaths archived twice, or without a name");
    let counted: i64 = sqlx::query_scalar("SELECT sum(open)::bigint FROM tidegate.dead_letter_counts")
        .fetch_one(&sql)
        .await
        .unwrap();
    assert_eq!(usize::try_from(counted).unwrap(), archived.len());
    other.wait_ready().await;
    tidegate_testkit::report(&format!(
        "archive: TIDEGATE_SEED={seed}\n  {count} tasks failed, each is archived; {} died a second time under their own id\n  kills: \
         archivist {servers}, RabbitMQ {brokers}, Postgres {databases}\n  took: set-up {set_up:.1?}, chaos {chaos:.1?}, calm {:.1?}",
        archived.len() - all.len(),
        calm.elapsed()
    ));
    stop.cancel();
    worker.await.unwrap();
}

fn id(n: usize) -> String {
    format!("fails-{n}")
}

/// A worker that refuses everything.
fn failing(installation: &Installation, stop: &CancellationToken) -> tokio::task::JoinHandle<()> {
    let worker = Worker::builder(installation.broker(), installation.topology.clone())
        .queue(WORK_QUEUE)
        .handle(WORK, async |_: Context| -> Result<(), TaskError> {
            Err(TaskError::reject("business", "an error of business"))
        });
    tokio::spawn(worker.build().unwrap().run(stop.clone()))
}

/// Sends tasks over `span`, each again until it is confirmed.
async fn send_all(installation: &Installation, count: usize, span: Duration) {
    let mut settings = installation.broker();
    settings.confirm_timeout = Duration::from_secs(5);
    let publisher = installation.publisher(&settings);
    let (next, started) = (Arc::new(AtomicUsize::new(0)), Instant::now());
    let mut producers = JoinSet::new();
    for _ in 0..PRODUCERS {
        let (publisher, next) = (publisher.clone(), next.clone());
        producers.spawn(async move {
            loop {
                let n = next.fetch_add(1, Ordering::SeqCst);
                if n >= count {
                    return;
                }
                tokio::time::sleep_until(started + span.mul_f64(n as f64 / count as f64)).await;
                send(&publisher, n).await;
            }
        });
    }
    while let Some(done) = producers.join_next().await {
        done.unwrap();
    }
}

async fn send(publisher: &TaskPublisher, n: usize) {
    let body = format!(r#"{{"taskId":"{}","taskType":"{WORK}","payload":{{}}}}"#, id(n));
    let envelope = Envelope::parse(body.as_bytes(), &Limits::standard(), chrono::Utc::now()).unwrap();
    loop {
        let task = Task::new(body.clone(), &envelope, Origin::Amqp);
        if publisher.send(task, Duration::ZERO).await.is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
