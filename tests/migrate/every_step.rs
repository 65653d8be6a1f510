//! A migration that ends after any of its steps and is begun anew by another.

use std::{collections::BTreeMap, time::Duration};

use futures::{StreamExt, stream};
use tidegate::{
    core::ladder::Destination,
    topology::{Binding, Exchange, ExchangeKind, Objects, Queue, Value},
};
use tidegate_testkit::eventually;
use tokio_util::sync::CancellationToken;

use crate::platform::{PATIENCE, Platform};

const WAITING: usize = 30;
const EXCHANGE: &str = "test.exchange";
/// More than a migration of these queues has.
const STEPS: usize = 32;
/// Migrations at once.
const AT_ONCE: usize = 8;

/// One queue for each number of steps; all take the same messages, which are published throughout.
async fn ends_after_every_step(steps: Vec<usize>, consumed: bool) {
    let queue = |k: &usize| format!("q{k}.queue");
    let names: Vec<String> = steps.iter().map(queue).collect();
    let old: Vec<&str> = names.iter().map(String::as_str).collect();
    let platform = Platform::with(objects(&old), &old).await;
    for n in 0..WAITING {
        platform.publish(EXCHANGE, "tick.early", &n.to_string()).await;
    }
    let consumers: Vec<_> = if consumed {
        old.iter().map(|q| platform.consume(q)).collect()
    } else {
        Vec::new()
    };

    let stop = CancellationToken::new();
    let publishing = async {
        let (mut n, mut ticks) = (WAITING, tokio::time::interval(Duration::from_millis(250)));
        while !stop.is_cancelled() {
            ticks.tick().await;
            platform.publish(EXCHANGE, "tick.late", &n.to_string()).await;
            n += 1;
        }
        n
    };
    let migrating = async {
        let one = |k: usize| {
            let platform = &platform;
            async move {
                let queue = queue(&k);
                let mut first = platform.migration(&queue).await;
                let (mut last, mut whole) = (None, false);
                for _ in 0..k {
                    match first.step().await.unwrap() {
                        Some(action) => last = Some(action),
                        None => whole = true,
                    }
                }
                // Its connection goes, and with it everything that it had not finished.
                first.close().await;
                let mut second = platform.migration(&queue).await;
                second
                    .run()
                    .await
                    .unwrap_or_else(|error| panic!("after {k} steps, {last:?}: {error}"));
                assert_eq!(second.report().lost, 0, "after {last:?}");
                second.close().await;
                whole
            }
        };
        let whole: Vec<_> = stream::iter(steps.clone())
            .map(one)
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        stop.cancel();
        whole
    };
    let (sent, whole) = tokio::join!(publishing, migrating);
    assert!(
        whole.contains(&true),
        "STEPS is too small: no migration came to its end"
    );
    assert!(whole.contains(&false));
    platform.is_as_wanted().await;

    let consumers = if consumed {
        consumers
    } else {
        old.iter().map(|q| platform.consume(q)).collect()
    };
    let expected: BTreeMap<String, usize> = (0..sent).map(|n| (n.to_string(), 1)).collect();
    for (k, consumer) in steps.iter().zip(consumers) {
        eventually(
            PATIENCE,
            &format!("{sent} messages of {}", queue(k)),
            async || consumer.taken.len() >= sent,
        )
        .await;
        let taken = consumer.stop().await;
        let different: Vec<_> = taken
            .counts()
            .into_iter()
            .filter(|(text, count)| expected.get(text) != Some(count))
            .collect();
        assert!(different.is_empty(), "killed after {k} steps: {different:?}");
        assert_eq!(taken.counts().len(), sent, "killed after {k} steps");
        let keys = taken.keys();
        assert!(
            keys.iter().all(|key| key.starts_with("tick.")),
            "keys stay as they were: {keys:?}"
        );
    }
    platform.vhost.close().await;
}

/// Queues that one message reaches by two bindings, one of them only by the later messages.
fn objects(queues: &[&str]) -> Objects {
    let text = |text: &str| Value::Text(text.to_owned());
    let quorum = BTreeMap::from([
        ("x-queue-type", text("quorum")),
        ("x-dead-letter-exchange", text("test.dead")),
        ("x-dead-letter-strategy", text("at-least-once")),
        ("x-overflow", text("reject-publish")),
    ]);
    let mut objects = Objects::default();
    objects.exchanges.push(Exchange {
        name: EXCHANGE.to_owned(),
        kind: ExchangeKind::Topic,
        alternate: None,
    });
    for name in queues {
        objects.queues.push(Queue {
            name: (*name).to_owned(),
            arguments: quorum.clone(),
        });
        for pattern in ["tick.#", "*.late"] {
            objects.bindings.push(Binding {
                source: EXCHANGE.to_owned(),
                destination: Destination::Queue((*name).to_owned()),
                pattern: pattern.to_owned(),
            });
        }
    }
    objects
}

/// Every other number of steps each, to be short; all for both in a long run.
fn steps(first: usize) -> Vec<usize> {
    let every = if std::env::var_os("TIDEGATE_LONG").is_some() {
        1
    } else {
        2
    };
    (first % every..STEPS).step_by(every).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_ends_after_any_step_is_finished_by_the_next_with_consumers() {
    ends_after_every_step(steps(0), true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_ends_after_any_step_is_finished_by_the_next_without_consumers() {
    ends_after_every_step(steps(1), false).await;
}
