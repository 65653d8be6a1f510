//! Each kind of break is named as the hop that it breaks, and a broken dead-letter path loses nothing.

use std::{collections::BTreeSet, time::Duration};

use lapin::{
    ExchangeKind,
    options::{BasicGetOptions, BasicNackOptions, ExchangeDeclareOptions, QueueDeleteOptions},
    types::FieldTable,
};
use serde_json::json;
use tidegate::{
    topology::{Policy, Value},
    worker::{TaskError, Worker},
};
use tidegate_testkit::eventually;
use tokio_util::sync::CancellationToken;

use super::{Bench, PATIENCE, assert_healthy, broken, set};
use crate::{declare::apply, management::management};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b69_a_dead_letter_exchange_that_routes_nowhere_is_named_and_loses_nothing() {
    let bench = Bench::new().await;
    bench.unbind("task.failed", "task.failed.queue", "").await;
    bench.unbind("task.dead", "task.dead.queue", "#").await;
    let report = bench.verify().await;
    let expected = [
        "task.failed → task.failed.queue: no binding",
        "task.dead → task.dead.queue: no binding (#)",
    ];
    assert_eq!(broken(&report), set(expected), "{report:#?}");
    let failed = report
        .broken
        .iter()
        .find(|b| b.hop.starts_with("task.failed "))
        .unwrap();
    let rejected = "a rejected message of order.close.queue".to_owned();
    assert!(failed.probes.contains(&rejected), "{failed:?}");
    assert!(failed.next.contains("topology apply"), "{failed:?}");

    // A client that only rejects: the broker keeps what it can't hand on, and hands it on once it can.
    bench.publish("task.exchange", "order.close.timeout", "raw").await;
    let got = eventually(PATIENCE, "the task", async || {
        let options = BasicGetOptions::default();
        bench
            .channel
            .basic_get("order.close.queue".into(), options)
            .await
            .unwrap()
    })
    .await;
    let nack = BasicNackOptions::default();
    got.delivery.acker.nack(nack).await.unwrap();
    // A worker of ours that finds no way to dead-letter: it does not acknowledge.
    let worker = Worker::builder(bench.settings(), bench.topology.clone())
        .queue("order.audit.queue")
        .handle("order.close.timeout", || async {
            Err::<(), TaskError>(TaskError::reject("business", "never"))
        });
    let stop = CancellationToken::new();
    let worker = tokio::spawn(worker.build().unwrap().run(stop.clone()));
    bench.publish("", "order.audit.queue", "ours").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(bench.messages("order.close.queue").await, 1);
    assert_eq!(bench.messages("order.audit.queue").await, 1);

    apply(&bench.connection, &bench.topology.objects()).await.unwrap();
    bench.take("task.failed.queue", "raw").await;
    bench.take("task.dead.queue", "ours").await;
    stop.cancel();
    worker.await.unwrap();
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b69_a_dead_letter_exchange_that_is_gone_is_named() {
    let bench = Bench::new().await;
    bench.delete_exchange("task.failed").await;
    bench.delete_exchange("task.delay.30m").await;
    let report = bench.verify().await;
    let close = "exchange task.failed does not exist";
    let expected = [
        format!("order.close.queue → task.failed: {close}"),
        format!("order.close.queue.high → task.failed: {close}"),
        format!("order.audit.queue → task.failed: {close}"),
        "task.delay.30m → task.delay.30m: exchange task.delay.30m does not exist".to_owned(),
    ];
    assert_eq!(broken(&report), expected.into(), "{report:#?}");
    apply(&bench.connection, &bench.topology.objects()).await.unwrap();
    assert_healthy(&bench.verify().await);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_binding_that_is_missing_is_named() {
    let bench = Bench::new().await;
    bench
        .unbind("task.exchange", "order.close.queue", "order.cancel")
        .await;
    let high = "*.*.*.*.*.*.*.high.order.*.audit";
    bench.unbind("task.delay.v1.due", "order.audit.queue", high).await;
    let to = "*.*.*.*.*.*.*.to.order.close.queue.high";
    bench
        .unbind("task.delay.v1.due", "order.close.queue.high", to)
        .await;
    bench
        .unbind("task.delay.v1.5", "task.delay.v1.5.a", "*.a.#")
        .await;
    let report = bench.verify().await;
    let expected = [
        "task.exchange → order.close.queue: no binding (order.cancel)".to_owned(),
        format!("task.delay.v1.due → order.audit.queue: no binding ({high})"),
        format!("task.delay.v1.due → order.close.queue.high: no binding ({to})"),
        "task.delay.v1.5 → task.delay.v1.5.a: no binding (*.a.#)".to_owned(),
    ];
    assert_eq!(broken(&report), expected.into(), "{report:#?}");
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exchange_without_its_alternate_and_a_missing_queue_are_named() {
    let bench = Bench::new().await;
    bench.delete_exchange("task.exchange").await;
    let options = ExchangeDeclareOptions {
        durable: true,
        ..ExchangeDeclareOptions::default()
    };
    let declared = bench.channel.exchange_declare(
        "task.exchange".into(),
        ExchangeKind::Topic,
        options,
        FieldTable::default(),
    );
    declared.await.unwrap();
    for binding in bench.topology.objects().bindings {
        if binding.source == "task.exchange" {
            bench
                .bind("task.exchange", binding.destination_name(), &binding.pattern)
                .await;
        }
    }
    bench
        .channel
        .queue_delete("task.delay.v1.0.3".into(), QueueDeleteOptions::default())
        .await
        .unwrap();
    let report = bench.verify().await;
    let expected = [
        "task.exchange → task.unrouted: it has no alternate exchange",
        "task.delay.v1.0 → task.delay.v1.0.3: queue task.delay.v1.0.3 does not exist",
    ];
    assert_eq!(broken(&report), set(expected), "{report:#?}");
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_that_take_waiting_messages_are_named() {
    let bench = Bench::new().await;
    let management = management(&bench.vhost);
    let policy = |name: &str, pattern: &str, definition: &[(&'static str, Value)]| Policy {
        name: name.to_owned(),
        pattern: pattern.to_owned(),
        apply_to: "queues",
        priority: 1,
        definition: definition.iter().cloned().collect(),
    };
    let hour = policy(
        "an-hour",
        r"^order\.close\.queue$",
        &[("message-ttl", Value::Int(3_600_000))],
    );
    let drops = [
        ("max-length", Value::Int(50_000)),
        ("overflow", Value::Text("drop-head".to_owned())),
    ];
    let drops = policy("drops", r"^task\.delay\.v1\.4\.2$|^order\.audit\.queue$", &drops);
    // Refuses what is too much, and loses nothing.
    let refuses = policy(
        "refuses",
        r"^task\.ingress\.queue$",
        &[("max-length", Value::Int(9))],
    );
    for policy in [&hour, &drops, &refuses] {
        management.set_policy(policy).await.unwrap();
    }
    // Long enough to delete nothing while this runs.
    let goes = json!({"pattern": r"\.high$", "apply-to": "queues", "definition": {"expires": 3_600_000}});
    let path = format!("/api/operator-policies/{}/goes", bench.vhost.name());
    bench.vhost.management().put(&path, &goes).await;
    let report = bench.verify().await;
    let hops: BTreeSet<&str> = report.broken.iter().map(|b| b.hop.as_str()).collect();
    let expected = [
        "order.audit.queue",
        "order.close.queue",
        "order.close.queue.high",
        "task.delay.v1.4.2 → task.delay.v1.3",
    ];
    assert_eq!(hops, expected.into(), "{report:#?}");
    let of = |hop: &str| report.broken.iter().find(|b| b.hop.starts_with(hop)).unwrap();
    let why = "what waits in it is lost to policy \"an-hour\" (message-ttl=3600000)";
    assert!(
        report
            .broken
            .iter()
            .any(|b| b.hop == "order.close.queue" && b.why == why),
        "{report:#?}"
    );
    let why = "operator policy \"goes\" deletes it when nobody consumes it";
    assert_eq!(of("order.close.queue.high").why, why);
    assert!(of("order.audit.queue").why.contains("\"drops\""), "{report:#?}");
    assert!(of("task.delay").why.contains("maxlen"), "{report:#?}");
    bench.close().await;
}
