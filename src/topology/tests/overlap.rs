//! Two queues that take one key: a warning with both places, unless it is meant.

use std::path::Path;

use crate::topology::{FileWarning, Topology};

fn queue(name: &str, bind: &[&str], more: &str) -> String {
    format!("[[queue]]\nname = {name:?}\nowner = \"o\"\n{more}\nbind = {bind:?}\n")
}

fn warnings(one: &str, two: &str) -> Vec<FileWarning> {
    let files = [("platform.toml", ""), ("one.toml", one), ("two.toml", two)];
    Topology::parse(&files).unwrap().warnings
}

#[test]
fn both_places_and_a_key_are_named() {
    let one = queue("a.queue", &["a.close.#", "order.*"], "");
    let two = format!("\n{}", queue("b.queue", &["b.#", "#.created"], ""));
    let found = warnings(&one, &two);
    assert_eq!(found.len(), 1, "{found:#?}");
    let warning = &found[0];
    let other = warning.other.as_ref().unwrap().to_string();
    assert_eq!(
        (warning.place.to_string().as_str(), other.as_str()),
        ("two.toml:6", "one.toml:5")
    );
    for part in [
        "\"b.queue\" takes #.created",
        "\"a.queue\" takes a.close.#",
        "one.toml:5",
        "fan_out = true",
    ] {
        assert!(warning.to_string().contains(part), "{part}: {warning}");
    }
    let example = warning.message.split('"').nth(5).unwrap();
    assert!(
        example.starts_with("a.close") && example.ends_with("created"),
        "{warning}"
    );
}

#[test]
fn either_side_can_say_that_it_is_meant() {
    let plain = |name| queue(name, &["a.#"], "");
    let meant = |name| queue(name, &["a.b"], "fan_out = true");
    assert_eq!(warnings(&plain("a"), &plain("b")).len(), 1);
    assert_eq!(warnings(&plain("a"), &meant("b")), []);
    assert_eq!(warnings(&meant("a"), &plain("b")), []);
}

#[test]
fn one_queue_may_take_a_key_twice() {
    assert_eq!(warnings(&queue("a", &["a.#", "a.b", "#.b"], ""), ""), []);
}

#[test]
fn two_queues_are_warned_of_once_and_many_are_cut() {
    let both = |name| queue(name, &["a.#", "a.b", "#"], "");
    assert_eq!(warnings(&both("a"), &both("b")).len(), 1);
    let many: String = (0..50).map(|n| queue(&format!("q{n}"), &["#"], "")).collect();
    let found = warnings(&many, "");
    assert_eq!(found.len(), 100);
    assert!(found.iter().any(|w| w.message.contains("there may be more")));
}

#[test]
fn thousands_of_queues_are_compared_in_a_moment() {
    let patterns: Vec<String> = (0..50).map(|n| format!("load.QUEUE.p{n}.#")).collect();
    let many: String = (0..1_000)
        .map(|n| {
            let bind: Vec<String> = patterns
                .iter()
                .map(|p| p.replace("QUEUE", &format!("q{n}")))
                .collect();
            let bind: Vec<&str> = bind.iter().map(String::as_str).collect();
            queue(&format!("q{n}"), &bind, "")
        })
        .collect();
    // Files end at 1 MiB; what is parsed from memory doesn't.
    let started = std::time::Instant::now();
    assert_eq!(warnings(&many, ""), []);
    // Comparing each two of 50,000 patterns would take many minutes.
    assert!(started.elapsed().as_secs() < 60, "{:?}", started.elapsed());
}

#[test]
fn what_is_shipped_has_no_warning() {
    for dir in ["topology", "examples/ecommerce/topology"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(dir);
        if path.exists() {
            assert_eq!(Topology::load(&path).unwrap().warnings, [], "{dir}");
        }
    }
}

#[test]
fn a_type_that_no_queue_takes_is_warned_of_where_it_stands() {
    let typed = |name: &str, more: &str| {
        let text = format!(
            "[[queue]]\nname = \"a.b.queue\"\nbind = [\"a.b.#\"]\nowner = \"team\"\n{more}\n[[task_type]]\nname = \"{name}\"\nidempotency = \"key\"\n"
        );
        Topology::parse(&[("team.toml", &text)]).unwrap().warnings
    };
    assert_eq!(typed("a.b.c", ""), []);
    assert_eq!(
        typed("x.y", "task_types = [\"x.y\"]"),
        [],
        "it comes by another key"
    );
    let found = typed("a.bb.c", "");
    let [warning] = &found[..] else {
        panic!("{found:?}")
    };
    let text = warning.to_string();
    assert!(text.starts_with("team.toml:7"), "{text}");
    assert!(text.contains("no queue takes tasks of type \"a.bb.c\""), "{text}");
}
