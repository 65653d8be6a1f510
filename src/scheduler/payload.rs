//! A cron row's payload with the values of an occurrence filled in.
//!
//! May import: chrono, minijinja, serde_json. Pure. Only the JSON *string values* that contain `{{` or `{%` are
//! templates; keys, numbers and everything else stay byte for byte what they were. A template sees the values below
//! and nothing else: no file, no environment, no clock, no other template; the engine counts its steps and the bytes
//! it makes ([`FUEL`]), so no template costs more than a moment.
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

use std::{borrow::Cow, fmt::Write as _, ops::Range};

use chrono::{DateTime, FixedOffset, NaiveDate, SecondsFormat, TimeDelta, Utc};
use chrono_tz::Tz;
use minijinja::{
    AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, context, syntax::SyntaxConfig,
};
use serde::de::IgnoredAny;

/// Work that the templates of one payload may cost together: this many steps, or 64 times as many bytes.
const FUEL: u64 = 5_000;

/// Longest text that one template may give, and longest payload that is looked at.
const MAX_BYTES: usize = 64 * 1024;

/// Deepest nesting of expressions and blocks.
const MAX_DEPTH: usize = 50;

/// Most characters of a template that an error repeats.
const SHOWN: usize = 64;

/// What a template may call; chrono knows more, but not all of it for dates, and some of it for locales only.
const DATE_LETTERS: &str = "YCyGgmbBhdejaAwuUWVHIMSpRTFDsz%f";

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
    #[error("payload has {bytes} bytes; at most {MAX_BYTES}")]
    TooLong {
        /// How many.
        bytes: usize,
    },
    /// A template that can't be read, or fails.
    #[error("payload template {template:?}: {why}")]
    Template {
        /// Its text, cut.
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

#[derive(Clone, Debug)]
struct Template {
    /// Where its literal stands in the payload, quotes included.
    place: Range<usize>,
    /// The literal's value.
    source: String,
}

impl<'a> Payload<'a> {
    /// Reads `text`, JSON of any kind. A text without templates is taken as it is, JSON or not.
    pub fn parse(text: &'a str) -> Result<Self, PayloadError> {
        let mut templates = Vec::new();
        // Whatever has none of these has no template: a brace may be written as an escape.
        if ["{{", "{%", "\\u00"].iter().any(|sign| text.contains(sign)) {
            serde_json::from_str::<IgnoredAny>(text)?;
            if text.len() > MAX_BYTES {
                return Err(PayloadError::TooLong { bytes: text.len() });
            }
            for place in string_values(text) {
                let source: String = serde_json::from_str(&text[place.clone()])?;
                if source.contains("{{") || source.contains("{%") {
                    templates.push(Template { place, source });
                }
            }
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
        let local = values.fire_time.with_timezone(&values.zone);
        let context = context! {
            name => values.name,
            task_type => values.task_type,
            task_id => values.task_id,
            attempt_id => values.task_id,
            fire_time => values.fire_time.to_rfc3339_opts(SecondsFormat::AutoSi, true),
            scheduled_time => local.to_rfc3339_opts(SecondsFormat::AutoSi, false),
            scheduled_date => local.format("%Y-%m-%d").to_string(),
            zone => values.zone.name(),
        };
        let mut engine = engine();
        let mut fuel = FUEL;
        let mut filled = String::with_capacity(self.text.len() + 64);
        let mut copied = 0;
        for template in &self.templates {
            engine.set_fuel(Some(fuel));
            let (text, left) =
                render(&engine, &template.source, &context).map_err(|why| PayloadError::Template {
                    template: template.source.chars().take(SHOWN).collect(),
                    why,
                })?;
            fuel = left;
            filled.push_str(&self.text[copied..template.place.start]);
            filled.push_str(&serde_json::to_string(&text)?);
            copied = template.place.end;
        }
        filled.push_str(&self.text[copied..]);
        Ok(Cow::Owned(filled))
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

/// The text of one template, and the fuel that is left.
fn render(
    engine: &Environment<'_>,
    source: &str,
    context: &minijinja::Value,
) -> Result<(String, u64), String> {
    let template = engine.template_from_str(source).map_err(told)?;
    let unknown = template.undeclared_variables(false);
    if let Some(unknown) = unknown
        .iter()
        .filter(|name| !NAMES.contains(&name.as_str()))
        .min()
    {
        return Err(format!("there is no {unknown:?}, only {}", NAMES.join(", ")));
    }
    let rendered = template.render_captured(context.clone()).map_err(told)?;
    let left = rendered.state().fuel_levels().map_or(0, |(_, left)| left);
    let text = rendered.into_output();
    if text.len() > MAX_BYTES {
        return Err(format!("it gives {} bytes; at most {MAX_BYTES}", text.len()));
    }
    Ok((text, left))
}

fn told(error: Error) -> String {
    match error.kind() {
        ErrorKind::OutOfFuel => "it is too much work, or gives too much text".to_owned(),
        kind => error
            .detail()
            .map_or_else(|| kind.to_string(), |detail| format!("{kind}: {detail}")),
    }
}

/// An engine that knows nothing but the filters below.
fn engine<'a>() -> Environment<'a> {
    let mut engine = Environment::empty();
    engine.set_undefined_behavior(UndefinedBehavior::Strict);
    engine.set_auto_escape_callback(|_| AutoEscape::None);
    engine.set_recursion_limit(MAX_DEPTH);
    // A template may end in a line break, which is a part of the string.
    if let Ok(syntax) = SyntaxConfig::builder().keep_trailing_newline(true).build() {
        engine.set_syntax(syntax);
    }
    engine.add_filter("upper", |text: &str| text.to_uppercase());
    engine.add_filter("lower", |text: &str| text.to_lowercase());
    engine.add_filter("date", date);
    engine.add_filter("add_days", add_days);
    engine
}

/// A date, or an instant with its offset.
enum Time {
    Date(NaiveDate),
    Instant(DateTime<FixedOffset>),
}

impl Time {
    fn read(text: &str) -> Result<Self, Error> {
        if let Ok(date) = NaiveDate::parse_from_str(text, "%Y-%m-%d") {
            return Ok(Self::Date(date));
        }
        DateTime::parse_from_rfc3339(text).map(Self::Instant).map_err(|_| {
            refused(format!(
                "{text:?} is neither a date such as \"2026-12-24\" nor an instant such as \"2026-12-24T18:00:00Z\""
            ))
        })
    }
}

/// `fire_time | date("%Y/%m/%d")`.
fn date(text: &str, format: &str) -> Result<String, Error> {
    check_format(format)?;
    let time = Time::read(text)?;
    let mut out = String::new();
    match time {
        Time::Date(date) => write!(out, "{}", date.format(format)),
        Time::Instant(instant) => write!(out, "{}", instant.format(format)),
    }
    .map_err(|_| refused(format!("format {format:?} asks for what {text:?} doesn't have")))?;
    Ok(out)
}

fn check_format(format: &str) -> Result<(), Error> {
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        if letter == '%' {
            let letter = letters.next().map(|next| match next {
                // Padding, as in `%-d`.
                '-' | '_' | '0' => letters.next().unwrap_or_default(),
                other => other,
            });
            if !letter.is_some_and(|letter| DATE_LETTERS.contains(letter)) {
                return Err(refused(format!(
                    "format {format:?}: after % may stand {DATE_LETTERS}, with -, _ or 0 before it"
                )));
            }
        }
    }
    Ok(())
}

/// `scheduled_date | add_days(-1)`: calendar days; an instant keeps its time of day and its offset.
fn add_days(text: &str, days: i32) -> Result<String, Error> {
    let beyond = || refused(format!("{days} days from {text:?} are out of the calendar"));
    let delta = TimeDelta::days(days.into());
    match Time::read(text)? {
        Time::Date(date) => date
            .checked_add_signed(delta)
            .map(|date| date.format("%Y-%m-%d").to_string()),
        Time::Instant(instant) => instant
            .checked_add_signed(delta)
            .map(|instant| instant.to_rfc3339_opts(SecondsFormat::AutoSi, text.ends_with(['Z', 'z']))),
    }
    .ok_or_else(beyond)
}

fn refused(why: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, why)
}

#[cfg(test)]
mod tests;
