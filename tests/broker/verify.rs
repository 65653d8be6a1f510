//! Whether each route delivers: whole topologies, and each kind of break made by hand.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use lapin::{
    BasicProperties, Channel, Connection, ExchangeKind,
    options::{
        BasicGetOptions, BasicNackOptions, BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions,
        ExchangeDeleteOptions, QueueBindOptions, QueueDeleteOptions,
    },
    types::FieldTable,
};
use serde_json::Value as Json;
use tidegate::{
    broker::{BrokerSettings, verify},
    topology::{Policy, Topology, Value, verify::Report},
    worker::{Context, TaskError, Worker},
};
use tidegate_testkit::{Vhost, eventually, services};
use tokio_util::sync::CancellationToken;

use super::{
    declare::{apply, connect},
    management::management,
};

const TOPOLOGY: &str = r#"
[[queue]]
name = "order.close.queue"
bind = ["order.close.#", "order.cancel"]
owner = "test"
task_types = ["order.close.timeout"]
high_lane = { threshold = 200 }

[[queue]]
name = "order.audit.queue"
bind = ["order.*.audit"]
owner = "test"
max_length = 1000
"#;
const PLATFORM: &str = r#"
[[fixed_delay]]
name = "30m"
ttl = "30m"
"#;
const PATIENCE: Duration = Duration::from_secs(30);

struct Bench {
    vhost: Vhost,
    topology: Arc<Topology>,
    connection: Connection,
    channel: Channel,
}

impl Bench {
    /// A vhost with the whole topology.
    async fn new() -> Self {
        let vhost = Vhost::create().await;
        let topology = Topology::parse(&[("platform.toml", PLATFORM), ("test.toml", TOPOLOGY)]).unwrap();
        let connection = connect(vhost.amqp_url()).await;
        apply(&connection, &topology.objects()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        Self {
            vhost,
            topology: Arc::new(topology),
            connection,
            channel,
        }
    }

    fn settings(&self) -> BrokerSettings {
        BrokerSettings::new(self.vhost.amqp_url().to_owned().into())
    }

    async fn verify(&self) -> Report {
        let (management, cancel) = (management(&self.vhost), CancellationToken::new());
        verify::run(&self.settings(), &management, &self.topology, &cancel, |_| ())
            .await
            .unwrap()
    }

    async fn unbind(&self, exchange: &str, queue: &str, pattern: &str) {
        let unbound = self.channel.queue_unbind(
            queue.into(),
            exchange.into(),
            pattern.into(),
            FieldTable::default(),
        );
        unbound.await.unwrap();
    }

    async fn bind(&self, exchange: &str, queue: &str, pattern: &str) {
        let options = QueueBindOptions::default();
        let bound = self.channel.queue_bind(
            queue.into(),
            exchange.into(),
            pattern.into(),
            options,
            FieldTable::default(),
        );
        bound.await.unwrap();
    }

    async fn delete_exchange(&self, exchange: &str) {
        self.channel
            .exchange_delete(exchange.into(), ExchangeDeleteOptions::default())
            .await
            .unwrap();
    }

    /// Publishes a task that must be taken.
    async fn publish(&self, exchange: &str, key: &str, id: &str) {
        let channel = self.connection.create_channel().await.unwrap();
        channel
            .confirm_select(ConfirmSelectOptions::default())
            .await
            .unwrap();
        let body = format!(r#"{{"taskId":"{id}","taskType":"order.close.timeout","payload":{{}}}}"#);
        let properties = BasicProperties::default()
            .with_message_id(id.into())
            .with_delivery_mode(2);
        let options = BasicPublishOptions {
            mandatory: true,
            ..BasicPublishOptions::default()
        };
        let confirm = channel
            .basic_publish(exchange.into(), key.into(), options, body.as_bytes(), properties)
            .await
            .unwrap();
        assert!(matches!(confirm.await.unwrap(), lapin::Confirmation::Ack(None)));
    }

    /// Waits until the queue hands out the message with this id, and takes it.
    async fn take(&self, queue: &str, id: &str) {
        eventually(PATIENCE, &format!("{id} in {queue}"), async || {
            let got = self
                .channel
                .basic_get(queue.into(), BasicGetOptions { no_ack: true })
                .await
                .unwrap()?;
            assert_eq!(
                got.delivery.properties.message_id().as_ref().unwrap().as_str(),
                id
            );
            Some(())
        })
        .await;
    }

    async fn messages(&self, queue: &str) -> u64 {
        let queue = self.vhost.management().queue(queue).await;
        queue.map_or(0, |queue| queue.messages)
    }

    async fn close(self) {
        let _ = self.connection.close(200, "done".into()).await;
        self.vhost.close().await;
    }
}

/// The broken hops with their reasons.
fn broken(report: &Report) -> BTreeSet<String> {
    let texts = report.broken.iter().map(|b| format!("{}: {}", b.hop, b.why));
    texts.collect()
}

fn set<const N: usize>(expected: [&str; N]) -> BTreeSet<String> {
    expected.map(str::to_owned).into()
}

#[track_caller]
fn assert_healthy(report: &Report) {
    assert_eq!(broken(report), set([]), "{report:#?}");
    assert_eq!(report.notes, Vec::<String>::new());
    assert_eq!(report.delivered, report.tried);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topology_as_applied_delivers_and_no_handler_sees_a_probe() {
    let bench = Bench::new().await;
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut worker = Worker::builder(bench.settings(), bench.topology.clone())
        .queue("order.close.queue")
        .queue("order.audit.queue");
    let noted = seen.clone();
    worker = worker.handle("order.close.timeout", move |context: Context, _: Json| {
        noted.lock().unwrap().push(context.envelope.task_id.to_string());
        async { Ok::<(), TaskError>(()) }
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
        .handle("order.close.timeout", |_: Context, _: Json| async {
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
    let report = bench.verify().await;
    let hops: BTreeSet<&str> = report.broken.iter().map(|b| b.hop.as_str()).collect();
    let expected = [
        "order.audit.queue",
        "order.close.queue",
        "task.delay.v1.4.2 → task.delay.v1.3",
    ];
    assert_eq!(hops, expected.into(), "{report:#?}");
    let of = |hop: &str| report.broken.iter().find(|b| b.hop.starts_with(hop)).unwrap();
    let why = "what waits in it is lost to policy \"an-hour\" (message-ttl=3600000)";
    assert_eq!(of("order.close.queue").why, why);
    assert!(of("order.audit.queue").why.contains("\"drops\""), "{report:#?}");
    assert!(of("task.delay").why.contains("maxlen"), "{report:#?}");
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
