//! Clients in other languages that know no header of ours: one call, and the policy of the topology file holds.

use std::{collections::BTreeMap, process::Command};

use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldArray, FieldTable},
};
use tidegate::core::headers;
use tidegate_testkit::{Process, eventually, python};

use crate::platform::{PATIENCE, Platform, envelope};

const QUEUE: &str = "order.close.queue";
const TYPE: &str = "order.close.timeout";

/// Delays of 300, 600 and 1,200 ms; no jitter, so that they can be told from each other.
const TOPOLOGY: &str = r#"
    [[queue]]
    name = "order.close.queue"
    bind = ["order.close.#"]
    owner = "test"
    retry = { max_retries = 3, initial = "300ms", multiplier = 2.0, max = "10s", jitter = 0.0 }

    [[queue]]
    name = "order.other.queue"
    bind = ["order.other.#"]
    owner = "test"
"#;

/// When each task came, in ms, by its body.
fn arrivals(output: &str) -> BTreeMap<String, Vec<u64>> {
    let mut arrivals = BTreeMap::<String, Vec<u64>>::new();
    for line in output.lines() {
        if let Some((at, body)) = line.split_once(' ') {
            arrivals
                .entry(body.to_owned())
                .or_default()
                .push(at.parse().unwrap());
        }
    }
    arrivals
}

