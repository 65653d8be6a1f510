//! B19: a task that kills its process ends after its limit, and its neighbours don't pay for it.

use std::time::Duration;

use lapin::{
    BasicProperties,
    options::{QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions},
    types::{AMQPValue, FieldTable},
};
use tidegate::core::headers;
use tidegate_testkit::{PrivateServices, Vhost};

use crate::{
    crashing_worker::{Supervised, order},
    platform::{DeadLetter, Platform, envelope},
};

const QUEUE: &str = "order.close.queue";
const PATIENT: Duration = Duration::from_secs(120);

/// Publishes as a client without an SDK.
async fn publish(platform: &Platform, bodies: &[String]) {
    for body in bodies {
        platform
            .publish_plain("task.exchange", "order.close.x", body.as_bytes())
            .await;
    }
}

fn id(letter: &DeadLetter) -> String {
    let body: serde_json::Value = serde_json::from_slice(&letter.body).unwrap();
    body["taskId"].as_str().unwrap().to_owned()
}

/// So many dead letters and no more, while the worker is started again as often as it dies.
async fn buried(platform: &Platform, count: usize, worker: &mut Supervised) -> Vec<DeadLetter> {
    platform
        .take_while("task.dead.queue", count, PATIENT, || worker.supervise())
        .await
}

