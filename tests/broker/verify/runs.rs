//! A run over what is whole, one that is interrupted, and one without the right to run.

use std::sync::Arc;

use tidegate::{
    broker::verify,
    worker::{Context, Worker},
};
use tidegate_testkit::{eventually, services};
use tokio_util::sync::CancellationToken;

use super::{Bench, PATIENCE, assert_healthy};
use crate::management::management;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topology_as_applied_delivers_and_no_handler_sees_a_probe() {
    let bench = Bench::new().await;
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut worker = Worker::builder(bench.settings(), bench.topology.clone())
        .queue("order.close.queue")
        .queue("order.audit.queue");
    let noted = seen.clone();
    worker = worker.handle("order.close.timeout", move |context: Context| {
        noted.lock().unwrap().push(context.envelope.task_id.to_string());
        async {}
    });
    let stop = CancellationToken::new();
    let worker = tokio::spawn(worker.build().unwrap().run(stop.clone()));
    bench
        .publish("task.exchange", "order.close.timeout", "real")
        .await;

    let report = bench.verify().await;
    assert_healthy(&report);
    // Ladder 105 + 2 + 20 live, four ends, nine ways out of patterns, and what the business queues have.
    assert!(report.tried > 170, "{}", report.tried);
    stop.cancel();
    worker.await.unwrap();
    // The worker did work; but it and the dead letters know nothing of probes.
    assert_eq!(*seen.lock().unwrap(), ["real"]);
    eventually(PATIENCE, "every queue to be empty", async || {
        let queues = bench.vhost.management().queues().await;
        queues.len() == bench.topology.objects().queues.len()
            && queues.iter().all(|queue| queue.messages == 0)
    })
    .await;
    let all = bench
        .vhost
        .management()
        .get("/api/vhosts?columns=name")
        .await
        .unwrap();
    let prefix = format!("{}.verify.", bench.vhost.name());
    assert!(!all.to_string().contains(&prefix), "{all}");
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_run_leaves_no_virtual_host() {
    let bench = Bench::new().await;
    let cancel = CancellationToken::new();
    let stop = cancel.clone();
    let progress = move |text: &str| {
        if text.contains("routes to try") {
            stop.cancel();
        }
    };
    let management = management(&bench.vhost);
    let result = verify::run(&bench.settings(), &management, &bench.topology, &cancel, progress).await;
    assert!(
        matches!(result, Err(verify::VerifyError::Interrupted)),
        "{result:?}"
    );
    let all = bench
        .vhost
        .management()
        .get("/api/vhosts?columns=name")
        .await
        .unwrap();
    let prefix = format!("{}.verify.", bench.vhost.name());
    assert!(!all.to_string().contains(&prefix), "{all}");
    bench.close().await;
}

#[tokio::test]
async fn a_user_that_may_make_no_virtual_host_is_told_so() {
    let bench = Bench::new().await;
    let name = format!("u-{}", bench.vhost.name());
    bench
        .vhost
        .management()
        .add_user(&name, "pw", (".*", ".*", ".*"))
        .await;
    bench
        .vhost
        .management()
        .tag_user(&name, "pw", "policymaker")
        .await;
    let url = services().management;
    let (scheme, rest) = url.split_once("://").unwrap();
    let host = rest.split_once('@').map_or(rest, |(_, host)| host);
    let url = format!("{scheme}://{name}:pw@{host}").into();
    let management =
        tidegate::broker::management::Management::new(&url, bench.vhost.name(), PATIENCE).unwrap();
    let cancel = CancellationToken::new();
    let result = verify::run(&bench.settings(), &management, &bench.topology, &cancel, |_| ()).await;
    bench.vhost.management().remove_user(&name).await;
    assert!(
        matches!(result, Err(verify::VerifyError::NoVhost(_))),
        "{result:?}"
    );
    bench.close().await;
}
