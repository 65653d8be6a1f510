//! The README shows what the repository holds: its code is the code of files that are compiled or run.

use tidegate_core::cron::Schedule;

use crate::repository::{assert_none, read};

/// A block after the comment `<!-- from PATH -->`.
struct Excerpt<'a> {
    path: &'a str,
    lines: Vec<&'a str>,
}

fn excerpts(text: &str) -> Vec<Excerpt<'_>> {
    text.split("<!-- from ")
        .skip(1)
        .map(|rest| {
            let (path, rest) = rest.split_once(" -->").expect("the comment ends");
            let (before, rest) = rest.split_once("```").expect("a fenced block follows");
            assert!(before.trim().is_empty(), "the block of {path} follows at once");
            let (block, _) = rest.split_once("\n```").expect("the block ends");
            Excerpt {
                path,
                lines: block.lines().skip(1).collect(),
            }
        })
        .collect()
}

/// A line of a source file as an excerpt shows it: without what marks documentation.
fn bare(line: &str) -> &str {
    line.strip_prefix("//! ")
        .or(line.strip_prefix("//!"))
        .unwrap_or(line)
}

/// Where `piece` stands in `lines`, from `from` on, shifted by one indentation as a whole.
fn find(lines: &[&str], piece: &[&str], from: usize) -> Option<usize> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    (from..=lines.len().checked_sub(piece.len())?).find(|start| {
        let shift = indent(lines[*start]) as isize - indent(piece[0]) as isize;
        piece.iter().enumerate().all(|(at, line)| {
            let there = lines[start + at];
            there.trim() == line.trim()
                && (line.trim().is_empty() || indent(there) as isize - indent(line) as isize == shift)
        })
    })
}

/// A line that stands for what is left out.
fn is_gap(line: &str) -> bool {
    matches!(line.trim(), "// …" | "# …" | "-- …" | "…")
}

#[test]
fn excerpts_are_what_the_files_say() {
    let (readme, tasks) = (read("README.md"), read("docs/tasks.md"));
    let of_tasks = excerpts(&tasks);
    let excerpts = excerpts(&readme);
    let mut complaints = Vec::new();
    assert_eq!(of_tasks.len(), 5, "docs/tasks.md has one for each driver");
    for Excerpt { path, lines } in excerpts.iter().chain(&of_tasks) {
        let file = read(path);
        let file: Vec<&str> = file.lines().map(bare).collect();
        let mut from = 0;
        for piece in lines.split(|line| is_gap(line)).filter(|piece| !piece.is_empty()) {
            match find(&file, piece, from) {
                Some(at) => from = at + piece.len(),
                None => complaints.push(format!("{path} has not (in this order):\n{}", piece.join("\n"))),
            }
        }
    }
    assert_none("code in the README is code of the repository", &complaints);
    for part in [
        "go/main.go",
        "python/first_task.py",
        "rust/first_task.rs",
        "sql/first_cron_row.sql",
    ] {
        assert!(
            excerpts.iter().any(|e| e.path.ends_with(part)),
            "no excerpt of {part}"
        );
    }
    assert!(
        excerpts.iter().any(|e| e.path == "src/worker/mod.rs"),
        "no worker"
    );
    let code = readme.matches("\n```go\n").count()
        + readme.matches("\n```python\n").count()
        + readme.matches("\n```rust\n").count()
        + readme.matches("\n```sql\n").count();
    assert_eq!(
        code,
        excerpts.len(),
        "each block of code says which file it is from"
    );
}

/// The example's columns exist, and its schedule is one.
#[test]
fn the_first_cron_row_fits_the_table() {
    let (sql, schema) = (
        read("examples/producers/sql/first_cron_row.sql"),
        read("migrations/0001_ledger.up.sql"),
    );
    let (_, table) = schema.split_once("CREATE TABLE tidegate.cron_tasks (").unwrap();
    let (table, _) = table.split_once("\n);").unwrap();
    let (_, rest) = sql.split_once("INSERT INTO tidegate.cron_tasks (").unwrap();
    let (columns, rest) = rest.split_once(')').unwrap();
    for column in columns.split(',').map(str::trim) {
        assert!(
            table
                .lines()
                .any(|line| line.trim_start().starts_with(&format!("{column} "))),
            "{column}"
        );
    }
    let values: Vec<&str> = rest.split('\'').skip(1).step_by(2).collect();
    assert_eq!(values.len(), columns.split(',').count());
    let of = |name| {
        values[columns
            .split(',')
            .position(|column| column.trim() == name)
            .unwrap()]
    };
    Schedule::parse(of("cron_expression"), of("time_zone")).unwrap();
    serde_json::from_str::<serde_json::Value>(of("payload")).unwrap();
}

#[test]
fn one_screen_is_read_before_the_first_command() {
    let readme = read("README.md");
    let first = readme.lines().position(|line| line.starts_with("```sh")).unwrap();
    assert!(first <= 40, "the first command is on line {first}");
}

#[test]
fn an_excerpt_that_differs_is_noticed() {
    let file = ["fn a() {", "    b();", "    c();", "}"];
    assert_eq!(find(&file, &["b();", "c();"], 0), Some(1));
    assert_eq!(find(&file, &["b();", "  c();"], 0), None);
    assert_eq!(find(&file, &["c();", "b();"], 0), None);
    assert_eq!(find(&file, &["b();"], 2), None);
}
