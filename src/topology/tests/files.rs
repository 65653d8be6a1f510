//! What may be written in topology files, and what is said about the rest.

use std::time::Duration;

use crate::topology::{Lane, Topology, TopologyErrors};

const PLATFORM: &str = "prefix = \"task\"\n";

fn team(text: &str) -> Result<Topology, TopologyErrors> {
    Topology::parse(&[("platform.toml", PLATFORM), ("team.toml", text)])
}

/// The errors as (line, text).
fn errors(text: &str) -> Vec<(usize, String)> {
    team(text)
        .unwrap_err()
        .0
        .into_iter()
        .map(|e| (e.line, e.message))
        .collect()
}

fn queue(extra: &str) -> String {
    format!("[[queue]]\nname = \"a.queue\"\nbind = [\"a.#\"]\nowner = \"a\"\n{extra}\n")
}

#[test]
fn a_queue_takes_the_defaults_it_does_not_override() {
    let platform = "[defaults]\nretry = { initial = \"5s\" }\ndelivery_limit = 7\n[[fixed_delay]]\nname = \"30m\"\n\
                    [[fixed_delay]]\nname = \"lunch\"\nttl = \"1h 30m\"\n";
    let files = [
        ("platform.toml", platform),
        ("team.toml", &queue("retry = { max_retries = 50 }")),
    ];
    let topology = Topology::parse(&files).unwrap();
    let found = &topology.queues[0];
    assert_eq!(found.retry.max_retries, 50);
    assert_eq!(found.retry.max_retries_cap, 50, "a cap nobody wrote follows");
    assert_eq!(found.retry.initial, Duration::from_secs(5));
    assert_eq!(found.delivery_limit, 7);
    assert_eq!(
        (found.high_lane, found.max_length, found.single_active_consumer),
        (None, None, false)
    );
    let ttls: Vec<u64> = topology.fixed_delays.iter().map(|d| d.ttl.as_secs()).collect();
    assert_eq!(ttls, [1800, 5400]);
}

#[test]
fn everything_wrong_is_said_at_once_with_its_line() {
    let text = r##"[[queue]]
name = "task.mine"
bind = ["ok.#", "a..b", "a*", "#.x.#.y.#"]
owner = " "
task_types = ["NotAType"]
retry = { initial = "fast" }
high_lane = { threshold = 256 }
delivery_limit = 0

[[queue]]
nam = "typo"

[[queue]]
name = "b#.queue"
bind = []
owner = "b"
retry = { initial = "1h", max = "1m" }
"##;
    let found = errors(text);
    let want = [
        (2, "own"),
        (3, "'#' words"),
        (3, "empty word"),
        (3, "wildcards only as whole words"),
        (4, "owner is empty"),
        (5, "NotAType"),
        (6, "500ms"),
        (7, "threshold = 256: use 0 to 255"),
        (8, "delivery_limit = 0: use 1 to"),
        (11, "unknown field `nam`, expected one of `name`"),
        (14, "joined by single dots"),
        (15, "give 1 to 100"),
        (17, "raise max"),
    ];
    assert_eq!(found.len(), want.len(), "{found:#?}");
    for (line, part) in want {
        assert!(
            found.iter().any(|(l, m)| *l == line && m.contains(part)),
            "{line} {part}: {found:#?}"
        );
    }
}

#[test]
fn a_name_taken_twice_names_both_places() {
    let other = queue("high_lane = { threshold = 1 }");
    let lane = other
        .replace("a.queue", "a.queue.high")
        .replace("high_lane", "# high_lane");
    let files = [
        ("platform.toml", PLATFORM),
        ("one.toml", other.as_str()),
        ("two.toml", &format!("\n{other}{lane}")),
    ];
    let text = Topology::parse(&files).unwrap_err().to_string();
    assert!(
        text.contains("two.toml:3: queue \"a.queue\" is already declared at one.toml:2"),
        "{text}"
    );
    assert!(
        text.contains("two.toml:8: queue \"a.queue.high\" is already declared at one.toml:2"),
        "{text}"
    );
}

#[test]
fn names_and_patterns_end_where_the_ladder_key_does() {
    let named = |len: usize, extra: &str| team(&queue(extra).replace("a.queue", &"q".repeat(len)));
    assert!(named(238, "").is_ok());
    assert!(
        named(239, "")
            .unwrap_err()
            .to_string()
            .contains("239 bytes, at most 238")
    );
    let lane = "high_lane = { threshold = 200 }";
    assert!(named(233, lane).is_ok());
    assert!(named(234, lane).unwrap_err().to_string().contains("at most 233"));
    let bound = |pattern: &str| team(&queue("").replace("a.#", pattern));
    assert!(bound(&"k".repeat(236)).is_ok());
    assert!(
        bound(&"k".repeat(237))
            .unwrap_err()
            .to_string()
            .contains("237 bytes, at most 236")
    );
    // Bytes count, not characters: 79 × 3 = 237.
    assert!(bound(&"错".repeat(79)).is_err());
}

