//! What exists with other properties: shown one by one, never touched without being asked.

use lapin::{
    options::{ExchangeBindOptions, QueueBindOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldArray, FieldTable},
};
use serde_json::{Value, json};

use super::{Site, TEAM, differences, marks};

fn team(names: &[&str]) -> String {
    names
        .iter()
        .map(|name| format!("[[queue]]\nname = \"{name}\"\nbind = [\"{name}.#\"]\nowner = \"o\"\n"))
        .collect()
}

/// B67, row by row.
#[tokio::test(flavor = "multi_thread")]
async fn each_way_a_queue_can_differ_is_shown_exactly_and_the_rest_is_done() {
    let names = [
        "no-dlx",
        "other-type",
        "transient",
        "int32",
        "limits",
        "fine",
        "held",
    ];
    let site = Site::new(&team(&names)).await;
    let (connection, channel) = site.client().await;
    let ours = |name: &str| {
        json!({"x-queue-type": "quorum", "x-dead-letter-exchange": "task.failed", "x-dead-letter-routing-key": name,
            "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish", "x-delivery-limit": 20})
    };
    let without = |name: &str, arguments: &[&str]| {
        let mut declared = ours(name);
        for argument in arguments {
            declared.as_object_mut().unwrap().remove(*argument);
        }
        declared
    };
    site.declare(
        "no-dlx",
        without(
            "no-dlx",
            &[
                "x-dead-letter-exchange",
                "x-dead-letter-routing-key",
                "x-dead-letter-strategy",
            ],
        ),
    )
    .await;
    site.declare("other-type", json!({})).await;
    let mut limits = ours("limits");
    limits["x-delivery-limit"] = json!(7);
    limits["x-max-length"] = json!(5);
    site.declare("limits", limits).await;
    // The same numbers with other widths.
    let mut table = FieldTable::default();
    for (name, value) in ours("int32").as_object().unwrap() {
        let value = match value {
            serde_json::Value::Number(n) => AMQPValue::LongInt(n.as_i64().unwrap() as i32),
            text => AMQPValue::LongString(text.as_str().unwrap().into()),
        };
        table.insert(name.as_str().into(), value);
    }
    channel
        .queue_declare("int32".into(), QueueDeclareOptions::durable(), table)
        .await
        .unwrap();
    let mut delay = json!({"x-queue-type": "quorum", "x-dead-letter-exchange": "task.exchange",
        "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"});
    delay["x-message-ttl"] = json!(1_800_001);
    site.declare("task.delay.30m", delay).await;
    channel
        .queue_declare(
            "held".into(),
            QueueDeclareOptions::exclusive(),
            FieldTable::default(),
        )
        .await
        .unwrap();
    // A queue that is lost with the node can't be declared any more on 4.3.
    let transient = site.version().await < (4, 3);
    if transient {
        site.put(
            "queues/VHOST/transient",
            json!({"durable": false, "arguments": {"x-queue-type": "classic"}}),
        )
        .await;
    }

    let plan = site.plan();
    let conflicts: Vec<String> = marks(&plan)
        .into_iter()
        .filter(|m| m.starts_with("conflict"))
        .collect();
    let mut expected = vec![
        "conflict queue held",
        "conflict queue limits",
        "conflict queue no-dlx",
        "conflict queue other-type",
        "conflict queue task.delay.30m",
    ];
    if transient {
        expected.push("conflict queue transient");
        assert!(
            differences(&plan, "transient").contains(&"durable: false (declared) → true".to_owned()),
            "{plan:#}"
        );
    }
    assert_eq!(conflicts, expected);
    let strategy = "x-dead-letter-strategy: \"at-most-once\" (default) → \"at-least-once\"";
    assert_eq!(
        differences(&plan, "no-dlx"),
        [
            "x-dead-letter-exchange: null (default) → \"task.failed\"",
            "x-dead-letter-routing-key: null (default) → \"no-dlx\"",
            strategy,
        ]
    );
    assert_eq!(
        differences(&plan, "other-type")[0],
        "type: \"classic\" (declared) → \"quorum\""
    );
    assert_eq!(
        differences(&plan, "limits"),
        [
            "x-delivery-limit: 7 (declared) → 20",
            "x-max-length: 5 (declared) → null"
        ]
    );
    assert_eq!(
        differences(&plan, "task.delay.30m"),
        ["x-message-ttl: 1800001 (declared) → 1800000"]
    );
    assert!(
        differences(&plan, "held").contains(&"exclusive: true (declared) → false".to_owned()),
        "{plan:#}"
    );
    let fix = |object: &str| {
        let changes = plan["plan"].as_array().unwrap();
        changes
            .iter()
            .find(|c| c["object"] == object && c.get("fix").is_some())
            .unwrap()["fix"]
            .to_string()
    };
    assert!(
        fix("limits").contains("tidegate topology migrate limits"),
        "{}",
        fix("limits")
    );
    assert!(fix("held").contains("exclusive"), "{}", fix("held"));

    // B08: the others are declared and bound, and saying so twice changes nothing.
    for _ in 0..2 {
        let ran = site.run(&["topology", "apply", "--json"]);
        assert_eq!(ran.code, 5, "{ran:?}");
        let error = ran.error();
        let details = error["errors"].as_array().unwrap();
        let about = |name: &str| {
            details
                .iter()
                .any(|d| d["object"] == name && d["argument"].is_string())
        };
        assert!(
            ["no-dlx", "other-type", "limits", "task.delay.30m", "held"]
                .iter()
                .all(|name| about(name)),
            "{error:#}"
        );
        assert!(!about("int32") && !about("fine"), "{error:#}");
        for name in ["fine", "int32"] {
            let routed = site
                .vhost
                .management()
                .publish("task.exchange", &format!("{name}.x"), b"{}", json!({}))
                .await;
            assert!(routed);
            let bound = format!("/api/bindings/{}/e/task.exchange/q/{name}", site.vhost.name());
            let bindings = site.vhost.management().get(&bound).await.unwrap();
            assert_eq!(bindings.as_array().unwrap().len(), 1, "{name}");
        }
    }
    connection.close(200, "done".into()).await.unwrap();
    site.vhost.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exchange_that_differs_is_replaced_only_when_asked() {
    let site = Site::new(&team(&["a", "b"])).await;
    let wrong = [
        (
            "task.exchange",
            json!({"type": "direct", "durable": true, "arguments": {"alternate-exchange": "task.unrouted"}}),
            "type: \"direct\" (declared) → \"topic\"",
        ),
        (
            "task.exchange.high",
            json!({"type": "topic", "durable": true}),
            "alternate-exchange: null (declared) → \"task.unrouted\"",
        ),
        (
            "task.ingress",
            json!({"type": "fanout", "durable": true, "internal": true, "arguments": {"alternate-exchange": "task.unrouted"}}),
            "internal: true (declared) → false",
        ),
        (
            "task.delay.30m",
            json!({"type": "fanout", "durable": true, "auto_delete": true, "arguments": {"alternate-exchange": "task.unrouted"}}),
            "auto-delete: true (declared) → false",
        ),
        (
            "task.dead",
            json!({"type": "topic", "durable": false}),
            "durable: false (declared) → true",
        ),
    ];
    for (name, body, _) in &wrong {
        site.put(&format!("exchanges/VHOST/{name}"), body.clone()).await;
    }
    // Two listen in on dead letters, one by a queue that only its own connection may bind.
    let (connection, channel) = site.client().await;
    let shared = QueueDeclareOptions {
        durable: true,
        auto_delete: true,
        ..QueueDeclareOptions::default()
    };
    for (queue, options) in [("listener", shared), ("own", QueueDeclareOptions::exclusive())] {
        channel
            .queue_declare(queue.into(), options, FieldTable::default())
            .await
            .unwrap();
        let (to, key) = ("task.dead".into(), "a.#".into());
        channel
            .queue_bind(
                queue.into(),
                to,
                key,
                QueueBindOptions::default(),
                FieldTable::default(),
            )
            .await
            .unwrap();
    }
    let plan = site.plan();
    for (name, _, expected) in &wrong {
        assert_eq!(differences(&plan, name), [*expected]);
    }
    let ran = site.run(&["topology", "apply"]);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(
        ran.stderr.contains("--replace-exchanges") && ran.stderr.contains("left out"),
        "{ran:?}"
    );
    assert!(
        site.vhost.management().queue("b").await.is_some(),
        "the rest is done"
    );

    let ran = site.run(&["topology", "apply", "--replace-exchanges", "--json"]);
    assert_eq!((ran.code, &ran.json()["replaced"]), (0, &json!(5)), "{ran:?}");
    site.settled(&[]).await;
    let bindings = format!("/api/bindings/{}/e/task.dead/q/listener", site.vhost.name());
    let bindings = site.vhost.management().get(&bindings).await.unwrap();
    assert_eq!(bindings[0]["routing_key"], "a.#", "the listener still listens");
    assert!(
        ran.stderr
            .contains("warning: own was not bound to exchange task.dead again"),
        "{ran:?}"
    );
    assert!(
        site.vhost
            .management()
            .publish("task.exchange", "a.x", b"{}", json!({}))
            .await
    );
    connection.close(200, "done".into()).await.unwrap();
    site.vhost.close().await;
}

/// Bindings of others keep what they were bound with, whatever shape it has: a headers exchange reads its arguments, and a
/// plugin may read lists and tables.
#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_exchange_keeps_the_arguments_of_its_bindings() {
    let site = Site::applied(TEAM).await;
    let management = site.vhost.management();
    let dead = format!("/api/exchanges/{}/task.dead", site.vhost.name());
    management.delete(&dead).await;
    site.put(
        "exchanges/VHOST/task.dead",
        json!({"type": "fanout", "durable": true}),
    )
    .await;
    site.put(
        "exchanges/VHOST/theirs",
        json!({"type": "fanout", "durable": true}),
    )
    .await;
    let (connection, channel) = site.client().await;
    let listener = QueueDeclareOptions {
        durable: true,
        auto_delete: true,
        ..QueueDeclareOptions::default()
    };
    channel
        .queue_declare("listener".into(), listener, FieldTable::default())
        .await
        .unwrap();
    let text = |text: &str| AMQPValue::LongString(text.into());
    let mut list = FieldArray::default();
    list.push(AMQPValue::LongInt(1));
    list.push(text("two"));
    list.push(AMQPValue::Boolean(true));
    list.push(AMQPValue::FieldArray(FieldArray::default()));
    let mut inner = FieldTable::default();
    inner.insert("deep".into(), AMQPValue::FieldArray(list.clone()));
    let mut table = FieldTable::default();
    table.insert("word".into(), text("x"));
    table.insert("half".into(), AMQPValue::Double(0.5));
    table.insert("inner".into(), AMQPValue::FieldTable(inner));
    let mut arguments = FieldTable::default();
    arguments.insert("list".into(), AMQPValue::FieldArray(list));
    arguments.insert("table".into(), AMQPValue::FieldTable(table));
    arguments.insert("negative".into(), AMQPValue::ShortInt(-7));
    let (to, key) = ("task.dead".into(), "a.#".into());
    channel
        .queue_bind(
            "listener".into(),
            to,
            key,
            QueueBindOptions::default(),
            arguments.clone(),
        )
        .await
        .unwrap();
    let (from, to) = ("task.dead".into(), "theirs".into());
    channel
        .exchange_bind(to, from, "b.#".into(), ExchangeBindOptions::default(), arguments)
        .await
        .unwrap();
    let bindings = async || {
        let path = format!("{dead}/bindings/source");
        let mut rows = management.get(&path).await.unwrap().as_array().unwrap().clone();
        rows.retain(|row| row["destination"] == "listener" || row["destination"] == "theirs");
        rows.sort_by_key(|row| row["destination"].to_string());
        let of = |row: &Value| {
            (
                row["destination"].clone(),
                row["routing_key"].clone(),
                row["arguments"].clone(),
            )
        };
        rows.iter().map(of).collect::<Vec<_>>()
    };
    let before = bindings().await;
    let expected = json!({
        "list": [1, "two", true, []],
        "table": {"word": "x", "half": 0.5, "inner": {"deep": [1, "two", true, []]}},
        "negative": -7,
    });
    assert_eq!(before.len(), 2, "{before:?}");
    assert!(
        before.iter().all(|(.., arguments)| *arguments == expected),
        "{before:#?}"
    );

    let ran = site.run(&["topology", "apply", "--replace-exchanges", "--json"]);
    assert_eq!((ran.code, &ran.json()["replaced"]), (0, &json!(1)), "{ran:?}");
    assert!(!ran.stderr.contains("warning"), "{ran:?}");
    let kind = management.get(&dead).await.unwrap()["type"].take();
    assert_eq!(kind, "topic");
    assert_eq!(bindings().await, before);
    connection.close(200, "done".into()).await.unwrap();
    site.vhost.close().await;
}
