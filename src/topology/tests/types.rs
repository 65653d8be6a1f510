//! What may be said about one task type, what is refused, and what comes of the rest.

use std::{num::NonZeroU32, time::Duration};

use crate::topology::{Idempotency, KeyRule, Rate, RetryChange, TaskTypePolicy, Topology, export::markdown};

const QUEUE: &str = "[[queue]]\nname = \"a.queue\"\nbind = [\"a.#\"]\nowner = \"a\"\nretry = { initial = \"1s\", max = \"1m\" }\n";

fn topology(table: &str) -> Topology {
    Topology::parse(&[("a.toml", &format!("{QUEUE}{table}"))]).unwrap()
}

fn policy(keys: &str) -> TaskTypePolicy {
    topology(&format!("[[task_type]]\nname = \"a.run\"\n{keys}\n")).types["a.run"].clone()
}

#[test]
fn a_type_without_keys_has_the_standard_policy() {
    assert_eq!(policy(""), TaskTypePolicy::standard("a.run"));
    assert!(topology("").types.is_empty());
}

#[test]
fn every_key_is_read() {
    let all = "retry = { max_retries = 0, max_retries_cap = 9, initial = \"2s\", multiplier = 3, max = \"5m\", jitter = 0 }\n\
        timeout = \"30s\"\nquick_retries = 2\nquick_pause = \"10ms\"\nconcurrency = 4\nretry_concurrency = 2\n\
        rate = \"30/m\"\nidempotency = \"database\"\nidempotency_field = \"/orderId\"\nidempotency_lease = \"1m\"";
    let expected = TaskTypePolicy {
        name: "a.run".to_owned(),
        retry: RetryChange {
            max_retries: Some(0),
            max_retries_cap: Some(9),
            initial: Some(Duration::from_secs(2)),
            multiplier: Some(3.0),
            max: Some(Duration::from_secs(300)),
            jitter: Some(0.0),
        },
        timeout: Some(Duration::from_secs(30)),
        quick_retries: 2,
        quick_pause: Duration::from_millis(10),
        concurrency: Some(4),
        retry_concurrency: 2,
        rate: Some(Rate {
            count: NonZeroU32::new(30).unwrap(),
            per: Duration::from_secs(60),
        }),
        idempotency: Idempotency::Database(KeyRule {
            field: Some("/orderId".to_owned()),
            lease: Duration::from_secs(60),
        }),
    };
    assert_eq!(policy(all), expected);
    let page = markdown(&topology(&format!("[[task_type]]\nname = \"a.run\"\n{all}\n")));
    for part in [
        "## Task types",
        "| `a.run` | 0 retries, at most 9, after 2s, × 3, up to 5m, ± 0 %, else the queue's |",
        "4 at once<br>2 retries at once<br>30 in 1m<br>2 quick retries, 10ms apart",
        "in the database `/orderId`, lease 1m",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!markdown(&topology("")).contains("Task types"));
}

#[test]
fn limits_are_inclusive() {
    for keys in [
        "timeout = \"1ms\"",
        "timeout = \"24h\"",
        "quick_pause = \"1ms\"",
        "quick_pause = \"1s\"",
        "concurrency = 1",
        "concurrency = 10000",
        "retry_concurrency = 1",
        "retry_concurrency = 10000",
        "rate = \"1/h\"",
        "rate = \"1000000/s\"",
        "idempotency = \"key\"\nidempotency_lease = \"3s\"",
        "idempotency = \"key\"\nidempotency_lease = \"24h\"",
        "idempotency = \"key\"\nidempotency_field = \"/a~0b~1c\"",
        "idempotency = \"off\"",
    ] {
        policy(keys);
    }
}

