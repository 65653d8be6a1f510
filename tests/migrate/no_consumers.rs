//! A queue that nobody consumes: the program moves its messages itself, and is killed in the middle of it.

use std::{collections::BTreeMap, time::Duration};

use futures::{StreamExt, stream};
use lapin::BasicProperties;
use tidegate::broker::publisher::Outgoing;
use tidegate_testkit::eventually;

use crate::platform::{FILES, PATIENCE, Platform, QUEUE};

const WAITING: usize = 5_000;

/// All with the same message id, as some clients do: what tells them apart is the body.
async fn fill(platform: &Platform) {
    let one = |n: usize| {
        let publisher = platform.publisher.clone();
        async move {
            let message = Outgoing {
                exchange: "task.exchange".to_owned(),
                routing_key: "order.close.plain".to_owned(),
                body: n.to_string().into_bytes().into(),
                properties: BasicProperties::default()
                    .with_delivery_mode(2)
                    .with_message_id("always the same".into()),
            };
            assert_eq!(publisher.publish(message).await.as_str(), "confirmed");
        }
    };
    stream::iter(0..WAITING)
        .map(one)
        .buffer_unordered(200)
        .collect::<Vec<_>>()
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_consumers_messages_are_moved_once_though_it_is_killed() {
    let (platform, _) = Platform::from_files(FILES, &[QUEUE]).await;
    fill(&platform).await;
    let shelter = format!("{QUEUE}.migrating");
    for share in [1, 2] {
        let mut program = platform.migrate(&[QUEUE]);
        eventually(PATIENCE, "a part to be moved", async || {
            let there = platform.vhost.management().queue(&shelter).await;
            there.is_some_and(|queue| queue.messages as usize > WAITING * share / 5) || !program.is_running()
        })
        .await;
        program.kill();
    }
    let mut program = platform.migrate(&[QUEUE, "--json"]);
    let status = program.wait(PATIENCE).await;
    assert!(status.success(), "{}", program.output());
    platform.is_as_wanted().await;

    let consumer = platform.consume(QUEUE);
    eventually(PATIENCE, "all messages", async || consumer.taken.len() >= WAITING).await;
    tokio::time::timeout(Duration::from_secs(1), std::future::pending::<()>())
        .await
        .ok();
    let taken = consumer.stop().await;
    let expected: BTreeMap<String, usize> = (0..WAITING).map(|n| (n.to_string(), 1)).collect();
    let counts = taken.counts();
    let different = counts
        .iter()
        .filter(|(text, count)| expected.get(*text) != Some(count))
        .count();
    assert_eq!((counts.len(), different), (WAITING, 0), "{}", program.output());
    assert!(
        taken.keys().iter().all(|key| key == "order.close.plain"),
        "{:?}",
        taken.keys()
    );
    platform.vhost.close().await;
}
