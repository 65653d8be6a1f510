//! A cron row's payload with the values of an occurrence filled in.
//!
//! May import: chrono, minijinja, serde_json. Pure. What stands between `{{` and `}}` in a JSON *string
//! value* is an expression; keys, numbers and everything else stay byte for byte what they were. An expression sees
//! the values below and nothing else: no file, no environment, no clock.
//!
//! The engine counts the steps of an expression and the bytes it makes, but not what a list repeated by `*`
//! stands for, and needs more time than its length for a long template. So there is no `*` and there are no
//! statements, the text around expressions is not the engine's business, and expressions are short and not many.
//!
//! | name | value |
//! |---|---|
//! | `name`, `task_type` | the row's |
//! | `task_id`, `attempt_id` | the id of the task: one per occurrence |
//! | `fire_time` | the planned instant in UTC, RFC 3339 |
//! | `scheduled_time` | the same instant in the row's zone, with its offset |
//! | `scheduled_date` | the date of that, `YYYY-MM-DD` |
//! | `zone` | the row's zone |
//!
//! Filters: `date(format)`, `add_days(n)`, `upper`, `lower`.

use std::{borrow::Cow, ops::Range};

use chrono::{DateTime, SecondsFormat, Utc};
use chrono_tz::Tz;
use minijinja::{
    AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value, context, value::ValueKind,
};
use serde::de::IgnoredAny;

mod dates;

/// What one expression may cost: this many steps, or 64 times as many bytes.
const FUEL: u64 = 500;

/// Most expressions of a payload.
const MAX_EXPRESSIONS: usize = 200;

/// Longest expression in bytes. The engine goes down one level for each operator of a chain, and a stack that
/// overflows ends the process.
const MAX_EXPRESSION: usize = 300;

/// Deepest nesting of what the engine carries out.
const MAX_DEPTH: usize = 50;

/// Longest payload with expressions, before and after they are filled in.
const MAX_BYTES: usize = 64 * 1024;

/// Most characters of a template that an error repeats.
const SHOWN: usize = 64;

const NAMES: [&str; 8] = [
    "name",
    "task_type",
    "task_id",
    "attempt_id",
    "fire_time",
    "scheduled_time",
    "scheduled_date",
    "zone",
];

/// Why a payload can't be filled in.
#[derive(Debug, thiserror::Error)]
pub enum PayloadError {
    /// No JSON.
    #[error("payload is no JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// Too much of it.
    #[error("payload has {bytes} bytes, or would have with its templates filled in; at most {MAX_BYTES}")]
    TooLong {
        /// How many.
        bytes: usize,
    },
    /// Too many expressions.
    #[error("payload has {found} template expressions; at most {MAX_EXPRESSIONS}")]
    TooMany {
        /// How many.
        found: usize,
    },
    /// A template that can't be read, or fails.
    #[error("payload template {template:?}: {why}")]
    Template {
        /// The string or the expression, cut.
        template: String,
        /// What is wrong, and what is allowed.
        why: String,
    },
}

/// The values of an occurrence.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    /// The row's name.
    pub name: &'a str,
    /// `taskType`.
    pub task_type: &'a str,
    /// `taskId`.
    pub task_id: &'a str,
    /// The planned instant.
    pub fire_time: DateTime<Utc>,
    /// The row's zone.
    pub zone: Tz,
}

/// A payload that was read once, to be filled in for any number of occurrences.
#[derive(Clone, Debug)]
pub struct Payload<'a> {
    text: &'a str,
    templates: Vec<Template>,
}

/// A string value with expressions in it.
#[derive(Clone, Debug)]
struct Template {
    /// Where its literal stands in the payload, quotes included.
    place: Range<usize>,
    parts: Vec<Part>,
}

#[derive(Clone, Debug)]
enum Part {
    Text(String),
    Expression(String),
}

impl<'a> Payload<'a> {
    /// Reads `text`, JSON of any kind. A text without templates is taken as it is, JSON or not.
    pub fn parse(text: &'a str) -> Result<Self, PayloadError> {
        let mut templates: Vec<Template> = Vec::new();
        // Whatever has none of these has no template: a brace may be written as an escape.
        if ["{{", "{%", "\\u00"].iter().any(|sign| text.contains(sign)) {
            serde_json::from_str::<IgnoredAny>(text)?;
            if text.len() > MAX_BYTES {
                return Err(PayloadError::TooLong { bytes: text.len() });
            }
            for place in string_values(text) {
                let source: String = serde_json::from_str(&text[place.clone()])?;
                let parts = split(&source).map_err(|why| failed(&source, why))?;
                if parts.iter().any(|part| matches!(part, Part::Expression(_))) {
                    templates.push(Template { place, parts });
                }
            }
        }
        let parts = templates.iter().flat_map(|template| &template.parts);
        let found = parts.filter(|part| matches!(part, Part::Expression(_))).count();
        if found > MAX_EXPRESSIONS {
            return Err(PayloadError::TooMany { found });
        }
        Ok(Self { text, templates })
    }

    /// Whether it has a template.
    pub fn has_templates(&self) -> bool {
        !self.templates.is_empty()
    }

