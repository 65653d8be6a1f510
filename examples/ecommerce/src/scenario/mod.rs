//! The scenario as data: what is sent, in which way, and what has to become of it.
//!
//! Imports `verdict` for the expectations. `play` sends it, `watch` waits for the end of it.

pub(crate) mod play;
pub(crate) mod producer;
pub(crate) mod watch;

use std::time::Duration;

use serde_json::json;

use crate::verdict::{End, Expect};

/// How a message is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// By Tidegate's library, at once or after a delay.
    Library,
    /// By any AMQP client: `task.exchange`, a routing key, no headers, no confirm.
    Plain,
    /// By any AMQP client that wants a delay: `task.ingress` with the header `x-delay` in milliseconds.
    Ingress,
}

/// A message of the scenario.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) step: u8,
    /// What happens in the shop.
    pub(crate) story: &'static str,
    pub(crate) way: Way,
    /// Routing key.
    pub(crate) key: &'static str,
    pub(crate) body: Vec<u8>,
    pub(crate) delay: Duration,
    pub(crate) expect: Expect,
}

/// The order that is paid while its close task waits.
pub(crate) const PAID_IN_TIME: &str = "1003";

/// The cron row: every other second of six, so three times. Plain SQL is all it takes.
pub(crate) const CRON_ROW: &str = r#"
INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression, payload, starts_at, ends_at)
VALUES ('recall', 'marketing.recall.push', '*/2 * * * * *', '{"silentDays": 30}',
        date_trunc('second', now()) + interval '2 s', date_trunc('second', now()) + interval '8 s')"#;

/// How often the cron row fires.
pub(crate) const FIRES: usize = 3;

const NOW: Duration = Duration::ZERO;

/// Everything that is sent by AMQP, in this order.
pub(crate) fn messages() -> Vec<Message> {
    use Way::{Ingress, Library, Plain};
    let half_an_hour = Duration::from_secs(4);
    let done = |attempts| Expect {
        attempts,
        end: End::Done,
    };
    let dead = |attempts, reason| Expect {
        attempts,
        end: End::Dead(reason),
    };
    let message = |step, story, way, key, body: Vec<u8>, delay, expect| Message {
        step,
        story,
        way,
        key,
        body,
        delay,
        expect,
    };
    let points = task(
        "points-1002",
        "member.points.add",
        json!({"userId": "10002345", "pointsType": "order", "points": 90}),
    );
    let closed_account = json!({"userId": "10009999", "pointsType": "order", "points": 15});
    #[rustfmt::skip]
    let messages = vec![
        message(1, "order 1001 is created: push a notice", Library, "order.created.notify",
            task("notice-1001", "order.created.notify", json!({"orderId": "1001"})), NOW, done(1)),
        message(2, "order 1002 is created: close it in 4 s (in life 30 min) unless paid", Library, "order.close.timeout",
            task("close-1002", "order.close.timeout", json!({"orderId": "1002"})), half_an_hour, done(1)),
        message(3, "order 1003 is created: the same, by a client with no SDK (x-delay on task.ingress)", Ingress, "order.close.timeout",
            task("close-1003", "order.close.timeout", json!({"orderId": PAID_IN_TIME})), half_an_hour, done(1)),
        message(4, "order 1002 brings 90 points", Library, "member.points.add", points.clone(), NOW, done(1)),
        message(4, "the same task is sent once more, as happens when a confirm gets lost", Library, "member.points.add", points, NOW, done(1)),
        message(6, "yesterday's report is asked for", Library, "report.generate.daily",
            task("report-2025-04-02", "report.generate.daily", json!({"day": "2025-04-02"})), NOW, done(3)),
        message(7, "somebody publishes bytes that are no JSON", Plain, "order.close.timeout",
            b"please close order 1004 \xff\x00".to_vec(), NOW, dead(0, "invalid_envelope")),
        message(7, "somebody sends XML to the Python consumer, which can only nack it", Plain, "notify.push.send",
            b"<notice user='10002345'/>".to_vec(), NOW, dead(1, "invalid_envelope")),
        message(8, "a coupon expires: push a notice by SMS, whose gateway refuses twice", Library, "notify.push.send",
            task("notice-coupon-7", "notify.push.send", json!({"userId": "10002345", "gateway": "sms"})), NOW, done(3)),
        message(9, "a Go producer's envelope, camelCase, key order.close, no headers", Plain, "order.close",
            include_bytes!("../../envelopes/camel-case.json").to_vec(), NOW, done(1)),
        message(9, "an older producer's envelope, snake_case, planned for a time long past", Plain, "order.close",
            include_bytes!("../../envelopes/snake-case.json").to_vec(), NOW, done(1)),
        message(9, "the smallest Go producer's envelope; same task id as the first, so the second finds the order closed", Plain, "order.close",
            include_bytes!("../../envelopes/minimal.json").to_vec(), NOW, done(1)),
        message(10, "points for a member whose account is closed: a business error", Library, "member.points.add",
            task("points-1005", "member.points.add", closed_account), NOW, dead(1, "rejected")),
    ];
    messages
}

