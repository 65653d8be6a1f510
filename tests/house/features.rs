//! A service compiles only what it takes: what the features leave out stays out.

use std::process::Command;

use crate::repository::{assert_none, read, root};

/// What a server needs and a service that works or publishes must not compile.
const SERVER_ONLY: &[&str] = &[
    "axum",
    "clap",
    "comfy-table",
    "croner",
    "fancy-regex",
    "metrics-exporter-prometheus",
    "minijinja",
    "reqwest",
    "tracing-subscriber",
];

/// Feature → what it must not bring beyond that.
const FEATURES: &[(&str, &[&str])] = &[
    ("publish", &["sqlx", "tower"]),
    ("worker", &["sqlx"]),
    ("ledger", &[]),
];

fn crates(feature: &str) -> Vec<String> {
    let output = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--locked",
            "--package",
            "tidegate",
            "--no-default-features",
        ])
        .args(["--features", feature, "--edges", "normal", "--prefix", "none"])
        .current_dir(root())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let names: Vec<String> = text
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect();
    assert!(
        output.status.success() && names.iter().any(|name| name == "lapin"),
        "cargo tree --features {feature}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    names
}

#[test]
fn a_service_does_not_compile_the_server() {
    let mut complaints = Vec::new();
    for (feature, more) in FEATURES {
        let crates = crates(feature);
        for name in SERVER_ONLY.iter().chain(*more) {
            if crates.iter().any(|there| there == name) {
                complaints.push(format!("feature `{feature}` brings {name}"));
            }
        }
    }
    assert!(
        crates("server").iter().any(|name| name == "axum"),
        "the names above are those of real crates"
    );
    assert_none(
        "the features `publish`, `worker` and `ledger` stay small",
        &complaints,
    );
}

#[test]
fn each_feature_is_checked_and_described() {
    let (dev, docs) = (read("dev"), read("docs/worker.md"));
    for (feature, _) in FEATURES {
        assert!(
            dev.contains("for feature in publish worker ledger"),
            "`./dev check` checks every feature"
        );
        assert!(
            docs.contains(&format!("`{feature}`")),
            "docs/worker.md names `{feature}`"
        );
    }
}
