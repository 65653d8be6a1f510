//! B25: the broker's limit for an acknowledgement is shorter than a task, and the topology doesn't know of it.
//!
//! The broker takes the delivery back and hands it out again, with the channel lost (up to 4.2, which look once a minute) or the
//! consumer cancelled (4.3, at once). It must not run beside itself nor again after its end, and others must go on. Up to 4.2
//! only the long form shows it: `TIDEGATE_LONG=1`, a minute's limit on a broker of the test's own.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::json;
use tidegate::worker::Context;
use tidegate_testkit::{PrivateServices, Vhost, eventually, report};
use tokio::time::Instant;

use crate::platform::{PATIENCE, Platform, Seen, envelope, metrics, noting};

/// Longest wait of what has nothing to do with the long task; a channel that is lost comes back in between.
const UNAFFECTED: Duration = Duration::from_secs(5);

/// A task type of its own, so that what is counted of it is too, and the queues of it and of others.
struct Names {
    task_type: String,
    queue: String,
    other: String,
}

fn names(slots: usize, takes: Duration) -> Names {
    let suffix = format!("s{slots}t{}", takes.as_secs());
    Names {
        task_type: format!("order.close.{suffix}"),
        queue: format!("outlasts.{suffix}.queue"),
        other: format!("beside.{suffix}.queue"),
    }
}

fn topology(slots: usize, takes: Duration) -> String {
    let Names { queue, other, .. } = names(slots, takes);
    format!(
        "[[queue]]\nname = {queue:?}\nbind = [\"order.close.#\"]\nowner = \"test\"\n\
         [[queue]]\nname = {other:?}\nbind = [\"report.#\"]\nowner = \"test\"\n"
    )
}

/// Runs one task for as long as `takes`, which is longer than the broker allows, in a worker with so many slots, and others
/// beside it.
async fn one_outlasts_the_limit(platform: Platform, slots: usize, takes: Duration) {
    let metrics = metrics();
    let names = names(slots, takes);
    let (seen, ends) = (Seen::default(), Arc::new(AtomicUsize::new(0)));
    let handler = {
        let (seen, ends) = (seen.clone(), ends.clone());
        move |context: Context| {
            seen.note(&context);
            let ends = ends.clone();
            async move {
                if context.envelope.task_id.as_str() == "long" {
                    tokio::time::sleep(takes).await;
                    ends.fetch_add(1, Ordering::SeqCst);
                }
            }
        }
    };
    platform.run(
        platform
            .worker()
            .queue(&names.queue)
            .queue(&names.other)
            .concurrency(slots)
            .handle(&names.task_type, handler)
            .handle("report.build", noting(&seen)),
    );
    let starts = |id: &str| seen.ids().iter().filter(|seen| *seen == id).count();
    let began = Instant::now();
    let send = async |id: String, task_type: &str| {
        let sent = Instant::now();
        let body = envelope(&id, task_type, "");
        platform.send(&body, Duration::ZERO).await.unwrap();
        eventually(PATIENCE, &id, async || starts(&id) > 0).await;
        (sent.elapsed(), id, sent - began)
    };
    send("long".to_owned(), &names.task_type).await;
    let mut others = Vec::new();
    while ends.load(Ordering::SeqCst) == 0 {
        others.push(send(format!("report-{}", others.len()), "report.build").await);
        // Where there is another slot, its own queue goes on as well.
        if slots > 1 {
            others.push(send(format!("order-{}", others.len()), &names.task_type).await);
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    for queue in [&names.queue, &names.other] {
        platform.drained(queue).await;
    }
    let runs = (starts("long"), ends.load(Ordering::SeqCst));
    assert_eq!(runs, (1, 1), "starts and ends of the long task in {slots} slots");
    assert!(platform.dead_letters(0).await.is_empty());
    let counted = metrics.render();
    let came_again = counted
        .lines()
        .any(|line| line.contains(&names.task_type) && line.contains("\"duplicate\""));
    assert!(came_again, "the limit never struck: {counted}");
    let slowest = others.iter().max().unwrap();
    report(&format!(
        "a task of {takes:?} outlasted the broker's limit in {slots} slots; of {} beside it the slowest (wait, id, when): {slowest:?}",
        others.len()
    ));
    assert!(slowest.0 < UNAFFECTED, "{slowest:?} waited, in {slots} slots");
    platform.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_beyond_the_limit_of_a_policy_runs_once() {
    // Taken back after four seconds; what would be after eight comes to wait for an end in the middle.
    const TAKES: Duration = Duration::from_secs(6);
    let one = async |slots: usize| {
        let platform = Platform::with(&topology(slots, TAKES)).await;
        let management = platform.vhost.management();
        let overview = management.get("/api/overview").await.unwrap();
        let version = overview["rabbitmq_version"].as_str().unwrap().to_owned();
        let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap());
        if (parts.next(), parts.next()) < (Some(4), Some(3)) {
            return platform.close().await;
        }
        let policy = json!({
            "pattern": "^outlasts", "definition": {"consumer-timeout": 4_000},
            "apply-to": "queues", "priority": 100,
        });
        management
            .put(&format!("/api/policies/{}/limit", management.vhost()), &policy)
            .await;
        one_outlasts_the_limit(platform, slots, TAKES).await;
    };
    tokio::join!(one(1), one(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_of_150_seconds_beyond_the_nodes_minute_runs_once() {
    const TAKES: Duration = Duration::from_secs(150);
    if !crate::is_long() {
        return;
    }
    let services = PrivateServices::start().await;
    services
        .rabbitmqctl(&["eval", "application:set_env(rabbit, consumer_timeout, 60000)."])
        .await;
    let one = async |slots: usize| {
        let vhost = Vhost::create_on(services.services()).await;
        let platform = Platform::on(vhost, &topology(slots, TAKES)).await;
        one_outlasts_the_limit(platform, slots, TAKES).await;
    };
    tokio::join!(one(1), one(2));
}
