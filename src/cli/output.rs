//! Where a command writes: data to stdout, as text or JSON, and messages to stderr.
//!
//! May import: `failure`.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use super::failure::{Exit, Failure};

/// The two streams of a command and how it speaks on them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Output {
    /// Data as JSON.
    pub(super) json: bool,
}

impl Output {
    /// Writes `value` as one line of JSON.
    pub(super) fn json_line(self, value: &impl Serialize) -> Result<(), Failure> {
        let mut line = serde_json::to_string(value)
            .map_err(|why| Failure::new(Exit::Failed, why, "JSON output", "report this as a bug"))?;
        line.push('\n');
        self.data(&line)
    }

    /// Writes `text` to stdout as it is.
    pub(super) fn data(self, text: &str) -> Result<(), Failure> {
        let mut stdout = io::stdout().lock();
        match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
            Ok(()) => Ok(()),
            // The reader has seen enough: `tidegate cron list | head -1`.
            Err(why) if why.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Err(why) => Err(Failure::new(
                Exit::Failed,
                why,
                "stdout",
                "check where the output goes",
            )),
        }
    }

    /// Writes a message to stderr; as a line of JSON where data are JSON too.
    pub(super) fn message(self, text: &str) {
        // Nowhere is left to say that stderr is closed.
        let _ = if self.json {
            writeln!(io::stderr(), "{}", serde_json::json!({ "message": text }))
        } else {
            writeln!(io::stderr(), "{text}")
        };
    }

    /// Writes why the command failed to stderr.
    pub(super) fn failure(self, failure: &Failure) {
        let text = if self.json {
            format!("{}\n", failure.json())
        } else {
            failure.text()
        };
        let _ = io::stderr().write_all(text.as_bytes());
    }
}

/// Whether log lines on stderr may be coloured: a terminal, and no `NO_COLOR`.
pub(super) fn colour_on_stderr() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Most characters of a table's cell; `--json` has the whole value.
const MAX_CELL_CHARS: usize = 80;

/// Fields and their values, one per line. As in a [`table`] nothing steers a terminal, but no value is cut.
pub(super) fn fields(rows: Vec<Vec<String>>) -> String {
    lines(
        &["FIELD", "VALUE"],
        rows.into_iter()
            .map(|row| row.iter().map(|text| escaped(text)).collect()),
    )
}

/// A table without lines, as people read it and `awk` too. Cells may hold what anybody wrote into a row: what would
/// steer a terminal or break the line is shown escaped, and a long cell is cut.
pub(super) fn table(head: &[&str], rows: Vec<Vec<String>>) -> String {
    lines(
        head,
        rows.into_iter()
            .map(|row| row.iter().map(|text| cell(text)).collect()),
    )
}

fn lines(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = comfy_table::Table::new();
    table
        .load_style(comfy_table::presets::NOTHING)
        .set_header(head.to_vec());
    for row in rows {
        table.add_row(row);
    }
    let mut text = String::new();
    for line in table.to_string().lines() {
        text.push_str(line.trim());
        text.push('\n');
    }
    text
}

/// `text` for a line of a message: what would steer a terminal or break the line is shown escaped.
pub(super) fn escaped(text: &str) -> String {
    let mut shown = String::new();
    for c in text.chars() {
        if steers(c) {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    shown
}

fn cell(text: &str) -> String {
    let mut shown = String::new();
    let mut chars = 0;
    for c in text.chars() {
        let next = if steers(c) {
            c.escape_unicode().to_string()
        } else {
            c.to_string()
        };
        chars += next.chars().count();
        if chars > MAX_CELL_CHARS {
            shown.push('…');
            break;
        }
        shown.push_str(&next);
    }
    shown
}

/// Whether a terminal acts on `c` instead of showing it: controls, line separators, and what is invisible or turns
/// the direction of writing, by which one name can look like another.
fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(cells: &[&str]) -> Vec<String> {
        let row = cells.iter().map(|text| (*text).to_owned()).collect();
        let text = table(&["A", "B"], vec![row]);
        text.lines().skip(1).map(str::to_owned).collect()
    }

    #[test]
    fn a_cell_can_neither_steer_the_terminal_nor_break_its_line() {
        let shown = rows(&["x\u{1b}[2J\u{9b}1m\r\n\ty", "ab\u{202e}cd"]);
        assert_eq!(shown, ["x\\u{1b}[2J\\u{9b}1m\\u{d}\\u{a}\\u{9}y  ab\\u{202e}cd"]);
        assert_eq!(rows(&["größe 任务", "-"])[0].split_whitespace().last(), Some("-"));
        assert!(rows(&["größe 任务", "-"])[0].starts_with("größe 任务"));
    }

    #[test]
    fn a_field_is_never_cut() {
        let long = "k".repeat(MAX_CELL_CHARS * 4);
        let text = fields(vec![vec!["error".to_owned(), format!("{long}\u{1b}")]]);
        assert!(text.ends_with(&format!("error  {long}\\u{{1b}}\n")), "{text}");
    }

    #[test]
    fn a_long_cell_is_cut_and_says_so() {
        let fits = "k".repeat(MAX_CELL_CHARS);
        assert_eq!(rows(&[&fits, "b"]), [format!("{fits}  b")]);
        assert_eq!(rows(&[&format!("{fits}k"), "b"]), [format!("{fits}…  b")]);
        // An escape is shown whole or not at all.
        let shown = cell(&format!("{}\u{1b}", "k".repeat(MAX_CELL_CHARS - 1)));
        assert!(shown.ends_with("k…"), "{shown}");
    }
}