/// What the shop's own tables, and the ledger's, have to say afterwards: step, what, SQL for one text, the answer.
pub(crate) const FACTS: &[(u8, &str, &str, &str)] = &[
    (
        2,
        "order 1002, never paid",
        "SELECT status FROM shop.orders WHERE id = '1002'",
        "CLOSED",
    ),
    (
        3,
        "order 1003, paid in time",
        "SELECT status FROM shop.orders WHERE id = '1003'",
        "PAID",
    ),
    (
        4,
        "points booked for order 1002",
        "SELECT coalesce(sum(points), 0) || ' in ' || count(*) || ' row' FROM shop.points WHERE task_id = 'points-1002'",
        "90 in 1 row",
    ),
    (
        5,
        "occurrences of the cron row, by outcome",
        "SELECT coalesce(string_agg(outcome || ' ' || n, ', '), 'none') FROM
         (SELECT outcome, count(*) AS n FROM tidegate.cron_fires GROUP BY outcome ORDER BY outcome) AS fires",
        "FIRED 3",
    ),
    (
        5,
        "members recalled",
        "SELECT coalesce(string_agg(user_id, ', ' ORDER BY user_id), 'nobody') FROM shop.recalls",
        "10002346, 10002347",
    ),
    (6, "reports built", "SELECT count(*)::text FROM shop.reports", "1"),
    (
        9,
        "orders of the sample envelopes",
        "SELECT string_agg(status, ', ') FROM shop.orders WHERE id IN ('202504021200010001', '202509110001')",
        "CLOSED, CLOSED",
    ),
    (
        10,
        "points of the closed account",
        "SELECT count(*)::text FROM shop.points WHERE user_id = '10009999'",
        "0",
    ),
];

/// An envelope with the three fields that every task has.
fn task(id: &str, task_type: &str, payload: serde_json::Value) -> Vec<u8> {
    json!({ "taskId": id, "taskType": task_type, "payload": payload, "producer": "ecommerce-example" })
        .to_string()
        .into_bytes()
}

#[cfg(test)]
mod tests {
    use chrono::Utc;
    use tidegate_core::envelope::{Envelope, Limits};

    use super::*;

    #[test]
    fn what_should_be_done_is_valid_and_what_is_poison_is_not() {
        for message in messages() {
            let valid = Envelope::parse(&message.body, &Limits::standard(), Utc::now()).is_ok();
            let poison = message.expect.end == End::Dead("invalid_envelope");
            assert_eq!(valid, !poison, "step {}: {}", message.step, message.story);
        }
    }

    #[test]
    fn every_step_but_the_cron_row_sends_something() {
        let steps: std::collections::BTreeSet<_> = messages().iter().map(|message| message.step).collect();
        assert_eq!(
            steps.into_iter().collect::<Vec<_>>(),
            [1, 2, 3, 4, 6, 7, 8, 9, 10]
        );
    }
}
