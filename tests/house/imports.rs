//! Who may import whom. The tables are the rule; `ARCHITECTURE.md` has the reasons.

use crate::{
    repository::{assert_none, files},
    rust_text::{after, code, lines_using, without_tests},
};

const EVERYTHING: &[&str] = &["*"];

/// Module of `src/` → modules that it may import. `core` is a crate, and free for all.
const MODULES: &[(&str, &[&str])] = &[
    ("api", &["telemetry"]),
    (
        "bench",
        &["broker", "ledger", "publish", "telemetry", "topology", "worker"],
    ),
    ("batcher", &["supervisor", "telemetry"]),
    ("broker", &["supervisor", "telemetry", "topology"]),
    ("cli", EVERYTHING),
    ("config", &[]),
    ("contract", &[]),
    (
        "deadletter",
        &[
            "broker",
            "publish",
            "store",
            "supervisor",
            "telemetry",
            "topology",
        ],
    ),
    ("doctor", &["broker", "store", "topology"]),
    ("ledger", &["router", "store", "worker"]),
    ("lib", EVERYTHING),
    ("main", EVERYTHING),
    ("publish", &["broker", "supervisor", "telemetry", "topology"]),
    (
        "router",
        &["batcher", "broker", "publish", "supervisor", "telemetry"],
    ),
    ("scheduler", &["publish", "store", "telemetry"]),
    ("store", &[]),
    ("supervisor", &["telemetry"]),
    ("telemetry", &[]),
    ("topology", &[]),
    (
        "worker",
        &[
            "batcher",
            "broker",
            "publish",
            "supervisor",
            "telemetry",
            "topology",
        ],
    ),
];

/// Files that may do less than their module.
const FILES: &[(&str, &str, &str)] = &[
    ("src/scheduler/claim.rs", "publish", "the claim never publishes"),
    ("src/scheduler/claim.rs", "broker", "the claim never publishes"),
    (
        "src/scheduler/occurrence.rs",
        "publish",
        "the claim never publishes",
    ),
    (
        "src/scheduler/payload.rs",
        "store",
        "filling in a payload is pure",
    ),
];

/// Library → modules that may use it.
const LIBRARIES: &[(&str, &[&str])] = &[
    ("lapin", &["broker", "publish"]),
    ("deadpool_lapin", &["broker"]),
    ("reqwest", &["broker", "deadletter", "telemetry"]),
    // What a handler gets by `idempotency = "database"` is a transaction of sqlx.
    ("sqlx", &["ledger", "store"]),
    ("clap", &["cli"]),
    ("minijinja", &["scheduler"]),
    ("tower", &["worker"]),
    ("comfy_table", &["cli"]),
    ("axum", &["api"]),
    ("metrics_exporter_prometheus", &["telemetry"]),
    ("tracing_subscriber", &["telemetry"]),
];

/// The module that a file of `src/` belongs to.
fn module(path: &str) -> &str {
    let inside = path.strip_prefix("src/").unwrap();
    inside.split('/').next().unwrap().trim_end_matches(".rs")
}

/// How many `super::` lead from a file's module to the root of the crate.
fn depth(path: &str) -> usize {
    let words = path.strip_prefix("src/").unwrap().split('/').count();
    if path.ends_with("/mod.rs") || path == "src/lib.rs" {
        words - 1
    } else {
        words
    }
}

/// Files that are compiled for tests only.
fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/") || path == "src/telemetry/docs.rs"
}

fn allowed(module: &str) -> &'static [&'static str] {
    MODULES
        .iter()
        .find(|(name, _)| *name == module)
        .unwrap_or_else(|| panic!("src/{module} is new: give it a line in tests/house/imports.rs"))
        .1
}

