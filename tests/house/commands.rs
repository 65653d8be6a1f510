//! Commands in the documents: each that calls `tidegate` parses, and each of the README is run somewhere.

use std::{collections::BTreeSet, process::Command};

use crate::{
    documents::{blocks, documents, spans},
    repository::{assert_none, read},
};

/// Every line of the README's `sh` blocks that does not call `tidegate`, and what runs it.
const README: &[(&str, &str)] = &[
    ("./dev demo", "continuous integration"),
    ("./dev test", "continuous integration"),
    (
        "export AMQP_URL=amqp://user:password@localhost:5672/%2f DATABASE_URL=postgres://user:password@localhost/tidegate",
        "tests/cli, which sets both variables for every call",
    ),
];

/// Words of a command line; single and double quotes hold words together.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// Whether the binary knows this call. `--help` at the end keeps it from being carried out.
fn parses(call: &[String]) -> Result<(), String> {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(call)
        .arg("--help")
        .env_clear()
        .output()
        .map_err(|why| why.to_string())?;
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }
}

/// The calls of `tidegate` in a line of shell: at its start, after a pipe, or after variables.
fn calls(line: &str) -> Vec<Vec<String>> {
    line.split('|')
        .filter_map(|part| {
            let words = words(part);
            let start = words.iter().position(|word| !word.contains('='))?;
            let (first, rest) = words[start..].split_first()?;
            let rest = rest
                .iter()
                .take_while(|word| !word.starts_with(['<', '>', '#', '&']))
                .cloned();
            (first == "tidegate").then(|| rest.collect())
        })
        .collect()
}

#[test]
fn calls_of_the_binary_in_documents_parse() {
    let mut seen = BTreeSet::new();
    for document in documents() {
        let (blocks, prose) = blocks(&document.text);
        let shell = blocks.iter().filter(|(language, ..)| language == "sh");
        for line in shell.flat_map(|(.., text)| text.lines()).chain(spans(&prose)) {
            for call in calls(line) {
                // `tidegate.toml` and the like are other words; an ellipsis stands for what is left out.
                if !call.is_empty() && !line.contains('…') {
                    seen.insert((call, document.path.clone()));
                }
            }
        }
    }
    assert!(seen.len() >= 5, "only {} calls found", seen.len());
    let complaints: Vec<String> = seen
        .iter()
        .filter_map(|(call, path)| {
            parses(call)
                .err()
                .map(|why| format!("{path}: tidegate {call:?}: {why}"))
        })
        .collect();
    assert_none("every call of `tidegate` in a document parses", &complaints);
}

#[test]
fn a_call_that_does_not_exist_is_noticed() {
    assert!(parses(&["topology".to_owned(), "explode".to_owned()]).is_err());
    assert!(parses(&["publish".to_owned(), "--no-such-flag".to_owned()]).is_err());
    assert_eq!(words("a 'b c' --d=\"e f\""), ["a", "b c", "--d=e f"]);
    assert_eq!(calls("X=1 tidegate serve | jq ."), [["serve".to_owned()]]);
}

#[test]
fn every_command_of_the_readme_is_run_somewhere() {
    let (blocks, _) = blocks(&read("README.md"));
    let mut complaints = Vec::new();
    let mut unused: BTreeSet<&str> = README.iter().map(|(command, _)| *command).collect();
    for (_, at, text) in blocks.iter().filter(|(language, ..)| language == "sh") {
        for (offset, line) in text.lines().enumerate() {
            let command = line.split(" #").next().unwrap().trim();
            let known = unused.remove(command) || README.iter().any(|(known, _)| *known == command);
            if !command.is_empty() && !known && calls(command).is_empty() {
                complaints.push(format!("README.md:{}: {command}", at + offset));
            }
        }
    }
    complaints.extend(
        unused
            .iter()
            .map(|command| format!("{command} is listed and not in the README")),
    );
    assert_none(
        "a command of the README is listed in tests/house/commands.rs with what runs it",
        &complaints,
    );
}