    /// The payload of the occurrence with these `values`.
    pub fn fill(&self, values: &Values<'_>) -> Result<Cow<'a, str>, PayloadError> {
        if self.templates.is_empty() {
            return Ok(Cow::Borrowed(self.text));
        }
        let (engine, context) = (engine(), context(values));
        let mut filled = String::with_capacity(self.text.len() + 64);
        let mut copied = 0;
        for template in &self.templates {
            let mut value = String::new();
            for part in &template.parts {
                match part {
                    Part::Text(text) => value.push_str(text),
                    Part::Expression(text) => {
                        value.push_str(
                            &evaluate(&engine, text, &context).map_err(|why| failed(text.trim(), why))?,
                        );
                    }
                }
            }
            filled.push_str(&self.text[copied..template.place.start]);
            filled.push_str(&serde_json::to_string(&value)?);
            copied = template.place.end;
            if filled.len() > MAX_BYTES {
                return Err(PayloadError::TooLong { bytes: filled.len() });
            }
        }
        filled.push_str(&self.text[copied..]);
        Ok(Cow::Owned(filled))
    }
}

fn failed(template: &str, why: String) -> PayloadError {
    PayloadError::Template {
        template: template.chars().take(SHOWN).collect(),
        why,
    }
}

/// Where the string values of valid JSON stand, quotes included; not those that are keys.
fn string_values(json: &str) -> Vec<Range<usize>> {
    let bytes = json.as_bytes();
    let mut places = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] != b'"' {
            at += 1;
            continue;
        }
        let start = at;
        at += 1;
        while bytes.get(at).is_some_and(|byte| *byte != b'"') {
            // An escaped quote doesn't end it, nor does an escaped backslash escape one.
            at += if bytes[at] == b'\\' { 2 } else { 1 };
        }
        at += 1;
        let next = bytes[at.min(bytes.len())..]
            .iter()
            .find(|byte| !byte.is_ascii_whitespace());
        if next != Some(&b':') {
            places.push(start..at.min(bytes.len()));
        }
    }
    places
}

/// Text and expressions of a string in turn.
fn split(source: &str) -> Result<Vec<Part>, String> {
    let (mut parts, mut rest) = (Vec::new(), source);
    while let Some(at) = rest.find("{{") {
        let inside = &rest[at + 2..];
        let expression = expression(inside)?;
        parts.push(Part::Text(statement_free(&rest[..at])?.to_owned()));
        parts.push(Part::Expression(expression.to_owned()));
        rest = &inside[expression.len() + 2..];
    }
    parts.push(Part::Text(statement_free(rest)?.to_owned()));
    Ok(parts)
}

/// Whoever writes a statement wants something else than its text to be sent.
fn statement_free(text: &str) -> Result<&str, String> {
    if text.contains("{%") {
        return Err(
            "{% %} is not offered; write {{ a if b else c }} for a choice, and {{ '{%' }} for the signs themselves".to_owned(),
        );
    }
    Ok(text)
}

/// The expression that `inside` begins with, up to its `}}`.
fn expression(inside: &str) -> Result<&str, String> {
    let mut chars = inside.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '\'' | '"' => {
                while let Some((_, inner)) = chars.next() {
                    match inner {
                        '\\' => drop(chars.next()),
                        inner if inner == char => break,
                        _ => {}
                    }
                }
            }
            '*' | '{' => return Err(format!("{char:?} is not offered in {{{{ }}}}, except in quotes")),
            '}' if inside[at..].starts_with("}}") && at <= MAX_EXPRESSION => return Ok(&inside[..at]),
            _ if at > MAX_EXPRESSION => break,
            _ => {}
        }
    }
    Err(format!(
        "after {{{{ there is no }}}} within {MAX_EXPRESSION} bytes"
    ))
}

/// The text of an expression's value.
fn evaluate(engine: &Environment<'_>, text: &str, context: &Value) -> Result<String, String> {
    let expression = engine.compile_expression_owned(text).map_err(told)?;
    let unknown = expression.undeclared_variables(false);
    if let Some(unknown) = unknown
        .iter()
        .filter(|name| !NAMES.contains(&name.as_str()))
        .min()
    {
        return Err(format!("there is no {unknown:?}, only {}", NAMES.join(", ")));
    }
    let value = expression.eval(context.clone()).map_err(told)?;
    match value.kind() {
        ValueKind::String | ValueKind::Number => Ok(value.to_string()),
        // A list may stand for more than fits in memory, and `False` is no text that anybody would want.
        other => Err(format!("it gives a value of kind {other}, not a text")),
    }
}

fn told(error: Error) -> String {
    match error.kind() {
        ErrorKind::OutOfFuel => "it is too much work, or gives too much text".to_owned(),
        kind => error
            .detail()
            .map_or_else(|| kind.to_string(), |detail| format!("{kind}: {detail}")),
    }
}

fn context(values: &Values<'_>) -> Value {
    let local = values.fire_time.with_timezone(&values.zone);
    context! {
        name => values.name,
        task_type => values.task_type,
        task_id => values.task_id,
        attempt_id => values.task_id,
        fire_time => values.fire_time.to_rfc3339_opts(SecondsFormat::AutoSi, true),
        scheduled_time => local.to_rfc3339_opts(SecondsFormat::AutoSi, false),
        scheduled_date => local.format("%Y-%m-%d").to_string(),
        zone => values.zone.name(),
    }
}

/// An engine that knows nothing but four filters.
fn engine<'a>() -> Environment<'a> {
    let mut engine = Environment::empty();
    engine.set_undefined_behavior(UndefinedBehavior::Strict);
    engine.set_auto_escape_callback(|_| AutoEscape::None);
    engine.set_recursion_limit(MAX_DEPTH);
    engine.set_fuel(Some(FUEL));
    engine.add_filter("upper", |text: &str| text.to_uppercase());
    engine.add_filter("lower", |text: &str| text.to_lowercase());
    engine.add_filter("date", dates::date);
    engine.add_filter("add_days", dates::add_days);
    engine
}

#[cfg(test)]
mod tests;
