//! The filters on dates and times: `date(format)` and `add_days(n)`.
//!
//! May import: chrono, minijinja.

use std::fmt::Write as _;

use chrono::{DateTime, FixedOffset, NaiveDate, SecondsFormat, TimeDelta};
use minijinja::{Error, ErrorKind};

/// What may stand in a format: what chrono gives for dates in any language.
const LETTERS: &str = "YCyGgmbBhdejaAwuUWVHIMSpRTFDsz%f";

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
pub(super) fn date(text: &str, format: &str) -> Result<String, Error> {
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
            if !letter.is_some_and(|letter| LETTERS.contains(letter)) {
                return Err(refused(format!(
                    "format {format:?}: after % may stand {LETTERS}, with -, _ or 0 before it"
                )));
            }
        }
    }
    Ok(())
}

/// `scheduled_date | add_days(-1)`: calendar days; an instant keeps its time of day and its offset.
pub(super) fn add_days(text: &str, days: i32) -> Result<String, Error> {
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

pub(super) fn refused(why: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, why)
}
