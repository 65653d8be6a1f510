//! The exports: those of the shipped topology are reviewed files, and no name can break their form.

use std::{collections::BTreeSet, path::Path};

use serde_json::Value as Json;

use crate::topology::{
    Topology,
    export::{self, Role},
};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The exports by the name of their form, and the file that holds each of the shipped topology.
fn rendered(topology: &Topology) -> [(&'static str, &'static str, String); 5] {
    [
        (
            "definitions",
            "definitions.json",
            export::definitions(&topology.objects(), None),
        ),
        ("mermaid", "topology.mmd", export::mermaid(topology)),
        ("svg", "topology.svg", export::svg(topology)),
        ("markdown", "topology.md", export::markdown(topology)),
        (
            "permissions",
            "permissions.sh",
            export::set_permissions(topology, None),
        ),
    ]
}

#[test]
fn the_shipped_topology_is_exported_as_reviewed() {
    let topology = Topology::load(&root().join("topology")).unwrap();
    let mut stale = Vec::new();
    for (format, file, text) in rendered(&topology) {
        let path = Path::new("topology/rendered").join(file);
        let recorded = std::fs::read_to_string(root().join(&path)).unwrap_or_default();
        if recorded != text {
            let line = 1 + recorded
                .lines()
                .zip(text.lines())
                .take_while(|(one, two)| one == two)
                .count();
            stale.push(format!(
                "{} differs from line {line}: cargo run -- topology export --format {format} > {}",
                path.display(),
                path.display()
            ));
        }
    }
    assert!(
        stale.is_empty(),
        "the topology or its rendering has changed; render it again and review the difference:\n{}",
        stale.join("\n")
    );
}

/// Patterns and owners hold whatever TOML can: the worst of it.
fn hostile() -> Topology {
    let platform = "ladder_version = 9\n[[fixed_delay]]\nname = \"30m\"\n";
    let team = r##"
[[queue]]
name = "a.queue"
bind = ["<b>&\"'`|[x](y)", "]]>", ";end", "任务.\uFFFF"]
owner = "</text><script>'\"`|*_#; end\uFFFE team"
high_lane = { threshold = 7 }
consumer_timeout = "1h"
max_timeout = "30m"
max_length = 5
single_active_consumer = true
fan_out = true
"##;
    let long = format!(
        "[[queue]]\nname = \"{}\"\nbind = [\"{}\"]\nowner = \"long\"\n",
        "q".repeat(238),
        "错".repeat(78)
    );
    Topology::parse(&[
        ("platform.toml", platform),
        ("a.toml", team),
        ("long.toml", &long),
    ])
    .unwrap()
}

#[test]
fn a_picture_is_xml_whatever_the_names() {
    for topology in [hostile(), Topology::parse(&[("platform.toml", "")]).unwrap()] {
        let text = export::svg(&topology);
        let document = roxmltree::Document::parse(&text).unwrap();
        assert_eq!(document.root_element().tag_name().name(), "svg");
        let known = ["svg", "title", "style", "defs", "marker", "path", "rect", "text"];
        let found: BTreeSet<&str> = document
            .descendants()
            .filter(roxmltree::Node::is_element)
            .map(|node| node.tag_name().name())
            .collect();
        assert!(found.iter().all(|name| known.contains(name)), "{found:?}");
        let number =
            |node: &roxmltree::Node<'_, '_>, name| node.attribute(name).unwrap().parse::<usize>().unwrap();
        let (width, height) = (
            number(&document.root_element(), "width"),
            number(&document.root_element(), "height"),
        );
        for node in document.descendants().filter(|n| n.has_attribute("x")) {
            assert!(
                number(&node, "x") < width && number(&node, "y") < height,
                "{node:?}"
            );
        }
    }
    let svg = export::svg(&hostile());
    let document = roxmltree::Document::parse(&svg).unwrap();
    let texts: Vec<&str> = document.descendants().filter_map(|n| n.text()).collect();
    assert!(texts.contains(&"<b>&\"'`|[x](y)"), "{texts:?}");
    let whole = "q".repeat(238);
    assert!(
        texts.contains(&whole.as_str()),
        "a cut name is whole in its tooltip"
    );
}

#[test]
fn mermaid_text_has_one_statement_on_each_line() {
    let text = export::mermaid(&hostile());
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("flowchart LR"));
    let ids: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("subgraph ").or(Some(line.trim())))
        .filter_map(|line| line.split(['[', '(', '{']).next().filter(|id| *id != line))
        .collect();
    for line in lines {
        let line = line.trim();
        let quotes = line.matches('"').count();
        if quotes == 2 {
            let label = line.split('"').nth(1).unwrap();
            let left = label.replace("<br/>", "");
            assert!(!left.contains(['<', '>', '&', '`', '|', '[', ']']), "{line}");
        } else {
            assert_eq!(quotes, 0, "{line}");
            let words: Vec<&str> = line.split(' ').collect();
            let ends = [words[0], words[words.len() - 1]];
            assert!(
                line == "end" || ends.iter().all(|end| ids.contains(end)),
                "{line}"
            );
        }
    }
}

