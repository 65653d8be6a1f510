//! Each role does its work with the permissions that are derived for it, and nothing else.

mod cast;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use chrono::Utc;
use futures::StreamExt;
use lapin::{
    BasicProperties,
    options::{BasicConsumeOptions, BasicNackOptions, BasicPublishOptions, BasicQosOptions},
    types::{AMQPValue, FieldTable},
};
use tidegate::{
    broker::{connection::Link, declare, presence, unrouted::UnroutedWatch},
    core::{
        envelope::{Envelope, Limits},
        headers::{self, Origin},
    },
    publish::{SendError, Task},
    router::Router,
    telemetry::health::{Health, Part},
    topology::{
        Topology,
        export::{self, Role},
    },
    worker::{Context, TaskError, Worker},
};
use tidegate_testkit::{Vhost, eventually};
use tokio_util::sync::CancellationToken;

use self::cast::{CHANGES, Cast, PASSWORD, Try, assert_allowed, assert_refused, order_team, report_team};
use super::declare::apply;

const PATIENCE: Duration = Duration::from_secs(30);

fn task(id: &str, task_type: &str) -> Task {
    let body = format!(r#"{{"taskId":"{id}","taskType":"{task_type}","payload":{{}}}}"#);
    let envelope = Envelope::parse(body.as_bytes(), &Limits::standard(), Utc::now()).unwrap();
    Task::new(body, &envelope, Origin::Amqp)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_applies_and_reaches_no_further() {
    let cast = Cast::applied().await;
    let operator = cast.connect(&Role::Operator).await;
    let objects = cast.topology.objects();
    assert_eq!(declare::missing(&operator, &objects).await.unwrap(), []);
    assert_allowed(
        &operator,
        &[
            Try::DeclareQueue("tidegate.verify.probe"),
            Try::Delete("tidegate.verify.probe"),
            Try::DeclareQueue("order.close.queue.migrating"),
            Try::Delete("order.close.queue.migrating"),
            Try::Delete("order.close.queue.high"),
        ],
    )
    .await;
    let link = Link::new(cast.settings(&Role::Operator), "publish");
    UnroutedWatch::open(&link, &cast.topology.names.unrouted())
        .await
        .unwrap();
    assert_refused(
        &operator,
        &[
            Try::DeclareQueue("someone.elses.queue"),
            Try::DeclareQueue("order.close.queues"),
            Try::DeclareExchange("tasks"),
            Try::Publish("amq.topic", "order.close.timeout"),
        ],
    )
    .await;
    cast.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_publishes_now_and_later_and_does_nothing_else() {
    let cast = Cast::applied().await;
    let tasks = cast.publisher(&Role::Service);
    for (id, delay) in [
        ("now", 0),
        ("soon", 40),
        ("later", 3_600_000),
        ("far", 8_000_000_000),
    ] {
        tasks
            .send(task(id, "order.close.timeout"), Duration::from_millis(delay))
            .await
            .unwrap();
    }
    let service = cast.connect(&Role::Service).await;
    let names = &cast.topology.names;
    let mut entries = vec![
        names.exchange(),
        names.exchange_high(),
        names.ingress(),
        names.ladder_due(),
    ];
    entries.extend((0..7).map(|level| names.ladder_exchange(level)));
    entries.extend(["30m"].map(|delay| names.fixed_delay(delay)));
    let allowed: Vec<_> = entries
        .iter()
        .map(|exchange| Try::Publish(exchange, "nobody.listens"))
        .collect();
    assert_allowed(&service, &allowed).await;
    assert_refused(&service, CHANGES).await;
    assert_refused(
        &service,
        &[
            // Straight into a queue, past every rule.
            Try::Publish("", "order.close.queue"),
            Try::Publish("task.dead", "order.close.queue"),
            Try::Publish("task.failed", "order.close.queue"),
            Try::Publish("task.unrouted", "order.close.queue"),
            Try::Publish("amq.fanout", ""),
            Try::Consume("order.close.queue"),
            Try::Consume("task.dead.queue"),
            Try::Get("task.ingress.queue"),
            Try::Get("task.delay.v1.0.1"),
            Try::Purge("order.close.queue"),
        ],
    )
    .await;
    // What looks whether a queue takes a task needs a queue of its own: it says so, and the link goes on.
    let link = Link::new(cast.settings(&Role::Service), "publish");
    let why = UnroutedWatch::open(&link, &names.unrouted())
        .await
        .unwrap_err()
        .to_string();
    assert!(why.contains("ACCESS_REFUSED") && !why.contains(PASSWORD), "{why}");
    link.channel().await.unwrap();
    cast.close().await;
}

/// The broker closes the channel of whoever writes where they may not: that must not be everybody's channel.
#[tokio::test(flavor = "multi_thread")]
async fn an_exchange_that_is_closed_to_the_service_disturbs_nobody_else() {
    let cast = Cast::applied().await;
    let tasks = cast.publisher(&Role::Service);
    let mut sends = tokio::task::JoinSet::new();
    for n in 0..600 {
        let tasks = tasks.clone();
        sends.spawn(async move {
            let mut task = task(&format!("t{n}"), "order.close.timeout");
            let closed = n % 3 == 0;
            if closed {
                task.exchange = Some("amq.fanout".to_owned());
            }
            (closed, tasks.send(task, Duration::ZERO).await)
        });
    }
    while let Some(sent) = sends.join_next().await {
        match sent.unwrap() {
            (false, sent) => sent.unwrap(),
            (true, sent) => {
                let error = sent.unwrap_err();
                assert!(matches!(error, SendError::Forbidden { .. }), "{error:?}");
                assert!(!error.to_string().contains(PASSWORD), "{error}");
            }
        }
    }
    cast.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_settles_by_every_way_and_reads_no_other_queue() {
    let cast = Cast::applied().await;
    let (attempts, stop) = (Arc::new(AtomicU32::new(0)), CancellationToken::new());
    let runs = attempts.clone();
    let health = Health::default();
    let worker = Worker::builder(cast.settings(&order_team()), cast.topology.clone())
        .queue("order.close.queue")
        .health(health.clone())
        .handle("order.close.timeout", move |context: Context| {
            let run = runs.fetch_add(1, Ordering::SeqCst);
            std::future::ready(match (context.envelope.task_id.to_string().as_str(), run) {
                ("rejected", _) => Err(TaskError::reject("no_order", "there is no such order")),
                ("retried", _) if context.attempt == 1 => Err(TaskError::retry("busy", "try later")),
                _ => Ok(()),
            })
        });
    let running = tokio::spawn(worker.build().unwrap().run(stop.clone()));
    let tasks = cast.publisher(&Role::Service);
    for id in ["fine", "retried", "rejected"] {
        tasks
            .send(task(id, "order.close.timeout"), Duration::ZERO)
            .await
            .unwrap();
    }
    eventually(PATIENCE, "one success, one retry, one dead letter", async || {
        let queues = cast.vhost.management().queues().await;
        let messages = |name: &str| queues.iter().find(|q| q.name == name).map(|q| q.messages);
        attempts.load(Ordering::SeqCst) == 4
            && messages("task.dead.queue") == Some(1)
            && messages("order.close.queue") == Some(0)
    })
    .await;
    assert!(health.is_ready(), "{:?}", health.parts());
    stop.cancel();
    running.await.unwrap();
    let dead = cast.vhost.management().take("task.dead.queue", 2).await;
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].properties["message_id"], "rejected");

    let worker = cast.connect(&order_team()).await;
    assert_allowed(
        &worker,
        &[
            Try::Get("order.close.queue"),
            Try::Consume("order.close.queue.high"),
            Try::Publish("task.delay.v1.due", "0.0.0.0.0.0.0.to.order.close.queue"),
            Try::Publish("task.dead", "order.close.queue"),
        ],
    )
    .await;
    assert_refused(&worker, CHANGES).await;
    assert_refused(
        &worker,
        &[
            Try::Consume("report.generate.queue"),
            Try::Get("task.dead.queue"),
            Try::Consume("task.failed.queue"),
            Try::Publish("task.exchange", "order.close.timeout"),
            Try::Publish("task.failed", "order.close.queue"),
            Try::Publish("", "report.generate.queue"),
            Try::Purge("report.generate.queue"),
        ],
    )
    .await;
    cast.close().await;
}

/// A plain client nacks, the router retries: both with no more than their roles need.
#[tokio::test(flavor = "multi_thread")]
async fn the_router_serves_plain_workers_with_the_rights_of_serve() {
    let cast = Cast::applied().await;
    let (health, stop) = (Health::default(), CancellationToken::new());
    let link = Link::new(cast.settings(&Role::Serve), "consume");
    let router = Router::new(link, cast.publisher(&Role::Serve), Limits::standard(), None);
    let running = tokio::spawn({
        let (health, stop) = (health.clone(), stop.clone());
        async move { Box::pin(router.run(health, stop)).await }
    });
    let service = cast.connect(&Role::Service).await;
    let channel = service.create_channel().await.unwrap();
    let mut delayed = FieldTable::default();
    delayed.insert("x-delay".into(), AMQPValue::LongInt(50));
    let body = br#"{"taskId":"plain","taskType":"report.generate.daily","payload":{}}"#;
    let properties = BasicProperties::default()
        .with_delivery_mode(2)
        .with_headers(delayed);
    let options = BasicPublishOptions::default();
    let publish = channel.basic_publish("task.ingress".into(), "".into(), options, body, properties);
    publish.await.unwrap();
    let lost = BasicProperties::default().with_delivery_mode(2);
    let publish = channel.basic_publish(
        "task.exchange".into(),
        "nobody.listens".into(),
        options,
        body,
        lost,
    );
    publish.await.unwrap();

    let worker = cast.connect(&report_team()).await;
    let channel = worker.create_channel().await.unwrap();
    channel.basic_qos(1, BasicQosOptions::default()).await.unwrap();
    let consume = channel.basic_consume(
        "report.generate.queue".into(),
        "plain".into(),
        BasicConsumeOptions::default(),
        FieldTable::default(),
    );
    let mut deliveries = consume.await.unwrap();
    for attempt in 1..=2 {
        let next = tokio::time::timeout(PATIENCE, deliveries.next())
            .await
            .expect("it arrives");
        let delivery = next.unwrap().unwrap();
        let table = delivery.properties.headers().clone().unwrap_or_default();
        let counted = match table.inner().get(headers::ATTEMPT) {
            Some(AMQPValue::LongLongInt(number)) => *number,
            Some(AMQPValue::LongInt(number)) => (*number).into(),
            None => 1,
            other => panic!("{other:?}"),
        };
        assert_eq!(counted, attempt);
        delivery.acker.nack(BasicNackOptions::default()).await.unwrap();
    }
    eventually(PATIENCE, "the unroutable one as a dead letter", async || {
        let queue = cast.vhost.management().queue("task.dead.queue").await;
        queue.is_some_and(|queue| queue.messages == 1)
    })
    .await;
    assert!(health.is_ready(), "{:?}", health.parts());
    stop.cancel();
    running.await.unwrap();

    let serve = cast.connect(&Role::Serve).await;
    assert_refused(&serve, CHANGES).await;
    assert_allowed(&serve, &[Try::Consume("task.dead.queue")]).await;
    assert_refused(
        &serve,
        &[
            Try::Consume("order.close.queue"),
            Try::Get("task.delay.v1.0.1"),
            Try::Publish("", "order.close.queue"),
            Try::Publish("task.failed", "order.close.queue"),
        ],
    )
    .await;
    cast.close().await;
}

/// Where nothing is applied yet, who may not declare says what it waits for, and goes on once it is there.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_is_named_until_the_operator_has_applied() {
    let cast = Cast::new().await;
    let (health, stop) = (Health::default(), CancellationToken::new());
    let worker = Worker::builder(cast.settings(&order_team()), cast.topology.clone())
        .queue("order.close.queue")
        .health(health.clone())
        .handle("order.close.timeout", async || {});
    let running = tokio::spawn(worker.build().unwrap().run(stop.clone()));
    let looking = tokio::spawn({
        let (settings, topology) = (cast.settings(&Role::Serve), cast.topology.clone());
        let (health, stop) = (health.clone(), stop.clone());
        let objects = export::used_by_serve(&topology);
        async move { presence::watch(&settings, &objects, "topology", &health, &stop).await }
    });
    let down = |part: &str, words: &[&str]| match health.parts().get(part) {
        Some(Part::Down(why)) => words.iter().all(|word| why.contains(word)),
        _ => false,
    };
    eventually(PATIENCE, "both say what is missing", async || {
        down("topology", &["exchange task.dead", "more", "topology apply"])
            && down("worker order.close.queue", &["NOT_FOUND", "order.close.queue"])
    })
    .await;
    // All but one queue: that one is named, alone.
    let operator = cast.connect(&Role::Operator).await;
    let mut objects = cast.topology.objects();
    let (last, most) = objects
        .queues
        .into_iter()
        .partition(|q| q.name == "task.failed.queue");
    objects.queues = most;
    objects
        .bindings
        .retain(|binding| binding.destination_name() != "task.failed.queue");
    apply(&operator, &objects).await.unwrap();
    eventually(PATIENCE, "the last one is named", async || {
        down(
            "topology",
            &["missing on the broker: queue task.failed.queue; run"],
        )
    })
    .await;
    objects.queues = last;
    apply(&operator, &objects).await.unwrap();
    eventually(PATIENCE, "readiness", async || health.is_ready()).await;
    looking.await.unwrap();
    stop.cancel();
    running.await.unwrap();
    cast.close().await;
}

/// Of two thousand queues, each expression is one that this broker takes.
#[tokio::test(flavor = "multi_thread")]
async fn permissions_of_many_queues_are_taken_by_the_broker() {
    let vhost = Vhost::create().await;
    let team: String = (0..2_000)
        .map(|n| format!("[[queue]]\nname = \"load.mine.q{n}.queue\"\nbind = [\"q{n}\"]\nowner = \"many\"\n"))
        .collect();
    let topology = Topology::parse(&[("many.toml", &team)]).unwrap();
    let user = format!("many-{}", vhost.name());
    for granted in export::permissions(&topology) {
        assert!(granted.fit(), "{:?}", granted.role);
        let patterns = (
            granted.configure.as_str(),
            granted.write.as_str(),
            granted.read.as_str(),
        );
        vhost.management().add_user(&user, PASSWORD, patterns).await;
    }
    vhost.management().remove_user(&user).await;
    vhost.close().await;
}
