//! Deliveries are settled in few frames: none too early, none forgotten at a stop, none lost by a kill.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tidegate::worker::{Context, TaskError};
use tokio::{sync::Semaphore, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::platform::{PATIENCE, Platform, Seen, envelope, noting};

const QUEUE: &str = "order.close.queue";

async fn send(platform: &Platform, tasks: usize) {
    let all = (0..tasks).map(|n| async move {
        let body = envelope(&format!("t{n}"), "order.close.timeout", "");
        platform.send(&body, Duration::ZERO).await.unwrap();
    });
    futures::future::join_all(all).await;
}

/// A worker that notes each task it has finished.
fn finishing(platform: &Platform) -> (Seen, CancellationToken, JoinHandle<()>) {
    let (seen, stop) = (Seen::default(), CancellationToken::new());
    let worker = platform
        .worker()
        .queue(QUEUE)
        .prefetch(200)
        .handle("order.close.timeout", noting(&seen))
        .build()
        .unwrap();
    (seen, stop.clone(), tokio::spawn(worker.run(stop)))
}

#[tokio::test(flavor = "multi_thread")]
async fn no_finished_delivery_comes_back_after_a_stop() {
    const TASKS: usize = 2_000;
    let platform = Platform::new().await;
    send(&platform, TASKS).await;
    let (first, stop) = (Seen::default(), CancellationToken::new());
    // Its own handler stops it: from outside, all might be done by then.
    let stopping = {
        let (note, count, stop) = (noting(&first), AtomicUsize::new(0), stop.clone());
        move |context: Context| {
            if count.fetch_add(1, Ordering::SeqCst) == TASKS / 10 {
                stop.cancel();
            }
            note(context)
        }
    };
    let worker = platform
        .worker()
        .queue(QUEUE)
        .prefetch(200)
        .handle("order.close.timeout", stopping)
        .build()
        .unwrap();
    let running = tokio::spawn(worker.run(stop));
    tokio::time::timeout(PATIENCE, running).await.unwrap().unwrap();
    let (second, stop, running) = finishing(&platform);
    // The broker's count alone may be from before the first task was sent.
    second.wait(TASKS - first.ids().len()).await;
    platform.drained(QUEUE).await;
    stop.cancel();
    running.await.unwrap();
    let (first, second) = (first.ids(), second.ids());
    assert!(first.len() < TASKS, "it was stopped in the middle");
    let twice: Vec<_> = first.iter().filter(|id| second.contains(id)).collect();
    assert!(
        twice.is_empty(),
        "finished before the stop and delivered again: {twice:?}"
    );
    assert_eq!(first.len() + second.len(), TASKS);
    platform.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_may_repeat_a_finished_delivery_and_loses_none() {
    const TASKS: usize = 2_000;
    let platform = Platform::new().await;
    send(&platform, TASKS).await;
    let mut workers = Vec::new();
    for _ in 0..3 {
        let (seen, _stop, running) = finishing(&platform);
        seen.wait(TASKS / 10).await;
        // All of it is dropped where it stands, with whatever is in its line.
        running.abort();
        let _ = running.await;
        workers.push(seen);
    }
    let (seen, stop, running) = finishing(&platform);
    workers.push(seen);
    // What ran in another thread at the moment of a kill may have been noted a moment later, and what was taken back twice
    // may wait as a suspect where the broker's count of the queue doesn't show it.
    let finished = || workers.iter().flat_map(Seen::ids).collect::<HashSet<_>>();
    tidegate_testkit::eventually(PATIENCE, "every task to be finished", async || {
        finished().len() == TASKS
    })
    .await;
    platform.drained(QUEUE).await;
    stop.cancel();
    running.await.unwrap();
    assert_eq!(finished().len(), TASKS);
    platform.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_still_runs_is_never_acknowledged_with_the_others() {
    const TASKS: usize = 300;
    let platform = Platform::new().await;
    send(&platform, TASKS).await;
    let (seen, gate) = (Seen::default(), Arc::new(Semaphore::new(0)));
    let slow = {
        let (seen, gate) = (seen.clone(), gate.clone());
        move |context: Context| {
            seen.note(&context);
            let gate = (context.envelope.task_id.as_str() == "t3").then(|| gate.clone());
            async move {
                if let Some(gate) = gate {
                    gate.acquire().await?.forget();
                }
                Ok::<(), TaskError>(())
            }
        }
    };
    let worker = platform
        .worker()
        .queue(QUEUE)
        .prefetch(20)
        .handle("order.close.timeout", slow)
        .build()
        .unwrap();
    let running = tokio::spawn(worker.run(CancellationToken::new()));
    // All others are acknowledged past it, though it is among the first.
    tidegate_testkit::eventually(PATIENCE, "all but one to be acknowledged", async || {
        let queue = platform.vhost.management().queue(QUEUE).await;
        queue.is_some_and(|queue| (queue.messages, queue.messages_unacknowledged) == (1, 1))
    })
    .await;
    assert_eq!(seen.all().len(), TASKS);
    running.abort();
    let _ = running.await;
    let (again, stop, running) = finishing(&platform);
    assert_eq!(again.wait(1).await[0].task_id, "t3");
    platform.drained(QUEUE).await;
    assert_eq!(again.ids(), ["t3"]);
    stop.cancel();
    running.await.unwrap();
    platform.close().await;
}
