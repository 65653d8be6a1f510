//! The consumer timeout: who gets one, what is refused, and the policy that it becomes.

use std::time::Duration;

use tidegate_core::{names::Names, topic::Pattern};

use crate::topology::{Policy, Topology, TopologyErrors, Value};

fn parse(defaults: &str, queue: &str) -> Result<Topology, TopologyErrors> {
    let platform = format!("[defaults]\n{defaults}\n");
    let team = format!("[[queue]]\nname = \"a.queue\"\nbind = [\"a.#\"]\nowner = \"a\"\n{queue}\n");
    Topology::parse(&[("platform.toml", &platform), ("a.toml", &team)])
}

fn policies(defaults: &str, queue: &str) -> Vec<Policy> {
    parse(defaults, queue).unwrap().objects().policies
}

#[test]
fn only_a_stated_timeout_becomes_a_policy() {
    assert_eq!(policies("", ""), []);
    let own = policies("", "consumer_timeout = \"45m\"");
    assert_eq!(own.len(), 1);
    let policy = &own[0];
    assert_eq!(policy.name, "task.consumer-timeout.a.queue");
    assert_eq!((policy.apply_to, policy.priority), ("queues", 100));
    assert_eq!(policy.pattern, r"^a\.queue$");
    assert_eq!(
        policy.definition.get("consumer-timeout"),
        Some(&Value::Int(2_700_000))
    );
    assert_eq!(policy.definition.len(), 1);
    let inherited = policies("consumer_timeout = \"1h\"", "");
    assert_eq!(
        inherited[0].definition.get("consumer-timeout"),
        Some(&Value::Int(3_600_000))
    );
    assert_eq!(
        policies("consumer_timeout = \"1h\"", "consumer_timeout = \"45m\""),
        own
    );
}

#[test]
fn the_high_lane_has_the_same_timeout() {
    let lane = "high_lane = { threshold = 1 }\nconsumer_timeout = \"45m\"";
    assert_eq!(policies("", lane)[0].pattern, r"^a\.queue$|^a\.queue\.high$");
}

#[test]
fn what_can_not_be_is_refused_with_its_line() {
    for (defaults, queue, file, line, part) in [
        ("", "consumer_timeout = \"59s\"", "a.toml", 5, "from 1m to 2days"),
        ("", "consumer_timeout = \"49h\"", "a.toml", 5, "from 1m to 2days"),
        (
            "",
            "consumer_timeout = \"60001us\"",
            "a.toml",
            5,
            "whole milliseconds",
        ),
        ("", "consumer_timeout = \"soon\"", "a.toml", 5, "500ms"),
        ("", "max_timeout = \"25h\"", "a.toml", 5, "from 1ms to 1day"),
        ("", "max_timeout = \"0s\"", "a.toml", 5, "from 1ms to 1day"),
        (
            "consumer_timeout = \"1s\"",
            "",
            "platform.toml",
            2,
            "from 1m to 2days",
        ),
        (
            "",
            "max_timeout = \"2h\"\nconsumer_timeout = \"1h\"",
            "a.toml",
            6,
            "consumer_timeout is 1h, but tasks may run 2h",
        ),
        (
            "consumer_timeout = \"1h\"",
            "max_timeout = \"2h\"",
            "a.toml",
            5,
            "make consumer_timeout longer than 2h",
        ),
    ] {
        let errors = parse(defaults, queue).unwrap_err().0;
        assert_eq!(errors.len(), 1, "{errors:?}");
        let error = &errors[0];
        assert_eq!((error.file.to_str(), error.line), (Some(file), line), "{error}");
        assert!(error.message.contains(part), "{part}: {error}");
    }
    let topology = parse("", "consumer_timeout = \"2h\"\nmax_timeout = \"2h\"").unwrap();
    let queue = &topology.queues[0];
    let two_hours = Some(Duration::from_secs(7_200));
    assert_eq!(
        (queue.consumer_timeout, queue.max_timeout),
        (two_hours, two_hours)
    );
}

/// Every character that a queue's name may have, read back by the broker's own rules: a word stays a word.
#[test]
fn a_policy_names_its_queue_and_no_other() {
    let name = "aZ-09_:.x";
    let team =
        format!("[[queue]]\nname = {name:?}\nbind = [\"a\"]\nowner = \"a\"\nconsumer_timeout = \"1h\"\n");
    let topology = Topology::parse(&[("a.toml", &team)]).unwrap();
    let policy = &topology.objects().policies[0];
    assert_eq!(policy.pattern, r"^aZ-09_:\.x$");
    assert_eq!(policy.name, Names::default().consumer_timeout(name));
    assert!(Pattern::parse(name).unwrap().is_literal());
}
