//! Files that are made of contracts: written with a line for each, or compared with a line for each that differs.
//!
//! May import: `contract`.

use std::path::Path;

use serde_json::{Value, json};
use tidegate_core::{json_text::Difference, printable};

use super::unreadable;
use crate::{
    cli::{
        failure::{Exit, Failure},
        output::Output,
    },
    contract::generated::{Files, Outdated, Why, compare, write},
};

/// Most characters of a value in a line for people.
const MAX_VALUE_CHARS: usize = 120;

/// What is to be done with files.
pub(super) struct Work<'w> {
    /// Where they belong.
    pub(super) dir: &'w Path,
    pub(super) files: &'w Files,
    /// Files there that no contract makes.
    pub(super) extra: Vec<Outdated>,
    /// Compare instead of writing.
    pub(super) check: bool,
    /// What to do about a difference.
    pub(super) next: &'static str,
}

/// Does it. With `check`, a difference is exit code 3.
pub(super) fn deliver(work: Work<'_>, output: Output) -> Result<(), Failure> {
    if !work.check {
        for (file, is_new) in write(work.dir, work.files).map_err(|error| unreadable(&error))? {
            let path = work.dir.join(file);
            let state = if is_new { "written" } else { "unchanged" };
            if output.json {
                output.json_line(&json!({"file": path.display().to_string(), "state": state}))?;
            } else {
                output.data(&format!(
                    "{} {state}\n",
                    printable::line(&path.display().to_string())
                ))?;
            }
        }
        for file in &work.extra {
            let path = work.dir.join(&file.file);
            let path = printable::line(&path.display().to_string());
            output.message(&format!("warning: {path}: no contract makes it; delete it"));
        }
        return Ok(());
    }
    let mut found = compare(work.dir, work.files).map_err(|error| unreadable(&error))?;
    found.extend(work.extra);
    for file in &found {
        if output.json {
            output.json_line(&as_json(work.dir, file))?;
        } else {
            output.data(&as_text(work.dir, file))?;
        }
    }
    let what = match found.len() {
        0 => return Ok(()),
        1 => "1 file isn't as the contracts make it".to_owned(),
        count => format!("{count} files aren't as the contracts make them"),
    };
    let place = format!("directory {}", work.dir.display());
    Err(Failure::new(Exit::Differences, what, place, work.next))
}

fn as_text(dir: &Path, file: &Outdated) -> String {
    let path = printable::line(&dir.join(&file.file).display().to_string());
    match &file.why {
        Why::Missing => format!("{path}: isn't there\n"),
        Why::Extra => format!("{path}: no contract makes it\n"),
        Why::Line(line) => format!("{path}:{line}: differs from this line on\n"),
        Why::Values(values) => values.iter().map(|value| of_value(&path, value)).collect(),
    }
}

fn of_value(path: &str, value: &Difference) -> String {
    let place = if value.pointer.is_empty() {
        "file"
    } else {
        &value.pointer
    };
    let cut = |text: &str| {
        // Line breaks of JSON stand between values only.
        let text: Vec<&str> = text.lines().map(str::trim).collect();
        let shown = printable::literal(&text.join(" ")).into_owned();
        match shown.char_indices().nth(MAX_VALUE_CHARS) {
            Some((at, _)) => format!("{}…", shown.get(..at).unwrap_or_default()),
            None => shown,
        }
    };
    match (&value.one, &value.two) {
        (Some(is), Some(should)) => format!("{path}: {place}: is {}, should be {}\n", cut(is), cut(should)),
        (Some(is), None) => format!("{path}: {place}: is {}, shouldn't be there\n", cut(is)),
        (None, should) => {
            let should = cut(should.as_deref().unwrap_or_default());
            format!("{path}: {place}: isn't there, should be {should}\n")
        }
    }
}

fn as_json(dir: &Path, file: &Outdated) -> Value {
    let path = dir.join(&file.file).display().to_string();
    let mut value = json!({"file": path, "state": file.why.as_str()});
    match &file.why {
        Why::Missing | Why::Extra => {}
        Why::Line(line) => value["line"] = json!(line),
        Why::Values(values) => {
            let place =
                |value: &Difference| json!({"pointer": value.pointer, "is": value.one, "should": value.two});
            value["differences"] = values.iter().map(place).collect();
        }
    }
    value
}
