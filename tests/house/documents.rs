//! The documents are true: links lead somewhere, tests that are named exist.

use std::collections::HashSet;

use crate::repository::{File, assert_none, files, paths, read, root};

/// Our documents.
pub(crate) fn documents() -> Vec<File> {
    files(".", &[".md"])
}

/// The fenced blocks of a document as (language, first line, text), and the document without them.
pub(crate) fn blocks(text: &str) -> (Vec<(String, usize, String)>, String) {
    let (mut blocks, mut prose) = (Vec::new(), String::new());
    let mut open: Option<(String, usize, String)> = None;
    for (at, line) in text.lines().enumerate() {
        match (&mut open, line.trim_start().strip_prefix("```")) {
            (None, Some(language)) => open = Some((language.trim().to_owned(), at + 2, String::new())),
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some((.., inside)), None) => {
                inside.push_str(line);
                inside.push('\n');
            }
            (None, None) => prose.push_str(line),
        }
        prose.push('\n');
    }
    assert!(open.is_none(), "a fenced block is never closed: {open:?}");
    (blocks, prose)
}

/// The code spans of prose.
pub(crate) fn spans(prose: &str) -> Vec<&str> {
    // Every second piece lies between two backticks.
    prose
        .split("\n\n")
        .flat_map(|paragraph| paragraph.split('`').skip(1).step_by(2))
        .collect()
}

/// Targets of `[text](target)`.
fn links(prose: &str) -> Vec<&str> {
    prose
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')').map(|(target, _)| target))
        .collect()
}

/// The anchors of a document's headings, as code hosts make them.
fn anchors(text: &str) -> HashSet<String> {
    let (_, prose) = blocks(text);
    prose
        .lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| {
            line.trim_start_matches('#')
                .trim()
                .to_lowercase()
                .chars()
                .filter_map(|c| match c {
                    ' ' => Some('-'),
                    c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
                    _ => None,
                })
                .collect()
        })
        .collect()
}

#[test]
fn relative_links_lead_to_files_and_headings() {
    let mut complaints = Vec::new();
    for document in documents() {
        let (_, prose) = blocks(&document.text);
        for link in links(&prose) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() {
                root().join(&document.path)
            } else {
                root().join(&document.path).parent().unwrap().join(file)
            };
            if !target.exists() {
                complaints.push(format!("{}: {link} leads nowhere", document.path));
            } else if !anchor.is_empty()
                && !anchors(&std::fs::read_to_string(&target).unwrap()).contains(anchor)
            {
                complaints.push(format!("{}: {link} has no such heading", document.path));
            }
        }
    }
    assert_none("relative links resolve", &complaints);
}

/// Whether `source` has a test called `name`.
fn has_test(source: &str, name: &str) -> bool {
    let mut is_test = false;
    for line in source.lines().map(str::trim) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if is_test
            && line
                .split_once("fn ")
                .is_some_and(|(_, rest)| rest.strip_prefix(name).is_some_and(|rest| rest.starts_with('(')))
        {
            return true;
        } else if line.contains("fn ") {
            is_test = false;
        }
    }
    false
}

/// Spans such as `tests/flow/delays.rs::the_name`, in any document.
#[test]
fn every_test_that_is_named_exists() {
    let (mut complaints, mut in_guarantees) = (Vec::new(), 0);
    for document in documents() {
        let (_, prose) = blocks(&document.text);
        for span in spans(&prose) {
            let Some((file, name)) = span.split_once(".rs::") else {
                continue;
            };
            let file = format!("{file}.rs");
            in_guarantees += usize::from(document.path == "docs/guarantees.md");
            if !root().join(&file).is_file() {
                complaints.push(format!("{}: {file} does not exist", document.path));
            } else if !has_test(&read(&file), name) {
                complaints.push(format!("{}: {file} has no test {name}", document.path));
            }
        }
    }
    assert_none("a guarantee names a test that exists", &complaints);
    assert!(
        in_guarantees >= 20,
        "docs/guarantees.md names {in_guarantees} tests only"
    );
}

/// Every row of the table of guarantees names a test, or says that the guarantee is not offered.
#[test]
fn every_guarantee_has_its_test() {
    let text = read("docs/guarantees.md");
    let rows: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("| ") && line.as_bytes()[2].is_ascii_digit())
        .collect();
    assert_eq!(rows.len(), 12, "one row for each of the twelve");
    for row in rows {
        assert!(
            row.contains(".rs::") || row.contains("**not offered yet**"),
            "{row}"
        );
    }
}

/// Every module of the library and the core is on the map, and the map has no module that does not exist.
#[test]
fn the_map_has_every_module() {
    let map = read("ARCHITECTURE.md");
    let (_, prose) = blocks(&map);
    let known: HashSet<&str> = spans(&prose).into_iter().collect();
    let mut complaints = Vec::new();
    for path in paths("src").into_iter().chain(paths("crates/core/src")) {
        let is_test = path.ends_with("/tests.rs") || path.contains("/tests/");
        if !path.ends_with(".rs") || is_test {
            continue;
        }
        if !known.contains(path.as_str()) {
            complaints.push(format!("{path} is not on the map"));
        }
    }
    for span in known
        .iter()
        .filter(|span| span.ends_with(".rs") && span.contains('/'))
    {
        if !root().join(span).is_file() {
            complaints.push(format!("{span} is on the map and does not exist"));
        }
    }
    assert_none("ARCHITECTURE.md names every module", &complaints);
}

#[test]
fn anchors_and_spans_are_read_as_meant() {
    assert!(anchors("## Fast & safe `x`\n").contains("fast--safe-x"));
    assert_eq!(spans("a `b c` d `e`\n\n`f`"), ["b c", "e", "f"]);
    assert_eq!(links("[a](b.md#c) [d](e)"), ["b.md#c", "e"]);
    assert!(has_test("#[test]\n#[ignore]\nfn a() {", "a"));
    assert!(!has_test("fn a() {\n#[test]\nfn ab() {", "a"));
}