#[test]
fn what_can_not_be_is_refused_with_its_line() {
    for (keys, part) in [
        (
            "retry = { initial = \"2m\" }",
            "together with that of \"a.queue\": initial = 120s is longer than max = 60s",
        ),
        ("retry = { max = \"10ms\" }", "together with that of \"a.queue\""),
        (
            "retry = { max_retries = 1001 }",
            "max_retries = 1001: at most 1000",
        ),
        (
            "retry = { max_retries = 5, max_retries_cap = 4 }",
            "max_retries_cap = 4",
        ),
        ("retry = { jitter = 1.5 }", "jitter = 1.5"),
        ("retry = { multiplier = 0.5 }", "multiplier = 0.5"),
        ("retry = { initial = \"soon\" }", "500ms"),
        ("retry = { often = 1 }", "unknown field `often`"),
        ("timeout = \"0s\"", "from 1ms to 1day"),
        ("timeout = \"25h\"", "from 1ms to 1day"),
        ("timeout = 5", "expected a string"),
        ("quick_retries = 3", "quick_retries = 3: use 0 to 2"),
        ("quick_retries = -1", "quick_retries = -1"),
        ("quick_pause = \"2s\"", "from 1ms to 1s"),
        ("concurrency = 0", "concurrency = 0: use 1 to 10000"),
        ("concurrency = 10001", "use 1 to 10000"),
        ("retry_concurrency = 0", "retry_concurrency = 0: use 1 to 10000"),
        ("rate = \"0/s\"", "write how many in a second"),
        ("rate = \"5\"", "write how many in a second"),
        ("rate = \"5/d\"", "write how many in a second"),
        ("rate = \"1.5/s\"", "write how many in a second"),
        ("rate = \"1000001/s\"", "write how many in a second"),
        ("idempotency = \"on\"", "use \"off\", \"key\" or \"database\""),
        (
            "idempotency_field = \"/a\"",
            "idempotency_field without idempotency",
        ),
        (
            "idempotency_lease = \"5s\"",
            "idempotency_lease without idempotency",
        ),
        (
            "idempotency_lease = \"2s\"\nidempotency = \"key\"",
            "from 3s to 1day",
        ),
        (
            "idempotency_field = \"orderId\"\nidempotency = \"key\"",
            "write a JSON pointer",
        ),
        (
            "idempotency_field = \"/\"\nidempotency = \"key\"",
            "write a JSON pointer",
        ),
        (
            "idempotency_field = \"/a~2\"\nidempotency = \"key\"",
            "write a JSON pointer",
        ),
        ("colour = 1", "unknown field `colour`"),
    ] {
        let text = format!("{QUEUE}[[task_type]]\nname = \"a.run\"\n{keys}\n");
        let errors = Topology::parse(&[("a.toml", &text)]).unwrap_err().0;
        assert_eq!(errors.len(), 1, "{keys}: {errors:?}");
        assert_eq!(errors[0].line, 8, "{keys}: {}", errors[0]);
        assert!(errors[0].message.contains(part), "{part}: {}", errors[0]);
    }
    let named = |name: &str| Topology::parse(&[("a.toml", &format!("[[task_type]]\nname = {name:?}\n"))]);
    for name in ["", "one", "A.b", "a..b", "a.b.c.d.e.f.g"] {
        let errors = named(name).unwrap_err().0;
        assert_eq!((errors.len(), errors[0].line), (1, 2), "{name}: {errors:?}");
    }
    assert!(named("a.b").is_ok(), "no queue has to take it");
}

#[test]
fn a_type_is_described_once_in_all_files() {
    let table = "[[task_type]]\nname = \"a.run\"\n";
    let files = [("a.toml", table), ("b.toml", &format!("\n{table}"))];
    let errors = Topology::parse(&files).unwrap_err().0;
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!((errors[0].file.to_str(), errors[0].line), (Some("b.toml"), 3));
    assert!(
        errors[0]
            .message
            .contains("already described at a.toml:2: merge the two"),
        "{}",
        errors[0]
    );
}

#[test]
fn a_change_holds_in_every_queue_that_the_type_comes_by() {
    let other = "[[queue]]\nname = \"b.queue\"\nbind = [\"b.#\"]\nowner = \"b\"\ntask_types = [\"a.run\"]\nretry = { initial = \"1ms\", max = \"10ms\" }\n";
    let table = "[[task_type]]\nname = \"a.run\"\nretry = { max_retries = 30, multiplier = 1.5 }\n";
    let topology = topology(&format!("{other}{table}"));
    for queue in &topology.queues {
        let own = topology.retry(queue, Some("a.run"));
        assert_eq!(
            (own.max_retries, own.max_retries_cap, own.initial, own.max),
            (30, 30, queue.retry.initial, queue.retry.max)
        );
        for untouched in [Some("a.other"), None] {
            assert_eq!(topology.retry(queue, untouched), queue.retry);
        }
    }
    // A queue that takes it by its list alone is asked as well.
    let slow = "[[task_type]]\nname = \"a.run\"\nretry = { initial = \"1s\" }\n";
    let errors = Topology::parse(&[("a.toml", &format!("{QUEUE}{other}{slow}"))])
        .unwrap_err()
        .0;
    assert!(
        errors.len() == 1 && errors[0].message.contains("\"b.queue\""),
        "{errors:?}"
    );
}
