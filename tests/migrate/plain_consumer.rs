//! Consumers that are no workers of ours follow a migration, as `docs/migrations.md` tells their owners to.

use std::{collections::BTreeMap, process::Command, time::Duration};

use serde_json::Value;
use tidegate_testkit::{Process, eventually, python, report};
use tokio_util::sync::CancellationToken;

use crate::platform::{FILES, PATIENCE, Platform, QUEUE};

const EVERY: Duration = Duration::from_millis(20);

struct Follower(Process);

impl Follower {
    fn start(python: &str, way: &str, platform: &Platform) -> Self {
        let mut command = Command::new(python);
        command
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/migrate/follower.py"))
            .args([way, QUEUE])
            .env("AMQP_URL", platform.vhost.amqp_url());
        Self(Process::start(&format!("pika by {way}"), &mut command))
    }

    fn taken(&self) -> Vec<String> {
        let output = self.0.output();
        let taken = output.lines().filter_map(|line| line.strip_prefix("took "));
        taken.map(str::to_owned).collect()
    }

    /// What it said beside, each run of one line once.
    fn story(&self) -> Vec<String> {
        let output = self.0.output();
        let mut story: Vec<String> = output
            .lines()
            .map(|line| line.split(' ').next().unwrap_or_default())
            .map(str::to_owned)
            .collect();
        story.dedup();
        story
    }

    /// Whether it lost its queue, came back and took something again.
    fn followed(&self) -> bool {
        let story = self.story();
        let lost = story.iter().position(|word| word == "cancelled");
        lost.is_some_and(|at| story[at..].iter().any(|word| word == "took"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_consumers_follow_and_none_is_lost_or_doubled() {
    let python = python("pika");
    let (platform, _) = Platform::from_files(FILES, &[QUEUE]).await;
    let followers = ["callback", "generator"].map(|way| Follower::start(&python, way, &platform));
    for follower in &followers {
        follower.0.printed(PATIENCE, "subscribed").await;
    }
    let stop = CancellationToken::new();
    let publishing = async {
        let (mut sent, mut ticks) = (0, tokio::time::interval(EVERY));
        while !stop.is_cancelled() {
            ticks.tick().await;
            platform
                .publish("task.exchange", "order.close.plain", &sent.to_string())
                .await;
            sent += 1;
        }
        sent
    };
    let migrating = async {
        let mut program = platform.migrate(&[QUEUE, "--json"]);
        let status = program.wait(PATIENCE).await;
        assert!(status.success(), "{}", program.output());
        eventually(PATIENCE, "both to come back and take something", async || {
            followers.iter().all(Follower::followed)
        })
        .await;
        stop.cancel();
        program.output()
    };
    let (sent, output): (usize, String) = tokio::join!(publishing, migrating);
    platform.is_as_wanted().await;

    // What was doubled would be ahead of this one in the queue.
    platform
        .publish("task.exchange", "order.close.plain", "last")
        .await;
    let taken = || followers.iter().flat_map(Follower::taken).collect::<Vec<_>>();
    eventually(PATIENCE, "the last one", async || {
        taken().iter().any(|body| body == "last")
    })
    .await;
    eventually(PATIENCE, "an empty queue", async || {
        let queue = platform.vhost.management().queue(QUEUE).await;
        queue.is_some_and(|queue| queue.messages == 0)
    })
    .await;
    let mut counts = BTreeMap::<String, usize>::new();
    for body in taken() {
        *counts.entry(body).or_default() += 1;
    }
    assert_eq!(counts.remove("last"), Some(1));
    let lost: Vec<usize> = (0..sent)
        .filter(|n| !counts.contains_key(&n.to_string()))
        .collect();
    let doubled: Vec<_> = counts.iter().filter(|(_, count)| **count > 1).collect();
    assert!(
        lost.is_empty() && doubled.is_empty() && counts.len() == sent,
        "lost {lost:?}, doubled {doubled:?}"
    );
    let json = output
        .lines()
        .rfind(|line| line.contains("\"drainedByConsumers\""));
    let json: Value = serde_json::from_str(json.unwrap()).unwrap();
    assert_eq!(
        (&json["lost"], &json["moved"]["messages"]),
        (&0.into(), &0.into()),
        "{json}"
    );
    assert!(
        json["in"]["ids"].as_u64() > Some(0) && json["in"] == json["out"],
        "{json}"
    );
    report(&format!(
        "{sent} messages, of which {} waited in the temporary queue; {:?}, {:?}",
        json["in"]["ids"],
        followers[0].story(),
        followers[1].story()
    ));
    platform.vhost.close().await;
}
