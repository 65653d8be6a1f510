//! How files are laid out: length, names, and the first line of a module.

use crate::repository::{assert_none, files, paths};

/// Above this many lines a file needs an entry in [`LONG`].
const USUAL: usize = 400;
/// Above this many lines a file is split, whatever the reason.
const MOST: usize = 800;

/// Long files: how long each may become, and why it is one file.
const LONG: &[(&str, usize, &str)] = &[
    (
        "dev",
        1060,
        "one plain script that needs nothing beside it, so that a bare machine can run it",
    ),
    (
        "tests/broker/declare.rs",
        600,
        "one behaviour, declaring, with each of its refusals",
    ),
];

const NO_NAMES: &[&str] = &["utils", "util", "common", "helpers", "helper", "misc"];

#[test]
fn a_file_holds_one_idea() {
    let mut complaints = Vec::new();
    let mut seen = Vec::new();
    for file in files(".", &[".rs", ".go", ".py", ".sh", ".sql", "dev"]) {
        let path = file.path.as_str();
        let lines = file.text.lines().count();
        let reason = LONG.iter().find(|(name, ..)| *name == path);
        match reason {
            Some((_, most, _)) => {
                seen.push(path.to_owned());
                if lines > *most {
                    complaints.push(format!("{path}: {lines} lines, its entry allows {most}"));
                }
            }
            None if lines > MOST => complaints.push(format!("{path}: {lines} lines, at most {MOST}: split it")),
            None if lines > USUAL => complaints.push(format!(
                "{path}: {lines} lines; above {USUAL} it needs an entry with its reason in tests/house/layout.rs"
            )),
            None => {}
        }
    }
    for (path, ..) in LONG
        .iter()
        .filter(|(path, ..)| !seen.iter().any(|seen| seen == path))
    {
        complaints.push(format!("{path}: has an entry and does not exist"));
    }
    assert_none("files are short, or say why not", &complaints);
}

#[test]
fn names_say_what_is_inside() {
    let complaints: Vec<String> = paths(".")
        .into_iter()
        .filter(|path| {
            path.split('/')
                .map(|word| word.split('.').next().unwrap())
                .any(|stem| NO_NAMES.contains(&stem))
        })
        .collect();
    assert_none("no file or directory is a drawer for everything", &complaints);
}

#[test]
fn every_module_says_what_it_is_for() {
    let complaints: Vec<String> = files(".", &[".rs"])
        .iter()
        .filter(|file| !file.path.ends_with("tests.rs") || file.path.contains("/tests/"))
        .filter(|file| {
            !file
                .text
                .lines()
                .find(|line| !line.is_empty())
                .is_some_and(|line| line.starts_with("//!"))
        })
        .map(|file| file.path.clone())
        .collect();
    assert_none(
        "every module opens with `//!`: its purpose, what it may import, what if it dies in between",
        &complaints,
    );
}
