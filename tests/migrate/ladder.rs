//! The next generation of the ladder while delays are pending in the one before.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use chrono::{DateTime, Utc};
use tidegate::{
    topology::Topology,
    worker::{Context, Worker},
};
use tidegate_testkit::{eventually, report};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::platform::{FILES, PATIENCE, Platform, QUEUE, task};

const TASKS: usize = 400;
const LONGEST: u64 = 30_000;

type Seen = Arc<Mutex<BTreeMap<String, Vec<DateTime<Utc>>>>>;

/// Sends [`TASKS`] tasks with delays from nothing to [`LONGEST`] ms; answers when each is due.
async fn send(
    platform: &Platform,
    topology: &Arc<Topology>,
    generation: &str,
) -> BTreeMap<String, DateTime<Utc>> {
    let mut sending = JoinSet::new();
    for n in 0..TASKS {
        let (tasks, id) = (platform.tasks(topology), format!("{generation}-{n}"));
        sending.spawn(async move {
            let delay = Duration::from_millis(LONGEST * n as u64 / TASKS as u64);
            let body = format!(r#"{{"taskId":"{id}","taskType":"order.close.timeout","payload":{{}}}}"#);
            let due = Utc::now() + delay;
            tasks.send(task(&body), delay).await.unwrap();
            (id, due)
        });
    }
    sending.join_all().await.into_iter().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_ladder_takes_over_while_delays_are_pending() {
    let (platform, first) = Platform::from_files(FILES, &[]).await;
    let files = [
        ("platform.toml", "prefix = \"task\"\nladder_version = 2"),
        FILES[1],
    ];
    let second = Arc::new(Topology::parse(&files).unwrap());
    let (seen, stop) = (Seen::default(), CancellationToken::new());
    let worker = Worker::builder(platform.settings.clone(), second.clone())
        .queue(QUEUE)
        .concurrency(100)
        .handle("order.close.timeout", {
            let seen = seen.clone();
            move |context: Context| {
                let id = context.envelope.task_id.to_string();
                seen.lock().unwrap().entry(id).or_default().push(Utc::now());
                std::future::ready(())
            }
        });
    let worker = tokio::spawn(worker.build().unwrap().run(stop.clone()));
    let mut due = send(&platform, &first, "v1").await;

    platform.declare(&second.objects()).await;
    platform.write(&files);
    due.extend(send(&platform, &second, "v2").await);
    let mut program = platform.migrate(&["ladder", "--no-wait"]);
    assert!(program.wait(PATIENCE).await.success(), "{}", program.output());
    assert!(
        program.output().contains("messages pending") && program.output().contains("nothing was deleted"),
        "{}",
        program.output()
    );

    // Killed once while it waits, and once while it deletes.
    for text in ["waiting for", "deleted task.delay.v1.4"] {
        let mut program = platform.migrate(&["ladder", "--retire"]);
        program.printed(PATIENCE, text).await;
        program.kill();
    }
    let mut program = platform.migrate(&["ladder", "--retire", "--json"]);
    assert!(program.wait(PATIENCE).await.success(), "{}", program.output());
    let live = platform.management().read_live().await.unwrap();
    let names = live
        .queues
        .iter()
        .map(|q| &q.name)
        .chain(live.exchanges.iter().map(|e| &e.name));
    let (old, new): (Vec<_>, Vec<_>) = names
        .filter(|name| name.contains(".delay.v"))
        .partition(|name| name.contains(".delay.v1."));
    assert_eq!((old.len(), new.len()), (0, 113), "{old:?}");

    eventually(PATIENCE, "all tasks", async || {
        seen.lock().unwrap().len() >= due.len()
    })
    .await;
    stop.cancel();
    worker.await.unwrap();
    let seen = seen.lock().unwrap().clone();
    let early: Vec<_> = due
        .iter()
        .filter(|(id, due)| seen[*id].iter().any(|at| at < *due))
        .collect();
    let doubled: Vec<_> = seen.iter().filter(|(_, times)| times.len() > 1).collect();
    let late = due
        .iter()
        .map(|(id, due)| seen[id][0] - *due)
        .max()
        .unwrap_or_default();
    report(&format!(
        "{} delays over two ladders, at most {} ms late\n{}",
        due.len(),
        late.num_milliseconds(),
        program.output()
    ));
    assert!(
        early.is_empty() && doubled.is_empty() && seen.len() == due.len(),
        "early {early:?}, doubled {doubled:?}"
    );
    platform.vhost.close().await;
}
