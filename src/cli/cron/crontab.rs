//! A crontab as schedules: every line read, every mistake told with its line and what to write instead.
//!
//! May import: `core`. Pure. What cron would do otherwise is refused or told, never dropped in silence.

use serde_json::value::RawValue;
use tidegate_core::{cron::Schedule, task::TaskType};

/// How lines are read.
#[derive(Clone, Debug)]
pub(super) struct Reading<'a> {
    /// The zone of lines that stand below no `CRON_TZ=`.
    pub(super) zone: &'a str,
    /// Task type of lines that are shell commands; `None`: such lines are mistakes.
    pub(super) command_type: Option<&'a str>,
}

/// A line that is a schedule.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Its line, from 1.
    pub(super) line: usize,
    pub(super) name: String,
    pub(super) expression: String,
    pub(super) zone: String,
    pub(super) task_type: String,
    pub(super) payload: Box<RawValue>,
}

/// Something to say about a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Remark {
    /// The line, from 1.
    pub(super) line: usize,
    pub(super) text: String,
}

/// What a crontab says.
#[derive(Debug, Default)]
pub(super) struct Crontab {
    pub(super) entries: Vec<Entry>,
    /// What must be corrected.
    pub(super) mistakes: Vec<Remark>,
    /// What is read otherwise than cron reads it.
    pub(super) notes: Vec<Remark>,
    /// Whether a schedule stands below no `CRON_TZ=`.
    pub(super) zone_assumed: bool,
}

/// What stands so far for the lines below.
#[derive(Default)]
struct Standing {
    cron_tz: Option<String>,
    tz: Option<String>,
    name: Option<(usize, String)>,
}

/// Reads all of `text`.
pub(super) fn read(text: &str, reading: &Reading<'_>) -> Crontab {
    let mut crontab = Crontab::default();
    let mut standing = Standing::default();
    for (at, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        crontab.line(
            at + 1,
            line.trim_matches([' ', '\t', '\r']),
            &mut standing,
            reading,
        );
    }
    crontab.unused(standing.name.take());
    crontab.duplicates();
    crontab
}

impl Crontab {
    fn mistake(&mut self, line: usize, text: impl ToString) {
        let text = text.to_string();
        self.mistakes.push(Remark { line, text });
    }

    fn line(&mut self, at: usize, line: &str, standing: &mut Standing, reading: &Reading<'_>) {
        if let Some(comment) = line.strip_prefix('#') {
            if let Some(name) = named(comment) {
                let before = standing.name.replace((at, name.to_owned()));
                self.unused(before);
            }
        } else if let Some((variable, value)) = assignment(line) {
            self.variable(at, variable, value, standing);
        } else if !line.is_empty() {
            let zone = standing.cron_tz.as_ref().or(standing.tz.as_ref());
            self.zone_assumed |= zone.is_none();
            let zone = zone.map_or(reading.zone, String::as_str);
            match entry(at, line, zone, standing.name.take(), reading) {
                Ok(entry) => {
                    // Both exist: a script called like a type, a type without a payload.
                    if let (Some(_), Ok((_, rest))) = (reading.command_type, split(line))
                        && TaskType::parse(rest).is_ok()
                    {
                        let text =
                            format!("read as a shell command; if it is a task type, write {rest} {{}}");
                        self.notes.push(Remark { line: at, text });
                    }
                    self.entries.push(entry);
                }
                Err(why) => self.mistake(at, why),
            }
        }
    }

    fn variable(&mut self, at: usize, variable: &str, value: &str, standing: &mut Standing) {
        let place = match variable {
            "CRON_TZ" => &mut standing.cron_tz,
            "TZ" => &mut standing.tz,
            _ => {
                let text = format!("{variable} is not carried over: schedules have no environment");
                self.notes.push(Remark { line: at, text });
                return;
            }
        };
        match Schedule::parse("@daily", value) {
            Ok(_) => *place = Some(value.to_owned()),
            Err(_) if value.contains(char::is_whitespace) => {
                self.mistake(
                    at,
                    format!(
                        "write {variable}= on a line of its own, above the schedules that it is meant for"
                    ),
                );
            }
            // The lines below are read on, so that their own mistakes show too.
            Err(why) => {
                *place = Some("UTC".to_owned());
                self.mistake(at, why);
            }
        }
    }

    fn unused(&mut self, name: Option<(usize, String)>) {
        if let Some((line, name)) = name {
            self.mistake(
                line,
                format!("the name {name:?} has no schedule below it; remove it with the line that it named"),
            );
        }
    }

    fn duplicates(&mut self) {
        let mut first = std::collections::HashMap::new();
        let mut mistakes = Vec::new();
        for entry in &self.entries {
            let of = first.entry(entry.name.as_str()).or_insert(entry.line);
            if *of != entry.line {
                let text = format!(
                    "the name {:?} is that of line {of} already; give each line its own by a comment above it: # name: another-name",
                    entry.name
                );
                mistakes.push(Remark {
                    line: entry.line,
                    text,
                });
            }
        }
        self.mistakes.extend(mistakes);
        self.mistakes.sort_by_key(|mistake| mistake.line);
    }
}

