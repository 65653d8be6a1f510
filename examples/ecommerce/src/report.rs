//! The table at the end: every task with its times, attempts and outcome, and the state of the shop.
//!
//! Imports `verdict` and `narrator`.

use chrono::{DateTime, Utc};
use comfy_table::{CellAlignment, ContentLineStyle, LineStyle, Table, TableStyle};

use crate::{narrator::Narrator, verdict::Row};

/// One rule under the header, columns apart by spaces: nothing that wraps or hides a value.
const STYLE: TableStyle = TableStyle::new()
    .header_lines(ContentLineStyle::none())
    .header_separator(LineStyle::none().fill('─'))
    .content_lines(ContentLineStyle::none());

/// A question to the shop's own tables after the run, with the answer it should give.
#[derive(Clone, Debug)]
pub(crate) struct Checked {
    pub(crate) step: u8,
    pub(crate) what: &'static str,
    pub(crate) wanted: &'static str,
    pub(crate) found: String,
}

impl Checked {
    fn as_expected(&self) -> bool {
        self.found == self.wanted
    }
}

/// Prints both tables; `true` if everything is as expected.
pub(crate) fn print(narrator: &Narrator, rows: &[Row], checks: &[Checked]) -> bool {
    let paint = |table: &Table| paint(&table.trim_fmt(), narrator.colour());
    narrator.print(format_args!("\n{}\n", paint(&tasks(rows))));
    narrator.print(format_args!("{}\n", paint(&shop(checks))));
    let tasks = rows.iter().filter(|row| !row.differs.is_empty()).count();
    let facts = checks.iter().filter(|check| !check.as_expected()).count();
    let worst = rows
        .iter()
        .filter_map(Row::lateness)
        .max()
        .map_or(0, |late| late.num_milliseconds());
    if tasks + facts == 0 {
        narrator.print(format_args!(
            "{} tasks and {} facts, all as expected; none early, the latest {worst} ms late",
            rows.len(),
            checks.len()
        ));
    } else {
        narrator.print(format_args!(
            "DIFFERS: {tasks} of {} tasks, {facts} of {} facts",
            rows.len(),
            checks.len()
        ));
    }
    tasks + facts == 0
}

fn tasks(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE);
    table.set_header([
        "step",
        "task type",
        "task id",
        "planned",
        "start",
        "late ms",
        "attempts",
        "outcome",
        "verdict",
    ]);
    for row in rows {
        let verdict = match row.differs.as_slice() {
            [] => "as expected".to_owned(),
            differs => format!("DIFFERS: {}", differs.join("; ")),
        };
        table.add_row([
            row.step.map_or("?".to_owned(), |step| step.to_string()),
            row.task_type.clone(),
            shortened(&row.key),
            row.planned.map_or("-".to_owned(), clock),
            row.started.map_or("-".to_owned(), clock),
            row.lateness()
                .map_or("-".to_owned(), |late| late.num_milliseconds().to_string()),
            row.attempts.to_string(),
            row.outcome.to_string(),
            verdict,
        ]);
    }
    for column in [0, 5, 6] {
        align_right(&mut table, column);
    }
    table
}

fn shop(checks: &[Checked]) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE);
    table.set_header(["step", "in the tables of shop and ledger", "found", "verdict"]);
    for check in checks {
        let verdict = match check.as_expected() {
            true => "as expected".to_owned(),
            false => format!("DIFFERS: expected {}", check.wanted),
        };
        table.add_row([
            check.step.to_string(),
            check.what.to_owned(),
            check.found.clone(),
            verdict,
        ]);
    }
    align_right(&mut table, 0);
    table
}

fn align_right(table: &mut Table, column: usize) {
    if let Some(column) = table.column_mut(column) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

fn clock(at: DateTime<Utc>) -> String {
    at.format("%H:%M:%S%.3f").to_string()
}

/// An id as it is; a body that stands in for one, cut and in brackets.
fn shortened(key: &str) -> String {
    let is_id = tidegate_core::task::TaskId::parse(key).is_ok();
    if is_id {
        return key.to_owned();
    }
    let start: String = key
        .chars()
        .take(24)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    format!("(no id) {start}…")
}

/// Verdicts in green and red. The colour goes in after the layout, which counts characters.
fn paint(table: &str, colour: bool) -> String {
    if !colour {
        return table.to_owned();
    }
    let line = |line: &str| match line.find("DIFFERS").or_else(|| line.rfind("as expected")) {
        Some(at) if line[at..].starts_with('D') => format!("{}\x1b[31m{}\x1b[0m", &line[..at], &line[at..]),
        Some(at) => format!("{}\x1b[32m{}\x1b[0m", &line[..at], &line[at..]),
        None => line.to_owned(),
    };
    table.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Outcome;

    fn row(differs: &[&str]) -> Row {
        Row {
            step: Some(2),
            task_type: "order.close.timeout".to_owned(),
            key: "close-1002".to_owned(),
            planned: DateTime::from_timestamp_millis(1_700_000_000_000),
            started: DateTime::from_timestamp_millis(1_700_000_000_021),
            attempts: 1,
            outcome: Outcome::Done,
            differs: differs.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn a_line_holds_everything_about_a_task() {
        let table = tasks(&[row(&[]), row(&["started early", "expected 2 attempts"])]).to_string();
        let lines: Vec<_> = table.lines().filter(|line| line.contains("close-1002")).collect();
        let words: Vec<_> = lines[0].split_whitespace().collect();
        let expected = [
            "2",
            "order.close.timeout",
            "close-1002",
            "22:13:20.000",
            "22:13:20.021",
            "21",
            "1",
            "done",
            "as",
            "expected",
        ];
        assert_eq!(words, expected);
        assert!(
            lines[1].contains("DIFFERS: started early; expected 2 attempts"),
            "{}",
            lines[1]
        );
    }

    #[test]
    fn only_a_terminal_gets_colours() {
        let table = "a as expected\nb DIFFERS: as expected";
        assert_eq!(paint(table, false), table);
        assert_eq!(
            paint(table, true),
            "a \x1b[32mas expected\x1b[0m\nb \x1b[31mDIFFERS: as expected\x1b[0m"
        );
    }

    #[test]
    fn a_body_that_stands_in_for_an_id_is_cut() {
        assert_eq!(shortened("close-1002"), "close-1002");
        assert_eq!(
            shortened("{\"taskId\": not json at all\n"),
            "(no id) {\"taskId\": not json at a…"
        );
    }
}
