//! The core stays pure: no I/O library among its dependencies, no clock, environment or file in its code.

use toml::Table;

use crate::{
    repository::{assert_none, files, read},
    rust_text::{code, without_tests},
};

/// All that the core may depend on.
const CORE_DEPENDENCIES: &[&str] = &[
    "chrono",
    "chrono-tz",
    "flate2",
    "memchr",
    "regex-lite",
    "serde",
    "serde_json",
    "sha2",
    "thiserror",
];

/// What reaches out of a pure function.
const IMPURE: &[&str] = &[
    "Utc::now",
    "Local::now",
    "SystemTime::now",
    "Instant::now",
    "std::env",
    "std::fs",
    "std::net",
    "std::process",
    "std::thread",
    "rand::",
    "async fn",
    "static mut",
];

#[test]
fn the_core_depends_on_no_input_or_output() {
    let manifest: Table = read("crates/core/Cargo.toml").parse().unwrap();
    let dependencies: Vec<&str> = manifest["dependencies"]
        .as_table()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(
        dependencies, CORE_DEPENDENCIES,
        "a dependency of the core is a decision: say why in the commit"
    );
    // The clock is a feature of chrono; without it `Utc::now` does not even compile.
    let workspace: Table = read("Cargo.toml").parse().unwrap();
    let chrono = &workspace["workspace"]["dependencies"]["chrono"];
    assert_eq!(chrono["default-features"].as_bool(), Some(false));
    assert!(
        !chrono["features"]
            .as_array()
            .unwrap()
            .iter()
            .any(|f| f.as_str() == Some("clock"))
    );
    assert!(manifest["dependencies"]["chrono"].get("features").is_none());
}

#[test]
fn the_core_reads_no_clock_and_no_environment() {
    let mut complaints = Vec::new();
    for file in files("crates/core/src", &[".rs"]) {
        let whole = code(&file.text);
        for (at, line) in without_tests(&whole).lines().enumerate() {
            for impure in IMPURE.iter().filter(|impure| line.contains(*impure)) {
                complaints.push(format!("{}:{}: {impure}", file.path, at + 1));
            }
        }
    }
    assert_none("the core gets `now` and everything else handed in", &complaints);
}
