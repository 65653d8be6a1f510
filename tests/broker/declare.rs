//! Declaring a topology: idempotent, whole in spite of single refusals, and exact about what differs.

use std::{path::Path, time::Duration};

use futures::StreamExt;
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, ExchangeKind,
    options::{
        BasicConsumeOptions, BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions,
        QueueDeclareOptions, QueueDeleteOptions,
    },
    types::{AMQPValue, FieldTable},
};
use tidegate::{
    broker::declare::{self, Cause, DeclareError, Report},
    core::ladder::{self, Target},
    topology::{Conflict, ObjectKind, Objects, Setting, Topology},
};
use tidegate_testkit::{Vhost, eventually};

const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn shipped() -> Topology {
    Topology::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("topology"))
        .expect("the shipped topology is valid")
}

pub(crate) async fn connect(url: &str) -> Connection {
    Connection::connect(url, ConnectionProperties::default())
        .await
        .expect("the broker answers")
}

pub(crate) async fn apply(conn: &Connection, objects: &Objects) -> Result<declare::Applied, DeclareError> {
    let applying = sendable(declare::apply(conn, objects, |_| {}));
    tokio::time::timeout(PATIENCE, applying)
        .await
        .expect("apply ends in time")
}

/// A server applies from a spawned task, which only a `Send` future can do.
fn sendable<F: Future + Send>(future: F) -> F {
    future
}

fn conflict(result: Result<declare::Applied, DeclareError>) -> Report {
    match result {
        Err(DeclareError::Conflict(report)) => report,
        other => panic!("expected a conflict, got {other:?}"),
    }
}

async fn names(vhost: &Vhost, what: &str) -> Vec<String> {
    let listed = vhost
        .management()
        .get(&format!("/api/{what}/{}", vhost.name()))
        .await
        .expect("listed");
    listed
        .as_array()
        .expect("a list")
        .iter()
        .map(|o| o["name"].as_str().unwrap_or_default().to_owned())
        .collect()
}

/// How many bindings there are, without those that every queue has on the default exchange.
async fn bound(vhost: &Vhost) -> usize {
    let bindings = vhost
        .management()
        .get(&format!("/api/bindings/{}", vhost.name()))
        .await
        .expect("listed");
    bindings
        .as_array()
        .expect("a list")
        .iter()
        .filter(|b| b["source"] != "")
        .count()
}

/// Declares a queue as somebody else would.
async fn foreign_queue(channel: &Channel, name: &str, arguments: &[(&str, AMQPValue)]) {
    let mut table = FieldTable::default();
    for (key, value) in arguments {
        table.insert((*key).into(), value.clone());
    }
    channel
        .queue_declare(name.into(), QueueDeclareOptions::durable(), table)
        .await
        .expect("the foreign queue is declared");
}

fn text(value: &str) -> AMQPValue {
    AMQPValue::LongString(value.into())
}

/// The arguments of our queue `name`, for a foreign queue that differs in one.
fn ours(objects: &Objects, name: &str) -> Vec<(&'static str, AMQPValue)> {
    let queue = objects.queues.iter().find(|q| q.name == name).expect("ours");
    let value = |value: &tidegate::topology::Value| match value {
        tidegate::topology::Value::Text(t) => text(t),
        // On purpose not the width that `apply` uses.
        tidegate::topology::Value::Int(n) => AMQPValue::LongInt(i32::try_from(*n).expect("fits")),
        tidegate::topology::Value::Bool(b) => AMQPValue::Boolean(*b),
    };
    queue.arguments.iter().map(|(key, v)| (*key, value(v))).collect()
}

