//! The forms of text that `format` names, each checked to the letter. JSON Schema leaves the check to whoever reads it;
//! here it is always made, so only forms that are checked may be named.
//!
//! May import: `envelope` (times), chrono.

use chrono::NaiveDate;

use crate::envelope::time;

/// A form of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    DateTime,
    Date,
    Uuid,
}

impl Format {
    /// Every form, by its name.
    pub(crate) const ALL: [(&'static str, Self); 3] = [
        ("date-time", Self::DateTime),
        ("date", Self::Date),
        ("uuid", Self::Uuid),
    ];

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|f| f.1)
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::DateTime => "date-time",
            Self::Date => "date",
            Self::Uuid => "uuid",
        }
    }

    /// What the form is, for people.
    pub(crate) fn advice(self) -> &'static str {
        match self {
            Self::DateTime => "RFC 3339 with offset, such as 2025-04-02T12:00:01+08:00",
            Self::Date => "a day of the calendar, such as 2025-04-02",
            Self::Uuid => "a UUID, such as 0190b5a8-7f20-7f1b-ae7d-1234567890ab",
        }
    }

    /// Whether `text` has the form.
    pub(crate) fn takes(self, text: &str) -> bool {
        match self {
            Self::DateTime => time::parse(text).is_some(),
            Self::Date => is_date(text),
            Self::Uuid => is_uuid(text),
        }
    }
}

/// Digits where digits stand and hyphens between: chrono alone takes spaces and signs too.
fn is_date(text: &str) -> bool {
    let shape = text.len() == 10
        && text.bytes().enumerate().all(|(at, b)| match at {
            4 | 7 => b == b'-',
            _ => b.is_ascii_digit(),
        });
    shape && NaiveDate::parse_from_str(text, "%Y-%m-%d").is_ok()
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, b)| match at {
            8 | 13 | 18 | 23 => b == b'-',
            _ => b.is_ascii_hexdigit(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_checked_to_the_letter() {
        for (format, text, expected) in [
            (Format::DateTime, "2025-04-02T12:00:01+08:00", true),
            (Format::DateTime, "2025-04-02T12:00:01", false),
            (Format::DateTime, "1743595201", false),
            (Format::Date, "2024-02-29", true),
            (Format::Date, "2025-02-29", false),
            (Format::Date, "2025-4-2", false),
            (Format::Date, "+025-04-02", false),
            (Format::Date, "2025-04-02Z", false),
            (Format::Uuid, "0190b5a8-7f20-7F1B-ae7d-1234567890ab", true),
            (Format::Uuid, "0190b5a87f207f1bae7d1234567890ab", false),
            (Format::Uuid, "0190b5a8-7f20-7f1b-ae7d-1234567890ag", false),
            (Format::Uuid, "{190b5a8-7f20-7f1b-ae7d-1234567890a}", false),
        ] {
            assert_eq!(format.takes(text), expected, "{} {text}", format.as_str());
        }
        for (name, format) in Format::ALL {
            assert_eq!((format.as_str(), Format::named(name)), (name, Some(format)));
        }
    }
}
