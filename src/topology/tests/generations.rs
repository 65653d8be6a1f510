//! Generations of the ladder: what the next one changes, and what the last one still needs.

use std::collections::BTreeSet;

use tidegate_core::ladder;

use crate::topology::{Objects, Topology};

const TEAM: &str = "[[queue]]\nname = \"a.queue\"\nbind = [\"a.#\", \"b\"]\nowner = \"a\"\n\
                    high_lane = { threshold = 200 }\n[[queue]]\nname = \"c\"\nbind = [\"a.c\"]\nowner = \"c\"\n\
                    fan_out = true\n";

fn generation(version: u8) -> Topology {
    let platform = format!("ladder_version = {version}\n[[fixed_delay]]\nname = \"30m\"\n");
    Topology::parse(&[("platform.toml", &platform), ("a.toml", TEAM)]).unwrap()
}

fn due(objects: &Objects, exchange: &str) -> BTreeSet<(String, String)> {
    let all = objects.bindings.iter().filter(|b| b.source == exchange);
    all.map(|b| (b.destination_name().to_owned(), b.pattern.clone()))
        .collect()
}

#[test]
fn the_next_generation_changes_the_ladders_names_and_nothing_else() {
    let (first, second) = (generation(1), generation(2));
    assert_eq!(first.names.ladder_version(), 1);
    let text = first.objects().to_string();
    assert_eq!(
        text.replace("delay.v1.", "delay.v2."),
        second.objects().to_string()
    );
    assert!(!second.objects().to_string().contains("v1"));
    let default = Topology::parse(&[("platform.toml", ""), ("a.toml", TEAM)]).unwrap();
    assert_eq!(default.names.ladder_version(), 1);
}

#[test]
fn pending_delays_of_an_older_generation_still_arrive() {
    let (first, second) = (generation(1), generation(2));
    let retired = second.retired_ladder(1);
    assert!(retired.exchanges.is_empty() && retired.queues.is_empty() && retired.policies.is_empty());
    let wanted = due(&first.objects(), "task.delay.v1.due");
    assert_eq!(due(&retired, "task.delay.v1.due"), wanted);
    assert_eq!(retired.bindings.len(), wanted.len(), "each once, and no other");
    assert_eq!(wanted.len(), 3 + 2 * 3);
    assert!(
        second.retired_ladder(2).is_empty(),
        "the one in use is no retired one"
    );
    // A generation after the one in use is one that a roll-back left.
    assert_eq!(first.retired_ladder(2).bindings.len(), wanted.len());
}

#[test]
fn a_route_leads_through_the_generation_of_its_names() {
    let topology = generation(3);
    let target = ladder::Target::Queue("a.queue".to_owned());
    let delay = std::time::Duration::from_secs(2);
    let route = ladder::route(&topology.names, delay, &target).unwrap();
    assert_eq!(route.exchange, "task.delay.v3.1");
    assert_eq!(route.routing_key, "0.0.0.0.0.3.f.to.a.queue");
}

#[test]
fn generations_run_from_1_to_9() {
    for (text, part) in [
        ("ladder_version = 0", "use 1 to 9"),
        ("\nladder_version = 10", "use 1 to 9"),
        ("ladder_version = \"2\"", "invalid type"),
    ] {
        let error = Topology::parse(&[("platform.toml", text)])
            .unwrap_err()
            .to_string();
        assert!(error.contains(part), "{error}");
    }
    let error = Topology::parse(&[("a.toml", "ladder_version = 2")])
        .unwrap_err()
        .to_string();
    assert!(error.contains("move it to platform.toml"), "{error}");
}