#[test]
fn modules_import_only_what_they_may() {
    let (mut complaints, mut seen) = (Vec::new(), Vec::new());
    for file in files("src", &[".rs"]).iter().filter(|file| !is_test(&file.path)) {
        let (from, whole) = (module(&file.path), code(&file.text));
        let code = without_tests(&whole);
        let mut used = after(code, "crate::");
        used.extend(after(code, &"super::".repeat(depth(&file.path))));
        let may = allowed(from);
        for used in used {
            let to = used.name.as_str();
            let is_module = MODULES.iter().any(|(name, _)| *name == to);
            if is_module && to != from && may != EVERYTHING && !may.contains(&to) {
                complaints.push(format!(
                    "{}:{}: `{from}` may not import `{to}`, only {may:?}",
                    file.path, used.line
                ));
            }
            seen.push((from.to_owned(), to.to_owned()));
            for (path, forbidden, why) in FILES {
                if *path == file.path && *forbidden == to {
                    complaints.push(format!("{path}:{}: imports `{to}`, but {why}", used.line));
                }
            }
        }
    }
    for (from, may) in MODULES.iter().filter(|(_, may)| *may != EVERYTHING) {
        for to in may
            .iter()
            .filter(|to| !seen.contains(&((*from).to_owned(), (**to).to_owned())))
        {
            complaints.push(format!(
                "`{from}` may import `{to}` and does not: take it from the table"
            ));
        }
    }
    assert_none(
        "modules import what the table in tests/house/imports.rs allows",
        &complaints,
    );
}

#[test]
fn libraries_are_used_only_where_they_may() {
    let mut complaints = Vec::new();
    for file in files("src", &[".rs"]).iter().filter(|file| !is_test(&file.path)) {
        let (from, whole) = (module(&file.path), code(&file.text));
        for (library, may) in LIBRARIES {
            for line in lines_using(without_tests(&whole), library) {
                if !may.contains(&from) {
                    complaints.push(format!(
                        "{}:{line}: `{library}` is used in `{from}`, but belongs to {may:?}",
                        file.path
                    ));
                }
            }
        }
    }
    assert_none(
        "a library that belongs to one module is used nowhere else",
        &complaints,
    );
}

/// The relay reads tasks, not cron rows: the two halves of the scheduler meet in the table of tasks only.
#[test]
fn the_relay_reads_no_cron_row() {
    let relay = files("src/scheduler", &["relay.rs"]);
    let code = code(&relay[0].text);
    assert!(
        !without_tests(&code).contains("cron_tasks"),
        "src/scheduler/relay.rs reads cron rows"
    );
}

#[test]
fn only_the_edges_read_the_environment() {
    let complaints: Vec<String> = files("src", &[".rs"])
        .iter()
        .filter(|file| !is_test(&file.path) && module(&file.path) != "cli")
        .flat_map(|file| {
            let whole = code(&file.text);
            after(without_tests(&whole), "std::")
                .into_iter()
                .filter(|used| used.name == "env")
                .map(|used| format!("{}:{}: reads the environment", file.path, used.line))
                .collect::<Vec<_>>()
        })
        .collect();
    assert_none(
        "only `cli` reads the environment; everything else gets its settings handed in",
        &complaints,
    );
}

#[test]
fn no_sql_and_no_amqp_text_outside_its_adapter() {
    let is_sql = |line: &str| {
        ["INSERT INTO ", "DELETE FROM ", "TRUNCATE "]
            .iter()
            .any(|word| line.contains(word))
            || line.contains("SELECT ") && (line.contains(" FROM ") || line.contains("count("))
            || line.contains("UPDATE ") && line.contains(" SET ")
    };
    let is_amqp = |line: &str| line.contains("\"x-");
    let mut complaints = Vec::new();
    for under in ["src/cli", "src/api"] {
        for file in files(under, &[".rs"]) {
            for (at, line) in file.text.lines().enumerate() {
                let line_of_code = line.split("//").next().unwrap();
                if is_sql(line_of_code) || is_amqp(line_of_code) {
                    complaints.push(format!("{}:{}: {}", file.path, at + 1, line.trim()));
                }
            }
        }
    }
    for file in files("src", &[".rs"]) {
        let has_sql = file
            .text
            .lines()
            .position(|line| is_sql(line.split("//").next().unwrap()));
        if let (Some(at), false) = (has_sql, file.path.starts_with("src/store/")) {
            complaints.push(format!("{}:{}: SQL outside src/store", file.path, at + 1));
        }
    }
    assert_none(
        "SQL lives in src/store, AMQP arguments and headers below src/cli and src/api",
        &complaints,
    );
}
