//! A report in the forms that others read: lines for people, JSON, JUnit's XML, and commands of GitHub's runners. Pure.
//!
//! Texts come from contracts that anybody may propose: nothing in them steers a terminal, ends an element or begins a
//! command.
//!
//! May import: `core`, `check`.

use serde_json::{Value, json};
use tidegate_core::printable;

use super::check::{Item, Report};

/// For people: a line for each thing that is wrong, and one for what to do.
pub fn text(report: &Report) -> String {
    let mut text = String::new();
    for item in &report.items {
        text.push_str(&format!(
            "{}:{}: {}: {} ({})\n",
            printable::line(&item.file),
            item.line,
            place(item),
            printable::line(&item.what),
            item.rule
        ));
        if let Some(breaks) = breaks(item) {
            text.push_str(&format!("    breaks: {breaks}\n"));
        }
        if !item.next.is_empty() {
            text.push_str(&format!("    do: {}\n", item.next));
        }
    }
    text.push_str(&format!("{}\n", summary(report)));
    text
}

/// For programs.
pub fn json(report: &Report) -> Value {
    let item = |item: &Item| {
        let mut value = json!({
            "file": item.file,
            "line": item.line,
            "pointer": item.pointer,
            "rule": item.rule,
            "what": item.what,
        });
        if !item.next.is_empty() {
            value["next"] = json!(item.next);
        }
        if let Some((against, direction)) = item.change {
            value["against"] = json!(against);
            value["direction"] = json!(direction.as_str());
            value["breaks"] = item
                .breaks()
                .iter()
                .map(|breaks| json!(breaks.as_str()))
                .collect();
        }
        value
    };
    json!({
        "files": report.files,
        "findings": report.items.iter().map(item).collect::<Vec<_>>(),
    })
}

/// For servers that show test results: each file is a test.
pub fn junit(report: &Report) -> String {
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let count = report.files.len();
    xml.push_str(&format!(
        "<testsuites>\n  <testsuite name=\"contracts\" tests=\"{count}\" failures=\"{}\" errors=\"0\">\n",
        report
            .files
            .iter()
            .filter(|file| of(report, file).next().is_some())
            .count()
    ));
    for file in &report.files {
        xml.push_str(&format!(
            "    <testcase classname=\"contracts\" name=\"{}\"",
            escaped(file)
        ));
        let mut items = of(report, file).peekable();
        let Some(first) = items.peek() else {
            xml.push_str("/>\n");
            continue;
        };
        // One failure for a test is what the format has; its text holds all.
        xml.push_str(&format!(
            ">\n      <failure type=\"{}\" message=\"{}\">",
            first.rule,
            escaped(&first.what)
        ));
        for item in items {
            let breaks = breaks(item)
                .map(|breaks| format!(" breaks {breaks};"))
                .unwrap_or_default();
            let line = format!(
                "{}: {}: {} ({});{breaks} {}",
                item.line,
                place(item),
                item.what,
                item.rule,
                item.next
            );
            xml.push_str(&format!("{}\n", escaped(line.trim_end())));
        }
        xml.push_str("</failure>\n    </testcase>\n");
    }
    xml.push_str("  </testsuite>\n</testsuites>\n");
    xml
}

/// For GitHub's runners: each line is shown beside the line of the file.
pub fn github(report: &Report) -> String {
    let mut text = String::new();
    for item in &report.items {
        let breaks = breaks(item)
            .map(|breaks| format!("; breaks {breaks}"))
            .unwrap_or_default();
        let next = if item.next.is_empty() {
            String::new()
        } else {
            format!("; {}", item.next)
        };
        text.push_str(&format!(
            "::error file={},line={},title={}::{}\n",
            property(&item.file),
            item.line,
            property(item.rule),
            data(&format!("{}: {}{breaks}{next}", place(item), item.what))
        ));
    }
    text.push_str(&format!("{}\n", summary(report)));
    text
}

/// `3 findings in 2 of 10 files`.
fn summary(report: &Report) -> String {
    let with = report
        .files
        .iter()
        .filter(|file| of(report, file).next().is_some())
        .count();
    let files = match report.files.len() {
        1 => "1 file".to_owned(),
        count => format!("{count} files"),
    };
    match report.items.len() {
        0 => format!("{files}, no findings"),
        1 => format!("1 finding in {with} of {files}"),
        count => format!("{count} findings in {with} of {files}"),
    }
}

fn of<'r>(report: &'r Report, file: &'r str) -> impl Iterator<Item = &'r Item> {
    report.items.iter().filter(move |item| item.file == file)
}

fn place(item: &Item) -> &str {
    if item.pointer.is_empty() {
        "file"
    } else {
        &item.pointer
    }
}

fn breaks(item: &Item) -> Option<String> {
    let (against, _) = item.change?;
    let names: Vec<&str> = item.breaks().iter().map(|breaks| breaks.text()).collect();
    Some(format!("{} of version {against}", names.join(", ")))
}

/// Text of XML, in an element or an attribute; what XML has no place for is U+FFFD.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if printable::is_unsafe(c) || matches!(c, '\u{fffe}' | '\u{ffff}') => {
                out.push(char::REPLACEMENT_CHARACTER);
            }
            c => out.push(c),
        }
    }
    out
}

/// The message of a command.
fn data(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '%' => out.push_str("%25"),
            '\r' => out.push_str("%0D"),
            '\n' => out.push_str("%0A"),
            c if printable::is_unsafe(c) => out.push(char::REPLACEMENT_CHARACTER),
            c => out.push(c),
        }
    }
    out
}

/// A property of a command.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut item = Item::of_file("a,b:c.json", 3, "type", "<&\"\u{1b}[2J\n::error::%".to_owned());
        item.pointer = "/properties/a".to_owned();
        Report {
            files: vec!["a,b:c.json".to_owned(), "d.json".to_owned()],
            items: vec![item],
        }
    }

    #[test]
    fn nothing_in_a_contract_steers_who_shows_it() {
        let text = text(&report());
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
        assert!(text.ends_with("\n1 finding in 1 of 2 files\n"), "{text}");

        let github = github(&report());
        assert!(
            github.starts_with("::error file=a%2Cb%3Ac.json,line=3,title=type::/properties/a: <&\"\u{fffd}[2J%0A::error::%25\n"),
            "{github}"
        );
        let xml = junit(&report());
        assert!(
            xml.contains("message=\"&lt;&amp;&quot;\u{fffd}[2J\u{fffd}::error::%\""),
            "{xml}"
        );
        assert!(xml.contains("tests=\"2\" failures=\"1\""), "{xml}");
        assert!(
            xml.contains("<testcase classname=\"contracts\" name=\"d.json\"/>"),
            "{xml}"
        );
    }
}
