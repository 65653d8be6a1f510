//! What nothing wants: shown, kept without `--prune`, and deleted only where nothing is lost.

use lapin::{
    options::{BasicConsumeOptions, BasicGetOptions, QueueBindOptions, QueueDeclareOptions},
    types::FieldTable,
};
use serde_json::{Value, json};

use super::{Site, TEAM};

#[tokio::test(flavor = "multi_thread")]
async fn what_nothing_wants_is_shown_kept_and_pruned() {
    let site = Site::applied(TEAM).await;
    let (connection, channel) = site.client().await;
    // A live subscriber, as a person who looks at what is unrouted: never extra.
    let own = QueueDeclareOptions {
        exclusive: true,
        auto_delete: true,
        ..QueueDeclareOptions::default()
    };
    let queue = channel
        .queue_declare("".into(), own, FieldTable::default())
        .await
        .unwrap();
    let name = queue.name().clone();
    channel
        .queue_bind(
            name,
            "task.unrouted".into(),
            "".into(),
            QueueBindOptions::default(),
            FieldTable::default(),
        )
        .await
        .unwrap();
    site.settled(&[]).await;

    site.bind("task.exchange", "member.queue", "old.*", json!({}))
        .await;
    site.bind("task.exchange", "member.queue", "member.*", json!({"since": 3}))
        .await;
    site.declare("audit", json!({"x-queue-type": "classic"})).await;
    site.bind("task.exchange", "audit", "#", json!({})).await;
    site.declare("task.old.queue", json!({"x-queue-type": "quorum"}))
        .await;
    site.declare("theirs", json!({"x-queue-type": "quorum"})).await;
    site.bind("amq.topic", "theirs", "#", json!({})).await;
    site.put(
        "exchanges/VHOST/task.old",
        json!({"type": "topic", "durable": true}),
    )
    .await;
    let extra = [
        "extra binding task.exchange → member.queue (old.*)",
        "extra binding task.exchange → member.queue (member.*)",
        "extra binding task.exchange → audit (#)",
        "extra queue audit",
        "extra queue task.old.queue",
        "extra exchange task.old",
    ];
    site.settled(&extra).await;
    let ran = site.run(&["topology", "plan", "--ignore", "audit", "--json"]);
    assert_eq!(ran.json()["counts"]["extra"], 4, "{ran:?}");
    let kept = site.run(&["topology", "apply", "--json"]);
    assert_eq!((kept.code, &kept.json()["extra"]), (0, &json!(6)), "{kept:?}");
    site.settled(&extra).await;

    let pruned = site.run(&["topology", "apply", "--prune", "--ignore", "audit", "--json"]);
    assert_eq!(
        (pruned.code, &pruned.json()["pruned"]),
        (0, &json!(4)),
        "{pruned:?}"
    );
    site.settled(&[extra[2], extra[3]]).await;
    let pruned = site.run(&["topology", "apply", "--prune", "--json"]);
    assert_eq!(
        (pruned.code, &pruned.json()["pruned"]),
        (0, &json!(2)),
        "{pruned:?}"
    );
    site.settled(&[]).await;
    assert!(site.vhost.management().queue("theirs").await.is_some());
    connection.close(200, "done".into()).await.unwrap();
    site.vhost.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_with_messages_or_consumers_is_never_pruned() {
    let site = Site::applied(TEAM).await;
    let kinds = ["classic", "quorum"];
    for kind in kinds {
        for holds in ["messages", "consumers", "unacked"] {
            let name = format!("task.{kind}.{holds}");
            site.declare(&name, json!({"x-queue-type": kind})).await;
            if holds != "consumers" {
                assert!(
                    site.vhost
                        .management()
                        .publish("", &name, b"{}", json!({"delivery_mode": 2}))
                        .await
                );
            }
        }
    }
    let (connection, channel) = site.client().await;
    let mut consumers = Vec::new();
    for kind in kinds {
        let name = format!("task.{kind}.consumers");
        let (options, none) = (BasicConsumeOptions::default(), FieldTable::default());
        let consumer = channel.basic_consume(name.as_str().into(), "".into(), options, none);
        // Dropped, it would be cancelled.
        consumers.push(consumer.await.unwrap());
        let name = format!("task.{kind}.unacked");
        let taken = channel.basic_get(name.as_str().into(), BasicGetOptions::default());
        assert!(taken.await.unwrap().is_some());
    }
    let ran = site.run(&["topology", "apply", "--prune", "--json"]);
    assert_eq!(ran.code, 5, "{ran:?}");
    let error = ran.error();
    let kept: Vec<&Value> = error["errors"].as_array().unwrap().iter().collect();
    assert_eq!(kept.len(), 6, "{error:#}");
    let why = |name: &str| {
        let of = kept.iter().find(|k| k["object"] == name).unwrap();
        of["kept"].as_str().unwrap().split(';').next().unwrap()
    };
    // Some versions count who holds an unacknowledged message as a consumer.
    for kind in kinds {
        let expected = [
            ("messages", "it has 1 message and 0 consumers"),
            ("consumers", "it has 0 messages and 1 consumer"),
        ];
        for (holds, expected) in expected {
            let name = format!("task.{kind}.{holds}");
            assert_eq!(why(&name), expected, "{name}: {error:#}");
        }
    }
    for kind in kinds {
        for holds in ["messages", "consumers", "unacked"] {
            let name = format!("task.{kind}.{holds}");
            assert!(site.vhost.management().queue(&name).await.is_some(), "{name}");
        }
    }
    // The plan says what stands in the way.
    let text = site.run(&["topology", "plan"]).stdout;
    assert!(text.contains("not pruned while it has"), "{text}");
    connection.close(200, "done".into()).await.unwrap();
    for kind in kinds {
        for holds in ["messages", "unacked"] {
            site.delete(&format!("queues/VHOST/task.{kind}.{holds}/contents"))
                .await;
        }
    }
    tidegate_testkit::eventually(
        std::time::Duration::from_secs(60),
        "all to be pruned",
        async || {
            let ran = site.run(&["topology", "apply", "--prune"]);
            // What was unacknowledged comes back a moment after its connection went.
            for kind in kinds {
                site.delete(&format!("queues/VHOST/task.{kind}.unacked/contents"))
                    .await;
            }
            ran.code == 0
        },
    )
    .await;
    site.settled(&[]).await;
    site.vhost.close().await;
}

/// B71: a pattern is renamed. The new binding is added, the old one shown, and pruned only when asked.
#[tokio::test(flavor = "multi_thread")]
async fn a_renamed_pattern_leaves_its_old_bindings_as_extra() {
    let site = Site::applied(TEAM).await;
    site.team(&TEAM.replace("member.*", "person.*"));
    let plan = site.plan();
    assert_eq!(
        plan["counts"],
        json!({"add": 4, "change": 0, "conflict": 0, "migrating": 0, "extra": 4}),
        "{plan:#}"
    );
    assert_eq!(site.run(&["topology", "apply"]).code, 0);
    site.settled(&[
        "extra binding task.exchange → member.queue (member.*)",
        "extra binding task.exchange.high → member.queue.high (member.*)",
        "extra binding task.delay.v1.due → member.queue (*.*.*.*.*.*.*.key.member.*)",
        "extra binding task.delay.v1.due → member.queue.high (*.*.*.*.*.*.*.high.member.*)",
    ])
    .await;
    let before = site
        .vhost
        .management()
        .publish("task.exchange", "member.x", b"{}", json!({}))
        .await;
    assert!(before, "still bound");
    assert_eq!(site.run(&["topology", "apply", "--prune"]).code, 0);
    site.settled(&[]).await;
    site.vhost.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_high_lane_that_comes_shows_the_bindings_it_replaces() {
    let site = Site::applied(TEAM).await;
    site.team(&TEAM.replace(
        "max_length = 1000",
        "max_length = 1000\nhigh_lane = { threshold = 9 }",
    ));
    assert_eq!(site.run(&["topology", "apply"]).code, 0);
    site.settled(&[
        "extra binding task.exchange.high → order.close.queue (order.close.#)",
        "extra binding task.delay.v1.due → order.close.queue (*.*.*.*.*.*.*.high.order.close.#)",
    ])
    .await;
    assert_eq!(site.run(&["topology", "apply", "--prune"]).code, 0);
    site.settled(&[]).await;
    site.vhost.close().await;
}
