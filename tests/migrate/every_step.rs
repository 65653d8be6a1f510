//! A migration that ends after any of its steps and is begun anew by another.

use std::{collections::BTreeMap, time::Duration};

use futures::{StreamExt, stream};
use tidegate_testkit::eventually;
use tokio_util::sync::CancellationToken;

use crate::platform::{PATIENCE, Platform};

const WAITING: usize = 30;

/// One queue for each number of steps; all take the same messages, which are published throughout.
async fn ends_after_every_step(steps: std::ops::Range<usize>, consumed: bool) {
    let queue = |k: usize| format!("q{k}.queue");
    let text: String = steps
        .clone()
        .map(|k| {
            format!(
                "[[queue]]\nname = \"{}\"\nbind = [\"tick.#\"]\nowner = \"test\"\nfan_out = true\n",
                queue(k)
            )
        })
        .collect();
    let names: Vec<String> = steps.clone().map(queue).collect();
    let old: Vec<&str> = names.iter().map(String::as_str).collect();
    let platform = Platform::with(
        &[("platform.toml", "prefix = \"task\""), ("test.toml", &text)],
        &old,
    )
    .await;
    for n in 0..WAITING {
        platform
            .publish("task.exchange", "tick.early", &n.to_string())
            .await;
    }
    let consumers: Vec<_> = if consumed {
        old.iter().map(|q| platform.consume(q)).collect()
    } else {
        Vec::new()
    };

    let stop = CancellationToken::new();
    let publishing = async {
        let (mut n, mut ticks) = (WAITING, tokio::time::interval(Duration::from_millis(50)));
        while !stop.is_cancelled() {
            ticks.tick().await;
            platform
                .publish("task.exchange", "tick.late", &n.to_string())
                .await;
            n += 1;
        }
        n
    };
    let migrating = async {
        let one = |k: usize| {
            let platform = &platform;
            async move {
                let queue = queue(k);
                let mut first = platform.migration(&queue).await;
                let mut last = None;
                for _ in 0..k {
                    match first.step().await.unwrap() {
                        Some(action) => last = Some(action),
                        None => break,
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
                last
            }
        };
        let lasts: Vec<_> = stream::iter(steps.clone())
            .map(one)
            .buffer_unordered(16)
            .collect()
            .await;
        stop.cancel();
        lasts
    };
    let (sent, lasts) = tokio::join!(publishing, migrating);
    assert!(
        lasts.iter().any(Option::is_none) && lasts.len() == steps.len(),
        "the first ends before its first step"
    );
    platform.is_as_wanted().await;

    let consumers = if consumed {
        consumers
    } else {
        old.iter().map(|q| platform.consume(q)).collect()
    };
    let expected: BTreeMap<String, usize> = (0..sent).map(|n| (n.to_string(), 1)).collect();
    for (k, consumer) in consumers.into_iter().enumerate() {
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

#[tokio::test(flavor = "multi_thread")]
async fn one_that_ends_after_any_step_is_finished_by_the_next_with_consumers() {
    ends_after_every_step(0..36, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_ends_after_any_step_is_finished_by_the_next_without_consumers() {
    ends_after_every_step(0..36, false).await;
}
