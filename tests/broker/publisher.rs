//! Every publish ends in exactly one outcome, and in its own.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use chrono::Utc;
use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties, ExchangeKind,
    options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable},
};
use tidegate::{
    broker::{
        BrokerSettings,
        publisher::{Outgoing, PublishOutcome, Publisher},
    },
    core::{
        envelope::{Envelope, Limits},
        headers::Origin,
    },
    publish::{SendError, Task, TaskPublisher},
    topology::Topology,
};
use tidegate_testkit::{Vhost, eventually};
use tokio::{task::JoinSet, time::Instant};

const PATIENCE: Duration = Duration::from_secs(30);

struct Bench {
    vhost: Vhost,
    channel: Channel,
    _connection: Connection,
    publisher: Publisher,
}

impl Bench {
    /// A vhost with exchange `x`, which has no alternate, and queue `q` bound to it by `yes`.
    async fn new(queue_arguments: &[(&str, AMQPValue)], settings: impl FnOnce(&mut BrokerSettings)) -> Self {
        let vhost = Vhost::create().await;
        let connection = Connection::connect(vhost.amqp_url(), ConnectionProperties::default())
            .await
            .unwrap();
        let channel = connection.create_channel().await.unwrap();
        let durable = ExchangeDeclareOptions {
            durable: true,
            ..ExchangeDeclareOptions::default()
        };
        channel
            .exchange_declare("x".into(), ExchangeKind::Topic, durable, FieldTable::default())
            .await
            .unwrap();
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
        for (name, value) in queue_arguments {
            arguments.insert((*name).into(), value.clone());
        }
        channel
            .queue_declare("q".into(), QueueDeclareOptions::durable(), arguments)
            .await
            .unwrap();
        let bind = QueueBindOptions::default();
        channel
            .queue_bind("q".into(), "x".into(), "yes".into(), bind, FieldTable::default())
            .await
            .unwrap();
        let mut broker = BrokerSettings::new(vhost.amqp_url().to_owned().into());
        settings(&mut broker);
        let publisher = Publisher::start(&broker).unwrap();
        Self {
            vhost,
            channel,
            _connection: connection,
            publisher,
        }
    }

    async fn close(self) {
        self.vhost.close().await;
    }
}

fn message(id: &str, exchange: &str, key: &str) -> Outgoing {
    Outgoing {
        exchange: exchange.to_owned(),
        routing_key: key.to_owned(),
        body: Bytes::from_static(b"{}"),
        properties: BasicProperties::default()
            .with_message_id(id.into())
            .with_delivery_mode(2),
    }
}

/// B37: a return precedes the confirm, and many confirms come as one `multiple`. Each publish must get its own.
#[tokio::test(flavor = "multi_thread")]
async fn returned_messages_are_told_from_confirmed_ones_under_load() {
    let bench = Bench::new(&[], |_| {}).await;
    let mut publishes = JoinSet::new();
    for n in 0..6_000_u32 {
        let publisher = bench.publisher.clone();
        // Irregular, so that runs of both kinds fall into one acknowledgement.
        let routable = n % 7 < 3 || n % 11 == 0;
        publishes.spawn(async move {
            let key = if routable { "yes" } else { "no" };
            (
                routable,
                publisher.publish(message(&format!("m{n}"), "x", key)).await,
            )
        });
    }
    let (mut stored, mut returned) = (0, 0);
    while let Some(publish) = publishes.join_next().await {
        match publish.unwrap() {
            (true, PublishOutcome::Confirmed) => stored += 1,
            (false, PublishOutcome::Returned { code, .. }) => {
                assert_eq!(code, 312);
                returned += 1;
            }
            wrong => panic!("{wrong:?}"),
        }
    }
    assert_eq!(stored + returned, 6_000);
    eventually(PATIENCE, "all confirmed messages in the queue", async || {
        bench
            .vhost
            .management()
            .queue("q")
            .await
            .is_some_and(|q| q.messages == stored)
    })
    .await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_nacks() {
    let full = [
        ("x-max-length", AMQPValue::LongInt(1)),
        ("x-overflow", AMQPValue::LongString("reject-publish".into())),
    ];
    let bench = Bench::new(&full, |_| {}).await;
    // A quorum queue may overshoot its limit a little before it refuses.
    let mut outcomes = Vec::new();
    for n in 0..50 {
        outcomes.push(
            bench
                .publisher
                .publish(message(&format!("m{n}"), "x", "yes"))
                .await,
        );
    }
    assert_eq!(outcomes[0], PublishOutcome::Confirmed);
    assert_eq!(outcomes[49], PublishOutcome::Nacked);
    assert!(
        outcomes
            .iter()
            .all(|o| matches!(o, PublishOutcome::Confirmed | PublishOutcome::Nacked)),
        "{outcomes:?}"
    );
    bench.close().await;
}

/// A missing exchange closes the channel of a naive publisher, and everybody's confirms with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_exchange_harms_nobody_else() {
    let bench = Bench::new(&[], |s| s.publish_connections = 1).await;
    let mut publishes = JoinSet::new();
    for n in 0..600_u32 {
        let publisher = bench.publisher.clone();
        publishes.spawn(async move {
            let exchange = if n % 3 == 0 { "missing" } else { "x" };
            (
                exchange,
                publisher
                    .publish(message(&format!("m{n}"), exchange, "yes"))
                    .await,
            )
        });
    }
    while let Some(publish) = publishes.join_next().await {
        let (exchange, outcome) = publish.unwrap();
        let expected = if exchange == "missing" {
            PublishOutcome::NoExchange
        } else {
            PublishOutcome::Confirmed
        };
        assert_eq!(outcome, expected);
    }
    // Once it exists, it is found without a restart.
    let durable = ExchangeDeclareOptions {
        durable: true,
        ..ExchangeDeclareOptions::default()
    };
    let declared = bench.channel.exchange_declare(
        "missing".into(),
        ExchangeKind::Fanout,
        durable,
        FieldTable::default(),
    );
    declared.await.unwrap();
    let outcome = bench.publisher.publish(message("late", "missing", "any")).await;
    assert!(matches!(outcome, PublishOutcome::Returned { .. }), "{outcome:?}");
    bench.close().await;
}