/// The name in a comment `# name: x`.
fn named(comment: &str) -> Option<&str> {
    let (key, name) = comment.split_once(':')?;
    let name = name.trim();
    (key.trim().eq_ignore_ascii_case("name") && !name.is_empty()).then_some(name)
}

/// `NAME = value`, as cron reads it: with or without quotes.
fn assignment(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once('=')?;
    let name = name.trim_end();
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let value = value.trim();
    let quoted = ['"', '\'']
        .iter()
        .find_map(|quote| value.strip_prefix(*quote)?.strip_suffix(*quote));
    is_name.then_some((name, quoted.unwrap_or(value)))
}

fn entry(
    at: usize,
    line: &str,
    zone: &str,
    name: Option<(usize, String)>,
    reading: &Reading<'_>,
) -> Result<Entry, String> {
    let (expression, rest) = split(line)?;
    Schedule::parse(expression, zone).map_err(|why| why.to_string())?;
    let (task_type, payload) = task(rest, reading)?;
    Ok(Entry {
        line: at,
        name: name.map_or_else(|| task_type.clone(), |(_, name)| name),
        expression: expression.to_owned(),
        zone: zone.to_owned(),
        task_type,
        payload,
    })
}

/// The schedule of a line and what follows it.
fn split(line: &str) -> Result<(&str, &str), String> {
    let mut rest = line;
    let mut fields = Vec::new();
    let wanted = if line.starts_with('@') { 1 } else { 6 };
    while fields.len() < wanted && !rest.is_empty() {
        let (field, after) = rest.split_at(rest.find([' ', '\t']).unwrap_or(rest.len()));
        // The sixth may be a day of the week, in a line that begins with the second, or the task.
        if fields.len() == 5 && !looks_like_a_weekday(field) {
            break;
        }
        fields.push(field);
        rest = after.trim_start_matches([' ', '\t']);
    }
    if wanted == 6 && fields.len() < 5 {
        return Err(format!(
            "{} fields are no schedule; write 5 (minute hour day-of-month month day-of-week) or 6 (second first) or a macro \
             such as @daily, then a task type and its payload: 0 9 * * * report.make {{\"all\": true}}",
            fields.len()
        ));
    }
    if rest.is_empty() {
        return Err("after the schedule stands what to do; write a task type and its payload: report.make {\"all\": true}".to_owned());
    }
    let schedule = line[..line.len() - rest.len()].trim_end_matches([' ', '\t']);
    Ok((schedule, rest))
}

/// Whether `text` has the form of a day-of-week field. No task type does, as it has a dot.
fn looks_like_a_weekday(text: &str) -> bool {
    const NAMES: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
    text.split([',', '-', '/', '#']).all(|part| {
        let day = part.strip_suffix(['L', 'l']).unwrap_or(part);
        day.bytes().all(|b| b.is_ascii_digit() || b == b'*' || b == b'?')
            || NAMES.iter().any(|name| name.eq_ignore_ascii_case(day))
    })
}

/// `task.type {json}`, or a shell command where commands have a type.
fn task(text: &str, reading: &Reading<'_>) -> Result<(String, Box<RawValue>), String> {
    let (first, payload) = text.split_at(text.find([' ', '\t']).unwrap_or(text.len()));
    let payload = payload.trim();
    match (TaskType::parse(first), reading.command_type) {
        (Ok(_), Some(_)) if payload.starts_with('{') => json(first, payload),
        (_, Some(task_type)) => Ok((task_type.to_owned(), command(text)?)),
        (Ok(_), None) => json(first, payload),
        (Err(why), None) => Err(format!(
            "{first:?} is no task type ({why}); if the line is a shell command, import with --command-type TYPE, which \
             sends it to the workers of that type"
        )),
    }
}

fn json(task_type: &str, payload: &str) -> Result<(String, Box<RawValue>), String> {
    let payload = if payload.is_empty() { "{}" } else { payload };
    match RawValue::from_string(payload.to_owned()) {
        Ok(payload) => Ok((task_type.to_owned(), payload)),
        Err(why) => Err(format!(
            "the payload of {task_type} is no JSON ({why}); write an object, {{\"key\": \"value\"}}, or import shell \
             commands with --command-type TYPE"
        )),
    }
}

/// The payload of a shell command. To cron a `%` ends the command; what follows is its input.
fn command(text: &str) -> Result<Box<RawValue>, String> {
    let mut command = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' if chars.peek() == Some(&'%') => command.extend(chars.next()),
            '%' => {
                return Err(
                    "to cron, what follows % is input of the command, which a task doesn't have; write \\% for a percent sign, or put the input into the command".to_owned(),
                );
            }
            c => command.push(c),
        }
    }
    serde_json::value::to_raw_value(&serde_json::json!({ "command": command })).map_err(|why| why.to_string())
}

#[cfg(test)]
mod tests;