fn differing(
    objects: &Objects,
    name: &str,
    key: &'static str,
    value: AMQPValue,
) -> Vec<(&'static str, AMQPValue)> {
    let mut arguments = ours(objects, name);
    arguments.retain(|(k, _)| *k != key);
    arguments.push((key, value));
    arguments
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_vhost_is_filled_once_and_then_left_alone() {
    let vhost = Vhost::create().await;
    let conn = connect(vhost.amqp_url()).await;
    let objects = shipped().objects();
    let absent = declare::missing(&conn, &objects).await.expect("looked");
    assert_eq!(absent.len(), objects.exchanges.len() + objects.queues.len());

    let mut seen = Vec::new();
    let first = declare::apply(&conn, &objects, |p| seen.push((p.done, p.total)))
        .await
        .expect("declared");
    assert_eq!(first.objects, objects.len());
    assert_eq!(seen.len(), objects.len());
    assert_eq!(seen.last(), Some(&(objects.len(), objects.len())));
    let second = apply(&conn, &objects).await.expect("declared again");
    println!(
        "apply of {} objects: {:?} on an empty vhost, {:?} again",
        first.objects, first.elapsed, second.elapsed
    );

    assert_eq!(declare::missing(&conn, &objects).await.expect("looked"), []);
    let mut found = names(&vhost, "queues").await;
    let mut wanted: Vec<_> = objects.queues.iter().map(|q| q.name.clone()).collect();
    found.sort();
    wanted.sort();
    assert_eq!(found, wanted);
    assert_eq!(bound(&vhost).await, objects.bindings.len());
    vhost.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_difference_is_reported_exactly_and_the_rest_is_declared() {
    let vhost = Vhost::create().await;
    let conn = connect(vhost.amqp_url()).await;
    let channel = conn.create_channel().await.expect("channel");
    let objects = shipped().objects();
    let ttl = differing(
        &objects,
        "task.delay.v1.0.1",
        "x-message-ttl",
        AMQPValue::LongInt(33),
    );
    foreign_queue(&channel, "task.delay.v1.0.1", &ttl).await;
    let dlx = differing(
        &objects,
        "order.close.queue",
        "x-dead-letter-exchange",
        text("it's.mine"),
    );
    foreign_queue(&channel, "order.close.queue", &dlx).await;
    foreign_queue(
        &channel,
        "member.points.queue",
        &[("x-queue-type", text("classic"))],
    )
    .await;
    let missing: Vec<_> = ours(&objects, "report.generate.queue")
        .into_iter()
        .filter(|(key, _)| *key != "x-delivery-limit")
        .collect();
    foreign_queue(&channel, "report.generate.queue", &missing).await;
    let topic = ExchangeDeclareOptions {
        durable: true,
        ..ExchangeDeclareOptions::default()
    };
    channel
        .exchange_declare(
            "task.ingress".into(),
            ExchangeKind::Topic,
            topic,
            FieldTable::default(),
        )
        .await
        .expect("the foreign exchange is declared");

    let error = apply(&conn, &objects).await.expect_err("conflicts");
    let shown = error.to_string();
    let report = conflict(Err(error));
    let conflicts: Vec<&Conflict> = report.conflicts().collect();
    let find = |name: &str| {
        let found = conflicts.iter().find(|c| c.object.name == name);
        found.map(|c| (c.argument.as_str(), c.current.clone(), c.wanted.clone()))
    };
    let value = |v: &str| Setting::Value(v.to_owned());
    assert_eq!(
        find("task.delay.v1.0.1"),
        Some(("x-message-ttl", value("33"), value("32")))
    );
    assert_eq!(
        find("order.close.queue"),
        Some(("x-dead-letter-exchange", value("it's.mine"), value("task.failed")))
    );
    let delivery_limit = find("report.generate.queue").expect("reported");
    assert_eq!(
        (delivery_limit.0, delivery_limit.2),
        ("x-delivery-limit", value("20"))
    );
    assert_eq!(
        find("task.ingress"),
        Some(("type", value("topic"), value("fanout")))
    );
    // A classic queue differs in several arguments; the broker names one, and the report says there may be more.
    assert!(find("member.points.queue").is_some(), "{report}");
    assert_eq!(conflicts.len(), 5, "{report}");
    for part in [
        "x-message-ttl \"33\", wanted \"32\"",
        "delete_queue order.close.queue --if-empty",
        "a policy can't",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }

    let needs = [
        "task.delay.v1.0.1",
        "order.close.queue",
        "member.points.queue",
        "report.generate.queue",
        "task.ingress",
    ];
    let touched = |b: &&tidegate::topology::Binding| {
        needs.contains(&b.source.as_str()) || needs.contains(&b.destination_name())
    };
    assert_eq!(
        report.skipped.len(),
        objects.bindings.iter().filter(touched).count(),
        "{report}"
    );
    assert!(
        declare::missing(&conn, &objects)
            .await
            .expect("looked")
            .is_empty(),
        "the rest is declared"
    );
    assert_eq!(
        bound(&vhost).await,
        objects.bindings.len() - report.skipped.len(),
        "the rest is bound"
    );
    vhost.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_is_not_durable_or_not_quorum_is_named() {
    let vhost = Vhost::create().await;
    let conn = connect(vhost.amqp_url()).await;
    let channel = conn.create_channel().await.expect("channel");
    let objects = Topology::parse(&[("platform.toml", "")])
        .expect("valid")
        .objects();
    let deleting = QueueDeclareOptions::durable().auto_delete();
    channel
        .queue_declare("task.failed.queue".into(), deleting, FieldTable::default())
        .await
        .expect("declared");
    let exclusive = QueueDeclareOptions::exclusive();
    channel
        .queue_declare("task.dead.queue".into(), exclusive, FieldTable::default())
        .await
        .expect("declared");
    // Newer brokers end the connection of whoever declares a transient queue that isn't exclusive.
    let other = connect(vhost.amqp_url()).await;
    let transient = QueueDeclareOptions::default();
    let declared = other.create_channel().await.expect("channel");
    let declared = declared
        .queue_declare("task.unrouted.queue".into(), transient, FieldTable::default())
        .await
        .is_ok();
    let stream = [("x-queue-type", text("stream"))];
    foreign_queue(&channel, "task.ingress.queue", &stream).await;
    let report = conflict(apply(&conn, &objects).await);
    let find = |name: &str| {
        report
            .conflicts()
            .find(|c| c.object.name == name)
            .expect("reported")
    };
    let failed = find("task.failed.queue");
    assert_eq!(failed.argument, "auto_delete");
    assert_eq!(
        (&failed.current, &failed.wanted),
        (&Setting::Value("true".into()), &Setting::Value("false".into()))
    );
    assert_eq!(find("task.dead.queue").argument, "exclusive");
    if declared {
        let transient = find("task.unrouted.queue");
        assert_eq!(transient.argument, "durable");
        assert_eq!(transient.current, Setting::Value("false".into()));
    }
    assert_eq!(find("task.ingress.queue").object.kind, ObjectKind::Queue);
    vhost.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_width_of_an_integer_is_no_difference() {
    let vhost = Vhost::create().await;
    let conn = connect(vhost.amqp_url()).await;
    let channel = conn.create_channel().await.expect("channel");
    let objects = shipped().objects();
    for name in ["task.delay.v1.0.1", "order.close.queue", "task.failed.queue"] {
        foreign_queue(&channel, name, &ours(&objects, name)).await;
    }
    apply(&conn, &objects).await.expect("nothing differs");
    vhost.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_without_permission_is_told_so_and_the_connection_lives() {
    let vhost = Vhost::create().await;
    let user = format!("u-{}", vhost.name());
    vhost
        .management()
        .add_user(&user, "secret", ("^task\\.", ".*", ".*"))
        .await;
    let conn = connect(&vhost.amqp_url_as(&user, "secret")).await;
    let objects = shipped().objects();
    let error = apply(&conn, &objects).await.expect_err("team queues are refused");
    let shown = error.to_string();
    let DeclareError::Refused(report) = error else {
        panic!("expected refusals, got {error:?}")
    };
    let business: Vec<_> = objects
        .queues
        .iter()
        .map(|q| q.name.as_str())
        .filter(|name| !name.starts_with("task."))
        .collect();
    assert_eq!(report.failures.len(), business.len(), "{report}");
    for failure in &report.failures {
        assert!(business.contains(&failure.object.name.as_str()), "{failure}");
        assert!(
            matches!(&failure.cause, Cause::Refused(text) if text.contains("ACCESS_REFUSED")),
            "{failure}"
        );
    }
    assert!(shown.contains("rabbitmqctl set_permissions"), "{shown}");
    assert!(
        report
            .skipped
            .iter()
            .all(|s| business.contains(&s.missing.name.as_str()))
    );
    assert!(conn.status().connected());
    let missing = declare::missing(&conn, &objects)
        .await
        .expect("looking needs no permission");
    let missing: Vec<_> = missing.iter().map(|o| o.name.as_str()).collect();
    assert_eq!(
        missing.len(),
        business.len(),
        "everything else is there: {missing:?}"
    );
    vhost.management().remove_user(&user).await;
    vhost.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_passes_the_same_delay_queue_again_and_again() {
    let vhost = Vhost::create().await;
    let conn = connect(vhost.amqp_url()).await;
    let topology = shipped();
    apply(&conn, &topology.objects()).await.expect("declared");
    let channel = conn.create_channel().await.expect("channel");
    channel
        .confirm_select(ConfirmSelectOptions::default())
        .await
        .expect("confirms");
    let queue = "order.close.queue";
    let mut deliveries = channel
        .basic_consume(
            queue.into(),
            "".into(),
            BasicConsumeOptions::default(),
            FieldTable::default(),
        )
        .await
        .expect("consumes");
    let delay = Duration::from_millis(600);
    let route = ladder::route(&topology.names, delay, &Target::Queue(queue.into())).expect("a route");
    for attempt in 1..=4 {
        let sent = std::time::Instant::now();
        let mandatory = BasicPublishOptions {
            mandatory: true,
            ..BasicPublishOptions::default()
        };
        // Made anew, so that no death history of the broker's goes along.
        let properties = BasicProperties::default().with_delivery_mode(2);
        let confirm = channel
            .basic_publish(
                route.exchange.as_str().into(),
                route.routing_key.as_str().into(),
                mandatory,
                b"{}",
                properties,
            )
            .await
            .expect("published")
            .await
            .expect("answered");
        assert_eq!(confirm, Confirmation::Ack(None), "attempt {attempt}");
        let delivery = tokio::time::timeout(Duration::from_secs(20), deliveries.next())
            .await
            .unwrap_or_else(|_| panic!("attempt {attempt} never arrived"))
            .expect("the stream goes on")
            .expect("a delivery");
        assert!(
            sent.elapsed() >= delay,
            "attempt {attempt} came after {:?}",
            sent.elapsed()
        );
        delivery
            .acker
            .ack(lapin::options::BasicAckOptions::default())
            .await
            .expect("acknowledged");
    }
    vhost.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_a_deleted_queue_is_parked_and_delays_nobody_else() {
    let vhost = Vhost::create().await;
    let conn = connect(vhost.amqp_url()).await;
    let topology = shipped();
    apply(&conn, &topology.objects()).await.expect("declared");
    let channel = conn.create_channel().await.expect("channel");
    channel
        .confirm_select(ConfirmSelectOptions::default())
        .await
        .expect("confirms");
    // More than the 32 that a delay queue dead-letters at once: were they stuck, the last one would be too.
    let gone = std::iter::repeat_n("report.generate.queue", 40);
    for queue in gone.chain(["order.close.queue"]) {
        let target = Target::Queue(queue.into());
        let route = ladder::route(&topology.names, Duration::from_millis(3_200), &target).expect("a route");
        let properties = BasicProperties::default().with_delivery_mode(2);
        let options = BasicPublishOptions::default();
        let (exchange, key) = (route.exchange.as_str().into(), route.routing_key.as_str().into());
        let confirm = channel
            .basic_publish(exchange, key, options, b"{}", properties)
            .await
            .expect("published");
        assert_eq!(confirm.await.expect("answered"), Confirmation::Ack(None));
    }
    channel
        .queue_delete("report.generate.queue".into(), QueueDeleteOptions::default())
        .await
        .expect("deleted");
    for (queue, count) in [("order.close.queue", 1), ("task.unrouted.queue", 40)] {
        eventually(PATIENCE, queue, async || {
            vhost
                .management()
                .queue(queue)
                .await
                .is_some_and(|q| q.messages_ready == count)
        })
        .await;
    }
    vhost.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_connection_is_no_refusal() {
    let vhost = Vhost::create().await;
    let conn = connect(vhost.amqp_url()).await;
    conn.close(200, "gone".into()).await.expect("closed");
    let error = apply(&conn, &shipped().objects())
        .await
        .expect_err("no connection");
    assert!(matches!(error, DeclareError::Unavailable { .. }), "{error:?}");
    vhost.close().await;
}
