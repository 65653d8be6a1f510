//! A plan as people and programs get it.

use serde_json::json;

use super::{VERSIONS, after, binding, foreign, policy, queue};

#[test]
fn a_plan_reads_like_this() {
    let plan = after(VERSIONS[2], |live| {
        live.policies
            .push(policy("ops-1", "^member", json!({"overflow": "drop-head"})));
        live.bindings
            .retain(|b| !(b.source == "task.exchange" && b.destination_name() == "member.queue"));
        live.queues.retain(|q| q.name != "task.delay.30m");
        queue(live, "order.close.queue")
            .arguments
            .remove("x-delivery-limit");
        queue(live, "order.close.queue")
            .arguments
            .insert("x-message-ttl".into(), json!(5));
        let mut old = foreign("audit\u{1b}[2J", json!({}));
        (old.messages, old.consumers) = (Some(3), Some(1));
        live.queues.push(old);
        live.bindings
            .push(binding("task.exchange", "audit\u{1b}[2J", "#"));
        live.policies[0].priority = 1;
    });
    let text: Vec<String> = plan
        .to_string()
        .lines()
        .filter(|l| !l.starts_with("warning:"))
        .map(str::to_owned)
        .collect();
    assert_eq!(
        text.join("\n"),
        r#"+ queue task.delay.30m
    + x-dead-letter-exchange: "task.exchange"
    + x-dead-letter-strategy: "at-least-once"
    + x-message-ttl: 1800000
    + x-overflow: "reject-publish"
    + x-queue-type: "quorum"
+ binding task.exchange → member.queue (member.*)
~ policy task.consumer-timeout.order.close.queue
    ~ priority: 1 → 100
! queue member.queue
    ~ x-overflow: "drop-head" (policy ops-1) → "reject-publish"
    fix: policy ops-1 has the pattern "^member": narrow it with `rabbitmqctl set_policy` so that it does not match member.queue, or remove it: rabbitmqctl clear_policy -p v ops-1
! queue order.close.queue
    + x-delivery-limit: 20 (default of RabbitMQ 4.0.5) → 20, declared
    - x-message-ttl: 5 → not set
    fix: tidegate topology migrate order.close.queue
- queue audit\u{1b}[2J (it is bound to task.exchange)
    not pruned while it has 3 messages and 1 consumer
- binding task.exchange → audit\u{1b}[2J (#) (task.exchange is the platform's)

Plan: 2 to add, 1 to change, 2 conflicts, 2 extra."#
    );
}

#[test]
fn a_program_gets_all_of_it() {
    let plan = after(VERSIONS[3], |live| {
        live.policies
            .push(policy("ops-1", "^member", json!({"overflow": "drop-head"})));
        live.queues.push(foreign("task.old", json!({})));
    });
    let json = plan.to_json();
    assert_eq!(json["changes"], true);
    assert_eq!(
        json["counts"],
        json!({"add": 0, "change": 0, "conflict": 1, "migrating": 0, "extra": 1})
    );
    assert_eq!(
        json["plan"][0]["differences"],
        json!([{"argument": "x-overflow", "onBroker": "drop-head", "from": "policy", "policy": "ops-1", "wanted": "reject-publish"}])
    );
    assert_eq!(
        json["plan"][1],
        json!({"action": "extra", "kind": "queue", "object": "task.old", "type": "classic",
        "messages": 0, "consumers": null, "why": "its name has the platform's prefix"})
    );
    assert_eq!(after(VERSIONS[3], |_| ()).to_json()["changes"], false);
}