/// Killers with different limits, one after the other: so many starts, one dead letter each, and it says how often.
async fn killers_end_after_their_limit(platform: Platform) {
    let mut worker = Supervised::start(platform.vhost.amqp_url(), 4);
    for (name, more, bound) in [
        ("none", r#","maxRetries":0"#, 3),
        ("three", r#","maxRetries":3"#, 3),
        ("five", r#","maxRetries":5"#, 5),
    ] {
        publish(&platform, &[order(name, r#"{"kills":true}"#, more)]).await;
        let letter = buried(&platform, 1, &mut worker).await.remove(0);
        assert_eq!(
            (id(&letter).as_str(), letter.reason().as_str()),
            (name, "worker_crash")
        );
        let deaths = letter
            .properties
            .headers()
            .as_ref()
            .unwrap()
            .inner()
            .get(headers::CRASHES)
            .cloned();
        assert_eq!(deaths, Some(AMQPValue::LongLongInt(bound + 1)));
        assert!(
            letter
                .header("x-task-error")
                .contains(&format!("{} worker processes", bound + 1))
        );
        assert_eq!(
            worker.journal()[name].starts,
            usize::try_from(bound + 1).unwrap(),
            "{name}"
        );
    }
    publish(&platform, &[order("good", r#"{"ms":1}"#, "")]).await;
    worker
        .until(PATIENT, "the next task", |journal| {
            journal.get("good").is_some_and(|e| e.ends == 1)
        })
        .await;
    platform.drained(QUEUE).await;
    assert_eq!(worker.deaths, 4 + 4 + 6);
    drop(worker);
    platform.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killer_ends_as_worker_crash_after_its_limit() {
    killers_end_after_their_limit(Platform::new().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killer_ends_on_a_classic_queue_as_well() {
    let platform = Platform::new().await;
    let channel = platform.channel().await;
    channel
        .queue_delete(QUEUE.into(), QueueDeleteOptions::default())
        .await
        .unwrap();
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("classic".into()));
    let durable = QueueDeclareOptions {
        durable: true,
        ..QueueDeclareOptions::default()
    };
    channel
        .queue_declare(QUEUE.into(), durable, arguments)
        .await
        .unwrap();
    for (exchange, key) in [
        ("task.exchange", "order.close.#"),
        ("task.delay.v1.due", "*.*.*.*.*.*.*.to.order.close.queue"),
    ] {
        let bind = channel.queue_bind(
            QUEUE.into(),
            exchange.into(),
            key.into(),
            QueueBindOptions::default(),
            FieldTable::default(),
        );
        bind.await.unwrap();
    }
    killers_end_after_their_limit(platform).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn neighbours_of_killers_all_finish() {
    let platform = Platform::new().await;
    let once = r#","maxRetries":0"#;
    let mut bodies: Vec<_> = (0..40)
        .map(|n| order(&format!("slow-{n}"), r#"{"ms":400}"#, once))
        .collect();
    for (n, at) in [(0, 30), (1, 15), (2, 0)] {
        bodies.insert(
            at,
            order(&format!("killer-{n}"), r#"{"ms":100,"kills":true}"#, once),
        );
    }
    publish(&platform, &bodies).await;
    let mut worker = Supervised::start(platform.vhost.amqp_url(), 50);
    worker
        .until(PATIENT, "all neighbours to finish", |journal| {
            (0..40).all(|n| journal.get(&format!("slow-{n}")).is_some_and(|e| e.ends >= 1))
        })
        .await;
    let letters = buried(&platform, 3, &mut worker).await;
    platform.drained(QUEUE).await;
    assert!(platform.dead_letters(0).await.is_empty());
    let mut dead: Vec<_> = letters.iter().map(|l| (id(l), l.reason())).collect();
    dead.sort();
    let expected = [0, 1, 2].map(|n| (format!("killer-{n}"), "worker_crash".to_owned()));
    assert_eq!(dead, expected);
    let journal = worker.journal();
    for n in 0..3 {
        let starts = journal[&format!("killer-{n}")].starts;
        assert!(starts <= 4, "killer-{n} was started {starts} times");
    }
    drop(worker);
    platform.close().await;
}

/// A whole window is returned, but nobody is to blame: all go on side by side.
#[tokio::test(flavor = "multi_thread")]
async fn a_kill_from_outside_makes_no_suspects() {
    let platform = Platform::new().await;
    let bodies: Vec<_> = (0..50)
        .map(|n| order(&format!("t{n}"), r#"{"ms":1500}"#, r#","maxRetries":0"#))
        .collect();
    publish(&platform, &bodies).await;
    let mut worker = Supervised::start(platform.vhost.amqp_url(), 50);
    worker
        .until(PATIENT, "all to start", |journal| journal.len() == 50)
        .await;
    worker.kill();
    worker
        .until(PATIENT, "all to finish", |journal| {
            journal.values().all(|e| e.ends == 1)
        })
        .await;
    platform.drained(QUEUE).await;
    assert!(platform.dead_letters(0).await.is_empty());
    assert_eq!(worker.deaths, 1);
    assert!(
        !worker.output().contains("worker processes died"),
        "{}",
        worker.output()
    );
    drop(worker);
    platform.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_the_broker_makes_no_suspects() {
    let services = PrivateServices::start().await;
    let platform = Platform::on(
        Vhost::create_on(services.services()).await,
        crate::platform::TOPOLOGY,
    )
    .await;
    let bodies: Vec<_> = (0..50)
        .map(|n| order(&format!("t{n}"), r#"{"ms":3000}"#, r#","maxRetries":0"#))
        .collect();
    publish(&platform, &bodies).await;
    let mut worker = Supervised::start(platform.vhost.amqp_url(), 50);
    worker
        .until(PATIENT, "all to start", |journal| journal.len() == 50)
        .await;
    services.kill_broker().await;
    services.start_broker().await;
    // The broker has taken back what ran when it died; on a slow machine some had ended before.
    worker
        .until(PATIENT, "some to start again", |journal| {
            journal.values().any(|e| e.starts >= 2)
        })
        .await;
    worker
        .until(PATIENT, "all to finish", |journal| {
            journal.values().all(|e| e.ends >= 1 && e.ends == e.starts)
        })
        .await;
    platform.drained(QUEUE).await;
    let dead = platform.vhost.management().queue("task.dead.queue").await;
    assert_eq!((dead.unwrap().messages, worker.deaths), (0, 0));
    assert!(
        !worker.output().contains("worker processes died"),
        "{}",
        worker.output()
    );
}

/// What a forged header can do: its task runs alone, once, and is free of it afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn a_forged_count_only_makes_its_task_run_alone() {
    let platform = Platform::new().await;
    let seen = platform.listening();
    let values = [
        AMQPValue::LongLongInt(i64::MAX),
        AMQPValue::LongLongInt(-5),
        AMQPValue::LongLongInt(3),
        AMQPValue::LongString("many".into()),
        AMQPValue::Boolean(true),
    ];
    for (n, value) in values.iter().enumerate() {
        let mut headers = FieldTable::default();
        headers.insert(headers::CRASHES.into(), value.clone());
        let properties = BasicProperties::default().with_headers(headers);
        let body = envelope(&format!("t{n}"), "order.close.timeout", "");
        platform
            .publish_with("task.exchange", "order.close.x", body.as_bytes(), properties)
            .await;
    }
    seen.wait(values.len()).await;
    platform.drained(QUEUE).await;
    let mut ids = seen.ids();
    ids.sort();
    assert_eq!(ids, ["t0", "t1", "t2", "t3", "t4"]);
    assert!(platform.dead_letters(0).await.is_empty());
    platform.close().await;
}