async fn refused_by_pika(way: &str) {
    let platform = Platform::with(TOPOLOGY).await;
    // Several instances, as in production: each message is taken by one.
    platform.run_router();
    platform.run_router();
    let retries = |id: &str, most: u32| envelope(id, TYPE, &format!(r#","maxRetries":{most}"#));
    let wanted: Vec<(String, usize)> = (0..6)
        .map(|n| (envelope(&format!("t{n}"), TYPE, ""), 4))
        .chain([(retries("none", 0), 1), (retries("five", 5), 6)])
        .collect();
    let mut command = Command::new(python("pika"));
    command
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/flow/refuser.py"))
        .args([QUEUE, "order.close.x", way])
        .args(wanted.iter().map(|(body, _)| body))
        .env("AMQP_URL", platform.vhost.amqp_url());
    let refuser = Process::start("pika", &mut command);

    let dead = platform.dead_letters(wanted.len()).await;
    let arrived = arrivals(&refuser.output());
    for (body, attempts) in &wanted {
        let times = &arrived[body];
        assert_eq!(times.len(), *attempts, "{body}");
        for (n, pair) in times.windows(2).enumerate() {
            let (gap, least) = (pair[1] - pair[0], 300 << n);
            // Later than that says something about the machine, unless it is the delay of another attempt.
            assert!(
                gap >= least,
                "{body}: attempt {} after {gap} ms of {least}",
                n + 2
            );
        }
        let letters: Vec<_> = dead.iter().filter(|d| d.body == body.as_bytes()).collect();
        assert_eq!(letters.len(), 1, "{body}");
        assert_eq!(letters[0].reason(), "retries_exhausted");
        assert_eq!(letters[0].header(headers::FAILED_QUEUE), QUEUE);
        assert_eq!(letters[0].header(headers::ROUTING_KEY), "order.close.x");
    }
    // The exponent shows in the sum: with the first delay each time it would be 900 ms.
    let slowest = arrived.values().filter(|times| times.len() == 4);
    assert!(slowest.into_iter().all(|times| times[3] - times[0] >= 2_100));
    platform.drained(QUEUE).await;
    platform.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nack_by_pika_gives_the_attempts_and_delays_of_the_topology() {
    refused_by_pika("nack").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reject_by_pika_gives_the_attempts_and_delays_of_the_topology() {
    refused_by_pika("reject").await;
}

/// Whatever number a client writes, its task ends after at most the attempts of its policy.
#[tokio::test(flavor = "multi_thread")]
async fn forged_attempts_end_like_others() {
    let platform = Platform::with(TOPOLOGY).await;
    platform.run_router();
    let text = |text: &str| AMQPValue::LongString(text.into());
    // What is no attempt counts as the first.
    let forged = [
        ("negative", AMQPValue::LongLongInt(-7), 4),
        ("zero", AMQPValue::LongLongInt(0), 4),
        ("third", AMQPValue::ShortShortInt(3), 2),
        ("far", AMQPValue::LongLongInt(1_000_000), 1),
        ("most", AMQPValue::LongUInt(u32::MAX), 1),
        ("beyond", AMQPValue::LongLongInt(i64::MAX), 4),
        ("least", AMQPValue::LongLongInt(i64::MIN), 4),
        ("words", text("many"), 4),
        ("digits", text("4"), 1),
        ("half", AMQPValue::Double(2.5), 4),
        ("truth", AMQPValue::Boolean(true), 4),
        ("nested", AMQPValue::FieldTable(FieldTable::default()), 4),
    ];
    let seen = platform.refusing(QUEUE).await;
    for (id, value, _) in &forged {
        let mut table = FieldTable::default();
        table.insert(headers::ATTEMPT.into(), value.clone());
        table.insert(headers::WAITS.into(), value.clone());
        table.insert(headers::CRASHES.into(), value.clone());
        let properties = BasicProperties::default()
            .with_delivery_mode(2)
            .with_headers(table);
        let body = envelope(id, TYPE, "");
        platform
            .publish_with("task.exchange", "order.close.x", body.as_bytes(), properties)
            .await;
    }
    let dead = platform.dead_letters(forged.len()).await;
    assert!(dead.iter().all(|d| d.reason() == "retries_exhausted"));
    platform.drained(QUEUE).await;
    let ids = seen.ids();
    for (id, value, attempts) in forged {
        assert_eq!(
            ids.iter().filter(|seen| *seen == id).count(),
            attempts,
            "{value:?}"
        );
    }
    platform.close().await;
}

/// A client that copies all headers of a dead letter to a new message: the queue that failed is the one that the broker saw.
#[tokio::test(flavor = "multi_thread")]
async fn copied_records_lead_to_no_other_queue() {
    let platform = Platform::with(TOPOLOGY).await;
    platform.run_router();
    let text = |text: &str| AMQPValue::LongString(text.into());
    let mut death = FieldTable::default();
    death.insert("queue".into(), text("order.other.queue"));
    death.insert("reason".into(), text("expired"));
    death.insert("exchange".into(), text("task.exchange"));
    death.insert("count".into(), AMQPValue::LongLongInt(1_000_000));
    death.insert("time".into(), AMQPValue::Timestamp(1_700_000_000));
    death.insert(
        "routing-keys".into(),
        AMQPValue::FieldArray(FieldArray::from(vec![text("order.other.x")])),
    );
    let mut table = FieldTable::default();
    let deaths = FieldArray::from(vec![AMQPValue::FieldTable(death)]);
    table.insert("x-death".into(), AMQPValue::FieldArray(deaths));
    for (name, value) in [
        ("x-first-death-queue", "order.other.queue"),
        ("x-last-death-queue", "order.other.queue"),
        ("x-first-death-reason", "expired"),
        (headers::FAILED_QUEUE, "order.other.queue"),
        (headers::DEAD_REASON, "rejected"),
        (headers::ERROR_KIND, "forged"),
    ] {
        table.insert(name.into(), text(value));
    }
    let seen = platform.refusing(QUEUE).await;
    let properties = BasicProperties::default()
        .with_delivery_mode(2)
        .with_headers(table);
    let body = envelope("copied", TYPE, "");
    platform
        .publish_with("task.exchange", "order.close.x", body.as_bytes(), properties)
        .await;
    let dead = platform.dead_letters(1).await.remove(0);
    assert_eq!(dead.reason(), "retries_exhausted");
    assert_eq!(dead.header(headers::FAILED_QUEUE), QUEUE);
    assert_eq!(dead.header(headers::ERROR_KIND), "refused");
    assert_eq!(seen.ids().len(), 4);
    platform.take("order.other.queue", 0).await;
    platform.close().await;
}

/// A policy has made a queue drop what it has no room for. That says nothing about the task: it comes back as the same
/// attempt until there is room.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_full_queue_lets_go_comes_back_without_losing_an_attempt() {
    let metrics = crate::platform::metrics();
    let platform = Platform::with(TOPOLOGY).await;
    let policy = serde_json::json!({
        "pattern": "^order\\.close\\.queue$",
        "definition": {"max-length": 1, "overflow": "drop-head"},
        "apply-to": "queues",
    });
    let management = platform.vhost.management();
    management.put_policy("tight", &policy).await;
    eventually(PATIENCE, "the policy to be in force", async || {
        let path = format!("/api/queues/{}/{QUEUE}", management.vhost());
        let queue = management.get(&path).await?;
        (queue["policy"] == "tight").then_some(())
    })
    .await;
    for n in 0..5 {
        let body = envelope(&format!("t{n}"), TYPE, r#","maxRetries":0"#);
        platform
            .publish_plain("task.exchange", "order.close.x", body.as_bytes())
            .await;
    }
    platform.run_router();
    let dropped = |page: &str| page.contains(r#"reason="overflow""#);
    eventually(PATIENCE, "a task to be put off", async || {
        dropped(&metrics.render())
    })
    .await;
    let seen = platform.listening();
    eventually(PATIENCE, "all five to start", async || {
        let mut ids = seen.ids();
        ids.sort();
        ids.dedup();
        ids.len() == 5
    })
    .await;
    assert!(
        seen.all().iter().all(|start| start.attempt == 1),
        "none was tried before"
    );
    platform.take("task.dead.queue", 0).await;
    platform.drained(QUEUE).await;
    platform.close().await;
}

/// B69: the binding that leads to the dead letters is gone. Nothing is acknowledged before it is somewhere else, so the task
/// stays where it is, and arrives once the binding is back.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_way_to_the_dead_letters_nothing_is_lost() {
    let metrics = crate::platform::metrics();
    let platform = Platform::with(TOPOLOGY).await;
    platform.run_router();
    let management = platform.vhost.management();
    management.unbind("task.dead", "task.dead.queue").await;
    let seen = platform.refusing(QUEUE).await;
    let body = envelope("kept", TYPE, r#","maxRetries":0"#);
    platform
        .publish_plain("task.exchange", TYPE, body.as_bytes())
        .await;
    let returned = |page: &str| {
        page.lines().any(|line| {
            line.starts_with("tidegate_published_total")
                && line.contains(r#"outcome="returned""#)
                && !line.ends_with(" 0")
        })
    };
    eventually(PATIENCE, "the dead letter to come back unsent", async || {
        returned(&metrics.render())
    })
    .await;
    platform.apply().await;
    let dead = platform.dead_letters(1).await;
    assert_eq!(dead[0].body, body.as_bytes());
    assert_eq!(dead[0].reason(), "retries_exhausted");
    assert_eq!(seen.ids(), ["kept"]);
    platform.close().await;
}

/// The same with the way from the business queue to the router: the broker keeps the messages, and passes them on once it can.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_way_to_the_router_nothing_is_lost() {
    let platform = Platform::with(TOPOLOGY).await;
    platform.run_router();
    let management = platform.vhost.management();
    management.unbind("task.failed", "task.failed.queue").await;
    let seen = platform.refusing(QUEUE).await;
    for id in ["one", "two"] {
        let body = envelope(id, TYPE, r#","maxRetries":0"#);
        platform
            .publish_plain("task.exchange", TYPE, body.as_bytes())
            .await;
    }
    seen.wait(2).await;
    // What the broker has dead-lettered and could place nowhere is no longer with the consumer.
    let path = format!("/api/queues/{}/{QUEUE}", management.vhost());
    eventually(PATIENCE, "both to be refused", async || {
        let queue = management.get(&path).await?;
        let refused = queue["message_stats"]["deliver"].as_u64() >= Some(2);
        (refused && queue["messages_unacknowledged"] == 0).then_some(())
    })
    .await;
    platform.apply().await;
    let dead = platform.dead_letters(2).await;
    assert!(dead.iter().all(|d| d.reason() == "retries_exhausted"));
    assert_eq!(seen.ids().len(), 2);
    platform.close().await;
}