#[test]
fn a_wiki_page_has_whole_tables() {
    let page = export::markdown(&hostile());
    let mut columns = None;
    for line in page.lines() {
        // As GitHub cuts it: a bar that no backslash precedes.
        let bars = line.replace(r"\|", "").matches('|').count();
        match (line.starts_with('|'), columns) {
            (true, None) => columns = Some(bars),
            (true, Some(count)) => assert_eq!(bars, count, "{line}"),
            (false, _) => columns = None,
        }
    }
    for part in [
        "## \\</text\\>",
        "``<b>&\"'`\\|[x](y)``",
        "`a.queue`<br>takes copies",
        "from priority 7",
        "consumer timeout 1h<br>tasks run up to 30m",
        "generation 9",
        "`task.delay.v9.6.1` … `task.delay.v9.6.f`",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[test]
fn definitions_are_json_with_every_object_and_its_vhost() {
    let objects = hostile().objects();
    for vhost in [None, Some("a \"vhost\"")] {
        let json: Json = serde_json::from_str(&export::definitions(&objects, vhost)).unwrap();
        let count = |section: &str| json[section].as_array().unwrap().len();
        assert_eq!(count("exchanges"), objects.exchanges.len());
        assert_eq!(count("queues"), objects.queues.len());
        assert_eq!(count("bindings"), objects.bindings.len());
        assert_eq!(count("policies"), 1);
        for section in ["exchanges", "queues", "bindings", "policies"] {
            for object in json[section].as_array().unwrap() {
                assert_eq!(object.get("vhost").and_then(Json::as_str), vhost, "{object}");
            }
        }
    }
}

#[test]
fn permissions_name_the_ladder_as_the_ladder_does() {
    // A prefix with the words in it that the ladder's names are made of.
    let platform = "prefix = \"delay-v1-due\"\nladder_version = 3\n";
    let team =
        "[[queue]]\nname = \"q.x\"\nbind = [\"q\"]\nowner = \"o's team\"\nhigh_lane = { threshold = 1 }\n";
    let topology = Topology::parse(&[("platform.toml", platform), ("q.toml", team)]).unwrap();
    let all = export::permissions(&topology);
    let worker = all.last().unwrap();
    assert_eq!(worker.role, Role::Worker("o's team".to_owned()));
    assert_eq!(worker.read, r"^(q\.x|q\.x\.high)$");
    let ladder = r"delay-v1-due\.delay\.v[1-9]\.([0-6]|due)";
    assert_eq!(worker.write, format!(r"^(delay-v1-due\.dead|{ladder})$"));
    assert_eq!(topology.names.ladder_due(), "delay-v1-due.delay.v3.due");
    assert_eq!(topology.names.ladder_exchange(6), "delay-v1-due.delay.v3.6");
    for granted in &all {
        assert!(
            granted.role == Role::Operator || granted.configure == "^$",
            "{granted:?}"
        );
    }
    let shell = export::set_permissions(&topology, Some("a vhost"));
    assert!(shell.contains(r"-p 'a vhost' 'o'\''s team' '^$'"), "{shell}");
}

fn many(count: usize, name: impl Fn(usize) -> String) -> String {
    (0..count)
        .map(|n| {
            format!(
                "[[queue]]\nname = \"{}\"\nbind = [\"q{n}\"]\nowner = \"many\"\n",
                name(n)
            )
        })
        .collect()
}

/// Brokers from 4.3 on refuse an expression of more than 1,024 bytes.
#[test]
fn permissions_of_many_queues_fit_or_say_that_they_do_not() {
    let other = "[[queue]]\nname = \"load.other.queue\"\nbind = [\"o\"]\nowner = \"other\"\n\
                 [[queue]]\nname = \"load\"\nbind = [\"l\"]\nowner = \"other\"\n";
    let parse = |team: &str| {
        let files = [("platform.toml", ""), ("many.toml", team), ("other.toml", other)];
        Topology::parse(&files).unwrap()
    };
    let read = |topology: &Topology| {
        let all = export::permissions(topology);
        assert!(all[0].role == Role::Operator && all[0].fit(), "{all:?}");
        let many = all
            .iter()
            .find(|p| p.role == Role::Worker("many".to_owned()))
            .unwrap();
        (many.read.clone(), many.fit())
    };
    // Other owners have queues under `load`, so that prefix is not theirs alone.
    let topology = parse(&many(2_000, |n| format!("load.mine.q{n}.queue")));
    assert_eq!(read(&topology), (r"^(load\.mine(\..+)?)$".to_owned(), true));
    let operator = &export::permissions(&topology)[0];
    assert_eq!(operator.configure, r"^((?!amq\.).+|amq\.gen-.+)$");
    let topology = parse(&many(2_000, |n| format!("load.q{n}.queue")));
    assert!(!read(&topology).1);
    let shell = export::set_permissions(&topology, None);
    assert!(shell.contains("# worker of many\n# too many queues"), "{shell}");
    assert!(shell.contains("'other'"), "who fits is printed");
    let topology = parse(&many(3, |n| format!("load.q{n}")));
    assert_eq!(read(&topology).0, r"^(load\.q0|load\.q1|load\.q2)$");
}

#[test]
fn serve_uses_what_it_may_write_to_and_read() {
    let used = export::used_by_serve(&hostile());
    let exchanges: BTreeSet<&str> = used.exchanges.iter().map(|e| e.name.as_str()).collect();
    assert_eq!(exchanges.len(), 3 + 8);
    assert!(exchanges.contains("task.delay.v9.due") && exchanges.contains("task.dead"));
    let queues: BTreeSet<&str> = used.queues.iter().map(|q| q.name.as_str()).collect();
    assert_eq!(
        queues,
        BTreeSet::from([
            "task.dead.queue",
            "task.failed.queue",
            "task.ingress.queue",
            "task.unrouted.queue"
        ])
    );
    assert!(used.bindings.is_empty() && used.policies.is_empty());
}
