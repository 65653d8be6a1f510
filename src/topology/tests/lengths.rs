//! B45: whatever is too long for AMQP is refused in the file, by bytes and not by characters; whatever is accepted
//! renders to names and keys that AMQP can carry.

use crate::topology::{Objects, Topology, TopologyErrors};

/// Longest name or key of AMQP 0-9-1.
const SHORT_STRING: usize = 255;

/// One input: what it is, its limit in bytes, whether it takes more than ASCII, and how it is written.
type Row = (
    &'static str,
    usize,
    bool,
    fn(&str) -> Result<Topology, TopologyErrors>,
);

fn files(platform: &str, team: &str) -> Result<Topology, TopologyErrors> {
    Topology::parse(&[("platform.toml", platform), ("team.toml", team)])
}

fn queue(name: &str, bind: &str, owner: &str, more: &str) -> Result<Topology, TopologyErrors> {
    // The longest prefix, so that nothing fits only because the prefix is short.
    let platform = format!("prefix = \"{}\"", "p".repeat(32));
    let team = format!("[[queue]]\nname = {name:?}\nbind = [{bind:?}]\nowner = {owner:?}\n{more}\n");
    files(&platform, &team)
}

const LANE: &str = "high_lane = { threshold = 200 }\nconsumer_timeout = \"1h\"";

const ROWS: &[Row] = &[
    ("queue", 238, false, |text| queue(text, "a", "o", "")),
    ("queue with lane", 233, false, |text| queue(text, "a", "o", LANE)),
    ("pattern", 236, true, |text| queue("q", text, "o", "")),
    ("pattern with lane", 236, true, |text| queue("q", text, "o", LANE)),
    ("owner", 128, true, |text| queue("q", "a", text, "")),
    ("task type", 128, false, |text| {
        queue(
            "q",
            "a",
            "o",
            &format!("task_types = [\"a.{}\"]", text.get(2..).unwrap_or("")),
        )
    }),
    ("prefix", 32, false, |text| {
        files(&format!("prefix = {text:?}"), "")
    }),
    ("fixed delay", 32, false, |text| {
        files(&format!("[[fixed_delay]]\nname = {text:?}\nttl = \"1m\""), "")
    }),
];

fn assert_fits(objects: &Objects, what: &str) {
    let exchanges = objects.exchanges.iter().map(|e| e.name.as_str());
    let queues = objects.queues.iter().map(|q| q.name.as_str());
    let keys = objects.bindings.iter().map(|b| b.pattern.as_str());
    for name in exchanges.chain(queues).chain(keys) {
        assert!(
            name.len() <= SHORT_STRING,
            "{what}: {name} has {} bytes",
            name.len()
        );
    }
}

#[test]
fn every_name_ends_before_amqp_does() {
    for (what, limit, any_character, parse) in ROWS {
        for bytes in [1, limit - 1, *limit, limit + 1, 254, 255, 256, 257, 1_000] {
            let accepted = bytes <= *limit && (*what != "task type" || bytes > 2);
            for last in ["k", "é", "错", "🦀"] {
                // Multibyte at the edge: the last character ends at `bytes`, or would pass it.
                let Some(fill) = bytes.checked_sub(last.len()) else {
                    continue;
                };
                let text = format!("{}{last}", "k".repeat(fill));
                assert_eq!(text.len(), bytes);
                let accepted = accepted && (*any_character || last.is_ascii());
                match parse(&text) {
                    Ok(topology) => {
                        assert!(accepted, "{what} of {bytes} bytes, last {last}: accepted");
                        assert_fits(&topology.objects(), what);
                        assert_fits(&topology.retired_ladder(9), what);
                    }
                    Err(errors) => {
                        assert!(!accepted, "{what} of {bytes} bytes, last {last}: {errors}");
                        assert!(errors.0.iter().all(|e| e.line > 0), "{errors}");
                    }
                }
            }
        }
    }
}

#[test]
fn controls_and_blanks_are_refused_where_they_would_be_copied_on() {
    for text in ["a\u{0}b", "a\nb", "a\tb", "\u{1b}[2J"] {
        let escaped: String = text.chars().map(|c| format!("\\u{:04x}", u32::from(c))).collect();
        for (what, place) in [("owner", 4), ("bind", 3), ("name", 2)] {
            let of = |key: &str, otherwise: &str| {
                if key == what {
                    escaped.clone()
                } else {
                    otherwise.to_owned()
                }
            };
            let team = format!(
                "[[queue]]\nname = \"{}\"\nbind = [\"{}\"]\nowner = \"{}\"\n",
                of("name", "q"),
                of("bind", "a"),
                of("owner", "o")
            );
            let errors = files("", &team).unwrap_err().0;
            assert_eq!(
                (errors.len(), errors[0].line),
                (1, place),
                "{what} {text:?}: {errors:?}"
            );
        }
    }
}
