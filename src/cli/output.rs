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

    /// Writes a message to stderr.
    pub(super) fn message(self, text: &str) {
        // Nowhere is left to say that stderr is closed.
        let _ = writeln!(io::stderr(), "{text}");
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

/// A table without lines, as people read it and `awk` too.
pub(super) fn table(head: &[&str], rows: Vec<Vec<String>>) -> String {
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
