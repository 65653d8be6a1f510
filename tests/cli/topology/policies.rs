//! Policies that make the broker do otherwise, and the platform's own.

use std::time::Duration;

use serde_json::json;
use tidegate_testkit::eventually;

use super::{Site, TEAM, differences};

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_overrides_a_queue_is_named_until_it_is_gone() {
    let site = Site::applied(TEAM).await;
    let queue = "order.close.queue";
    let rows = [
        (
            "policies",
            json!({"overflow": "drop-head"}),
            queue,
            "x-overflow: \"drop-head\" (policy ops-1) → \"reject-publish\"",
        ),
        (
            "policies",
            json!({"delivery-limit": 5}),
            queue,
            "x-delivery-limit: 5 (policy ops-1) → 20",
        ),
        (
            "policies",
            json!({"message-ttl": 60_000}),
            queue,
            "x-message-ttl: 60000 (policy ops-1) → null",
        ),
        (
            "policies",
            json!({"max-length": 10}),
            queue,
            "x-max-length: 10 (policy ops-1) → 1000",
        ),
        (
            "operator-policies",
            json!({"delivery-limit": 5}),
            queue,
            "x-delivery-limit: 5 (operator policy ops-1) → 20",
        ),
        (
            "operator-policies",
            json!({"message-ttl": 60_000}),
            queue,
            "x-message-ttl: 60000 (operator policy ops-1) → null",
        ),
        (
            "operator-policies",
            json!({"max-length": 10}),
            queue,
            "x-max-length: 10 (operator policy ops-1) → 1000",
        ),
        (
            "policies",
            json!({"overflow": "drop-head"}),
            "task.delay.v1.3.a",
            "x-overflow: \"drop-head\" (policy ops-1) → \"reject-publish\"",
        ),
    ];
    for (list, definition, object, expected) in rows {
        let body = json!({"pattern": format!("^{object}$"), "definition": definition, "priority": 1, "apply-to": "queues"});
        site.put(&format!("{list}/VHOST/ops-1"), body).await;
        let plan = site.settled(&[&format!("conflict queue {object}")]).await;
        assert_eq!(differences(&plan, object), [expected]);
        let fix = plan["plan"][0]["fix"][0].as_str().unwrap();
        let clear = if list == "policies" {
            "rabbitmqctl clear_policy -p"
        } else {
            "rabbitmqctl clear_operator_policy -p"
        };
        assert!(fix.contains(clear) && fix.contains("ops-1"), "{fix}");
        // The broker agrees on what is in force; 3.10 doesn't say.
        if site.version().await >= (3, 12) {
            let path = format!("/api/queues/{}/{object}", site.vhost.name());
            eventually(Duration::from_secs(30), "the policy to be in force", async || {
                let shown = site.vhost.management().get(&path).await.unwrap_or_default();
                shown["effective_policy_definition"] == definition
            })
            .await;
        }
        let ran = site.run(&["topology", "apply"]);
        assert_eq!(ran.code, 5, "apply touches nobody else's policy: {ran:?}");
        site.delete(&format!("{list}/VHOST/ops-1")).await;
        site.settled(&[]).await;
    }
    let body = json!({"pattern": "^task\\.delay", "definition": {"overflow": "drop-head"}, "priority": 1, "apply-to": "queues"});
    site.put("policies/VHOST/all-delays", body).await;
    let plan = site.plan();
    assert_eq!(
        plan["counts"]["conflict"], 106,
        "the ladder's 105 and the fixed delay"
    );
    let rules: Vec<_> = plan["warnings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|w| w["rule"].as_str().unwrap())
        .collect();
    assert_eq!(
        rules
            .iter()
            .filter(|rule| **rule == "delay-queue-drops-head")
            .count(),
        106
    );
    site.vhost.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_platforms_own_policies_are_written_and_repaired() {
    let team = TEAM.replace(
        "max_length = 1000",
        "consumer_timeout = \"2h\"\nmax_timeout = \"1h\"",
    );
    let site = Site::new(&team).await;
    assert_eq!(site.run(&["topology", "apply"]).code, 0);
    let plan = site.settled(&[]).await;
    let rules: Vec<_> = plan["warnings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|w| w["rule"].as_str().unwrap())
        .collect();
    if site.version().await < (3, 12) {
        assert_eq!(
            rules,
            ["consumer-timeout", "consumer-timeout-by-node"],
            "{plan:#}"
        );
        site.vhost.close().await;
        return;
    }
    assert!(!rules.contains(&"consumer-timeout"), "{plan:#}");
    let name = "task.consumer-timeout.order.close.queue";
    let own = site
        .vhost
        .management()
        .get(&format!("/api/policies/{}/{name}", site.vhost.name()))
        .await
        .unwrap();
    assert_eq!(own["definition"], json!({"consumer-timeout": 7_200_000}));
    let edited = json!({"pattern": own["pattern"], "definition": {"consumer-timeout": 60_000}, "priority": own["priority"], "apply-to": own["apply-to"]});
    site.put(&format!("policies/VHOST/{name}"), edited).await;
    let plan = site.settled(&[&format!("change policy {name}")]).await;
    assert_eq!(
        differences(&plan, name),
        ["consumer-timeout: 60000 (declared) → 7200000"]
    );
    let ran = site.run(&["topology", "apply", "--json"]);
    assert_eq!((ran.code, &ran.json()["changed"]), (0, &json!(1)), "{ran:?}");
    site.settled(&[]).await;
    site.delete(&format!("policies/VHOST/{name}")).await;
    site.settled(&[&format!("add policy {name}")]).await;
    assert_eq!(site.run(&["topology", "apply"]).code, 0);
    site.settled(&[]).await;
    // A stronger policy takes the queue away from ours.
    let stronger = json!({"pattern": "^order", "definition": {"max-length": 100_000}, "priority": 1_000, "apply-to": "queues"});
    site.put("policies/VHOST/ops", stronger).await;
    let plan = site.settled(&["conflict queue order.close.queue"]).await;
    assert!(
        differences(&plan, "order.close.queue")
            .contains(&"consumer-timeout: 1800000 (policy ops) → 7200000".to_owned()),
        "{plan:#}"
    );
    site.delete("policies/VHOST/ops").await;
    // The queue no longer states one.
    site.team(TEAM.replace("max_length = 1000", "").as_str());
    site.settled(&[&format!("extra policy {name}")]).await;
    assert_eq!(site.run(&["topology", "apply", "--prune"]).code, 0);
    site.settled(&[]).await;
    site.vhost.close().await;
}
