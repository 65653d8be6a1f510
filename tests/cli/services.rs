//! What needs broker and database.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_testkit::{Database, Vhost, eventually};

use crate::run::{ORDER, Tidegate};

const PATIENCE: Duration = Duration::from_secs(20);

fn on(vhost: &Vhost) -> Tidegate {
    Tidegate::new()
        .file("topology/platform.toml", "")
        .file("topology/order.toml", ORDER)
        .env("AMQP_URL", vhost.amqp_url())
}

async fn has_messages(vhost: &Vhost, queue: &str, count: u64) {
    eventually(PATIENCE, &format!("{count} messages in {queue}"), async || {
        vhost
            .management()
            .queue(queue)
            .await
            .is_some_and(|queue| queue.messages == count)
    })
    .await;
}

#[tokio::test]
async fn what_is_published_is_on_its_queue() {
    let vhost = Vhost::create().await;
    let tidegate = on(&vhost);
    let applied = tidegate.run(&["topology", "apply", "--json"]);
    assert_eq!(applied.code, 0, "{applied:?}");
    assert_eq!(applied.json()["queues"], 1);
    assert_eq!(
        tidegate.run(&["topology", "apply"]).code,
        0,
        "applying again changes nothing"
    );

    let ran = tidegate.run(&[
        "publish",
        "--type",
        "order.close",
        "--payload",
        r#"{"orderId":"1"}"#,
        "--id",
        "t-1",
        "--json",
    ]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let mut published = ran.json();
    assert!(published["due"].take().is_string());
    assert_eq!(
        published,
        json!({"taskId": "t-1", "taskType": "order.close", "exchange": "task.exchange", "routingKey": "order.close",
            "due": null, "status": "confirmed"})
    );
    let lines = (2..=4)
        .map(|n| format!("{{\"taskType\":\"order.close\",\"payload\":{{\"n\":{n}}}}}\n"))
        .collect::<String>();
    let ran = tidegate.run_with(&["publish", "-", "--lines", "--json", "--delay", "0.2s"], &lines);
    assert_eq!(ran.code, 0, "{ran:?}");
    let ids: Vec<Value> = ran
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["taskId"].take())
        .collect();
    assert_eq!(ids.len(), 3);
    assert!(
        ran.stderr.contains("a taskId was added to 3 of 3 tasks"),
        "{}",
        ran.stderr
    );
    has_messages(&vhost, "order.close.queue", 4).await;

    let ahead = (chrono::Utc::now() + chrono::Duration::hours(1)).to_rfc3339();
    let body =
        json!({"taskId": "t-5", "taskType": "order.close", "payload": {}, "scheduleTime": ahead}).to_string();
    let ran = tidegate.run_with(&["publish", "-"], &body);
    assert!(
        ran.code == 0 && ran.stderr.contains("delayed until its scheduleTime"),
        "{ran:?}"
    );
    has_messages(&vhost, "order.close.queue", 4).await;
    vhost.close().await;
}

#[tokio::test]
async fn what_nothing_takes_is_not_a_success() {
    let vhost = Vhost::create().await;
    let tidegate = on(&vhost);
    let ran = tidegate.run(&["publish", "--type", "order.close", "--json"]);
    assert_eq!(
        (ran.code, &ran.json()["status"]),
        (4, &json!("unroutable")),
        "before the topology is applied: {ran:?}"
    );
    assert!(ran.stderr.contains("topology apply"), "{}", ran.stderr);
    assert_eq!(tidegate.run(&["topology", "apply"]).code, 0);
    // The broker knows the exchange but no queue takes the key.
    let ran = tidegate.run(&[
        "publish",
        "--type",
        "order.close",
        "--exchange",
        "amq.direct",
        "--json",
    ]);
    assert_eq!(
        (ran.code, &ran.json()["status"]),
        (4, &json!("unroutable")),
        "{ran:?}"
    );
    let ran = tidegate.run(&[
        "publish",
        "--type",
        "order.close",
        "--exchange",
        "amq.direct",
        "--delay",
        "1s",
    ]);
    assert_eq!(ran.code, 2, "a delay can't end in another exchange: {ran:?}");
    vhost.close().await;
}

/// B37 by its letter: the files say that a queue takes the key, the broker knows better.
#[tokio::test]
async fn what_an_unbound_queue_no_longer_takes_is_not_a_success() {
    let vhost = Vhost::create().await;
    let tidegate = on(&vhost);
    assert_eq!(tidegate.run(&["topology", "apply"]).code, 0);
    let publish = ["publish", "--type", "order.close.timeout", "--json"];
    let ran = tidegate.run(&publish);
    assert_eq!(
        (ran.code, &ran.json()["status"]),
        (0, &json!("confirmed")),
        "{ran:?}"
    );
    vhost
        .management()
        .unbind("task.exchange", "order.close.queue")
        .await;
    let ran = tidegate.run(&publish);
    assert_eq!(
        (ran.code, &ran.json()["status"]),
        (4, &json!("unroutable")),
        "{ran:?}"
    );
    let ran = tidegate.run(&[
        "publish",
        "--type",
        "order.close.timeout",
        "--allow-unrouted",
        "--json",
    ]);
    assert_eq!(
        (ran.code, &ran.json()["status"]),
        (0, &json!("confirmed")),
        "asked for: {ran:?}"
    );
    vhost.close().await;
}

#[tokio::test]
async fn a_queue_that_differs_is_a_conflict_with_its_values() {
    let vhost = Vhost::create().await;
    assert_eq!(on(&vhost).run(&["topology", "apply"]).code, 0);
    let other = on(&vhost).file("topology/order.toml", &format!("{ORDER}max_length = 5\n"));
    let ran = other.run(&["topology", "apply", "--json"]);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(
        !ran.error()["next"].as_str().unwrap().contains("below"),
        "{ran:?}"
    );
    let error = &ran.error()["errors"][0];
    assert_eq!(
        (&error["object"], &error["argument"]),
        (&json!("order.close.queue"), &json!("x-max-length")),
        "{error}"
    );
    vhost.close().await;
}

#[tokio::test]
async fn the_schema_comes_and_goes_and_schedules_are_listed() {
    let database = Database::create().await;
    let tidegate = Tidegate::new().env("DATABASE_URL", database.url());
    assert_eq!(tidegate.run(&["migrate", "info", "--json"]).code, 3);
    let ran = tidegate.run(&["migrate", "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(!ran.json()["applied"].as_array().unwrap().is_empty());
    assert_eq!(
        tidegate.run(&["migrate", "--json"]).json(),
        json!({"applied": []})
    );
    assert_eq!(
        tidegate.run(&["migrate", "info", "--json"]).json(),
        json!({"current": true})
    );
    assert_eq!(tidegate.run(&["cron", "list", "--json"]).json(), json!([]));
    assert_eq!(tidegate.run(&["cron", "next", "nightly"]).code, 4);
    assert_eq!(tidegate.run(&["migrate", "down", "--to", "0", "--yes"]).code, 0);
    assert_eq!(tidegate.run(&["migrate", "info"]).code, 3);
    database.close().await;
}