/// B45: what AMQP cannot carry is refused before it is written; the connection lives.
#[tokio::test(flavor = "multi_thread")]
async fn what_amqp_cannot_carry_is_invalid() {
    let bench = Bench::new(&[], |_| {}).await;
    let longest = "k".repeat(255);
    let fits = bench.publisher.publish(message("a", "x", &longest)).await;
    assert!(matches!(fits, PublishOutcome::Returned { .. }), "{fits:?}");
    for key in ["k".repeat(256), "é".repeat(128)] {
        let outcome = bench.publisher.publish(message("b", "x", &key)).await;
        let PublishOutcome::Invalid { why } = outcome else {
            panic!("{outcome:?}")
        };
        assert!(why.contains("256 bytes") && why.contains("255"), "{why}");
    }
    let anonymous = Outgoing {
        properties: BasicProperties::default(),
        ..message("c", "x", "yes")
    };
    assert!(matches!(
        bench.publisher.publish(anonymous).await,
        PublishOutcome::Invalid { .. }
    ));
    assert_eq!(
        bench.publisher.publish(message("d", "x", "yes")).await,
        PublishOutcome::Confirmed
    );
    bench.close().await;
}

/// Whatever happens to the connection, each publish is answered in time, and none that was confirmed is missing.
#[tokio::test(flavor = "multi_thread")]
async fn lost_connections_leave_no_publish_unanswered() {
    let bench = Bench::new(&[], |s| s.confirm_timeout = Duration::from_secs(20)).await;
    let publishing = |round: u32| {
        let publisher = bench.publisher.clone();
        async move {
            let mut publishes = JoinSet::new();
            for n in 0..500_u32 {
                let publisher = publisher.clone();
                publishes.spawn(async move {
                    publisher
                        .publish(message(&format!("m{round}-{n}"), "x", "yes"))
                        .await
                });
            }
            publishes.join_all().await
        }
    };
    let mut confirmed = publishing(0).await.len() as u64;
    let management = bench.vhost.management();
    for round in 1..=3 {
        eventually(PATIENCE, "the connections to be listed", async || {
            management.connection_names().await.len() >= 2
        })
        .await;
        let (outcomes, ()) = tokio::join!(publishing(round), management.close_connections());
        assert_eq!(outcomes.len(), 500);
        for outcome in &outcomes {
            assert!(
                matches!(
                    outcome,
                    PublishOutcome::Confirmed | PublishOutcome::TimedOut { .. }
                ),
                "{outcome:?}"
            );
        }
        confirmed += outcomes
            .iter()
            .filter(|o| **o == PublishOutcome::Confirmed)
            .count() as u64;
        // The broker may still be closing a connection that it has answered for.
        eventually(PATIENCE, "a publish to be confirmed again", async || {
            let again = message(&format!("again{round}"), "x", "yes");
            bench.publisher.publish(again).await == PublishOutcome::Confirmed
        })
        .await;
        confirmed += 1;
    }
    // More is possible: what had no known outcome may have been stored.
    eventually(
        PATIENCE,
        &format!("all {confirmed} confirmed messages"),
        async || {
            management
                .queue("q")
                .await
                .is_some_and(|q| q.messages >= confirmed)
        },
    )
    .await;
    bench.close().await;
}

/// B30/B38: with no broker at all a publish still returns in its time.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_broker_a_publish_returns_in_time() {
    // A port that nothing listens on: bound once to learn its number, then free.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let mut settings = BrokerSettings::new(format!("amqp://u:secret@127.0.0.1:{port}/v").into());
    settings.confirm_timeout = Duration::from_millis(800);
    let publisher = Publisher::start(&settings).unwrap();
    let started = Instant::now();
    let outcome = publisher.publish(message("m", "x", "yes")).await;
    let PublishOutcome::TimedOut { why } = &outcome else {
        panic!("{outcome:?}")
    };
    assert!(!why.contains("secret"), "{why}");
    assert!(started.elapsed() < Duration::from_secs(5));
}

/// B08: a task for a platform that nobody has applied is refused, delayed or not, and says what to do.
#[tokio::test(flavor = "multi_thread")]
async fn on_an_empty_vhost_a_task_is_refused_with_advice() {
    let bench = Bench::new(&[], |_| {}).await;
    let queue = "[[queue]]\nname = \"a.b.queue\"\nbind = [\"a.b.#\"]\nowner = \"t\"\n";
    let topology = Arc::new(Topology::parse(&[("t.toml", queue)]).unwrap());
    let tasks = TaskPublisher::new(bench.publisher.clone(), topology);
    let body = r#"{"taskId":"t","taskType":"a.b","payload":{}}"#;
    let envelope = Envelope::parse(body.as_bytes(), &Limits::standard(), Utc::now()).unwrap();
    for delay in [0, 5] {
        let task = Task::new(body, &envelope, Origin::Amqp);
        let error = tasks.send(task, Duration::from_secs(delay)).await.unwrap_err();
        assert!(matches!(error, SendError::NoExchange(_)), "{error:?}");
        assert!(error.to_string().contains("tidegate topology apply"), "{error}");
    }
    bench.close().await;
}