#[test]
fn platform_and_teams_keep_to_their_keys() {
    let swapped = format!("prefix = \"Bad.Prefix\"\nfoo = 1\n{}", queue(""));
    let text = Topology::parse(&[("platform.toml", &swapped)])
        .unwrap_err()
        .to_string();
    for part in [
        "platform.toml:1: prefix",
        "platform.toml:2: unknown key `foo`",
        "platform.toml:3: queues and task types belong",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(errors("prefix = \"x\"")[0].1.contains("move it to platform.toml"));
    assert!(errors("[queue]\nname = \"x\"")[0].1.contains("[[queue]]"));
    assert_eq!(errors("[[queue]]\nname = \n")[0].0, 2);
}

#[test]
fn fixed_delays_are_whole_milliseconds_under_names_of_their_own() {
    let delay = |text: &str| Topology::parse(&[("platform.toml", &format!("[[fixed_delay]]\n{text}"))]);
    for (text, part) in [
        ("name = \"v1\"", "name the ladder"),
        ("name = \"soon\"", "names no duration"),
        ("name = \"a.b\"", "use 1 to 32"),
        ("name = \"0s\"", "whole milliseconds"),
        ("name = \"1us\"", "whole milliseconds"),
        ("name = \"11years\"", "ten years"),
        (
            "name = \"5m\"\n[[fixed_delay]]\nname = \"5m\"",
            "already at line 2",
        ),
    ] {
        let found = delay(text).unwrap_err().to_string();
        assert!(found.contains(part), "{text}: {found}");
    }
}

#[test]
fn a_directory_is_read_whole_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert!(
        Topology::load(dir.path())
            .unwrap_err()
            .to_string()
            .contains("no *.toml here")
    );
    assert!(Topology::load(&dir.path().join("no")).is_err());
    std::fs::write(dir.path().join("a.toml"), queue("")).unwrap();
    assert!(
        Topology::load(dir.path())
            .unwrap_err()
            .to_string()
            .contains("platform.toml: missing")
    );
    std::fs::write(dir.path().join("platform.toml"), PLATFORM).unwrap();
    std::fs::write(dir.path().join("notes.md"), "not read").unwrap();
    assert_eq!(Topology::load(dir.path()).unwrap().queues.len(), 1);
    std::fs::write(dir.path().join("big.toml"), vec![b'#'; 1024 * 1024 + 1]).unwrap();
    std::fs::write(dir.path().join("latin.toml"), [b'#', 0xe9]).unwrap();
    let text = Topology::load(dir.path()).unwrap_err().to_string();
    assert!(
        text.contains("split it") && text.contains("not UTF-8 (byte 1)"),
        "{text}"
    );
}

#[test]
fn too_many_queues_are_refused() {
    let many: String = (0..5_001)
        .map(|n| queue("").replace("a.queue", &format!("q{n}")))
        .collect();
    assert!(team(&many).unwrap_err().to_string().contains("5001 queues"));
}

#[test]
fn questions_about_a_topology() {
    let text = format!(
        "{}{}",
        queue("high_lane = { threshold = 200 }\ntask_types = [\"a.b.c\"]"),
        queue("").replace("a.queue", "b.queue").replace("a.#", "a.exact")
    );
    let topology = team(&text).unwrap();
    let names = |key| topology.routes(key).map(|q| q.name.as_str()).collect::<Vec<_>>();
    assert_eq!(names("a.exact"), ["a.queue", "b.queue"]);
    assert_eq!(names("a.other"), ["a.queue"]);
    assert!(names("b").is_empty());
    assert_eq!(topology.lane("a.exact", 200), Lane::High);
    assert_eq!(topology.lane("a.exact", 199), Lane::Normal);
    assert_eq!(
        topology.queue("a.queue.high").map(|(q, l)| (q.name.as_str(), l)),
        Some(("a.queue", Lane::High))
    );
    assert!(topology.queue("b.queue.high").is_none());
    assert_eq!(
        topology.task_types().into_iter().collect::<Vec<_>>(),
        ["a.b.c", "a.exact"]
    );
}

#[test]
fn the_documentation_names_every_key_and_its_examples_are_read() {
    let document = include_str!("../../../docs/topology.md");
    let examples: Vec<&str> = document
        .split("```toml\n")
        .skip(1)
        .filter_map(|rest| rest.split_once("```").map(|(example, _)| example))
        .collect();
    let [platform, team, types] = examples[..] else {
        panic!("{examples:?}")
    };
    let files = [
        ("platform.toml", platform),
        ("order.toml", team),
        ("types.toml", types),
    ];
    let topology = Topology::parse(&files).unwrap();
    assert_eq!(
        (
            topology.queues.len(),
            topology.fixed_delays.len(),
            topology.types.len()
        ),
        (1, 1, 1)
    );
    // The reader names the keys it takes when it meets another.
    for (file, around) in [
        ("platform.toml", "[defaults]\nKEY = 1\n"),
        ("platform.toml", "[[fixed_delay]]\nKEY = 1\n"),
        ("order.toml", "[[queue]]\nKEY = 1\n"),
        ("order.toml", "[[task_type]]\nKEY = 1\n"),
        ("platform.toml", "[defaults]\nretry = { KEY = 1 }\n"),
    ] {
        let text = around.replace("KEY", "nonsense");
        let error = Topology::parse(&[(file, &text)]).unwrap_err().to_string();
        let keys: Vec<&str> = error
            .split_once("expected")
            .unwrap()
            .1
            .split('`')
            .skip(1)
            .step_by(2)
            .collect();
        assert!(keys.len() >= 2, "{error}");
        for key in keys {
            let row = |prefix: &str| document.contains(&format!("\n| `{prefix}{key}` |"));
            assert!(
                row("") || row("defaults.") || row("fixed_delay.") || row("retry."),
                "{key} is in no table"
            );
        }
    }
}
