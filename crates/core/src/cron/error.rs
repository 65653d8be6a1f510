//! Why a schedule can't be used, in words that say what to write instead.

use std::fmt;

use super::MAX_EXPRESSION_BYTES;

/// Why a schedule can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CronError {
    /// Longer than [`MAX_EXPRESSION_BYTES`].
    #[error(
        "cron expression has {bytes} bytes; at most {MAX_EXPRESSION_BYTES}: split it into several schedules"
    )]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// Neither 5 nor 6 fields.
    #[error(
        "cron expression has {found} fields; write 5 (minute hour day-of-month month day-of-week) or 6 (second first)"
    )]
    FieldCount {
        /// How many it has.
        found: usize,
    },
    /// A field can't be read, or would fire otherwise than it looks.
    #[error("{field} field {text:?}: {reason}")]
    Field {
        /// Which field.
        field: FieldName,
        /// The field as written, cut to 64 characters.
        text: String,
        /// What is wrong with it and what is allowed.
        reason: String,
    },
    /// Not one of the macros.
    #[error("macro {text:?} is not offered: use @yearly, @monthly, @weekly, @daily, @hourly, or 5 fields")]
    Macro {
        /// The macro as written, cut to 64 characters.
        text: String,
    },
    /// No date in the calendar matches.
    #[error("cron expression {text:?} can never fire: no date matches its day and month")]
    NeverFires {
        /// The expression.
        text: String,
    },
    /// Not the name of a zone.
    #[error("unknown time zone {zone:?}: {advice}")]
    UnknownZone {
        /// The zone as written, cut to 64 characters.
        zone: String,
        /// What to write instead.
        advice: String,
    },
}

/// A field of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldName {
    /// 0-59; only in expressions of six fields.
    Second,
    /// 0-59.
    Minute,
    /// 0-23.
    Hour,
    /// 1-31.
    DayOfMonth,
    /// 1-12.
    Month,
    /// 0-7.
    DayOfWeek,
}

impl fmt::Display for FieldName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::DayOfMonth => "day-of-month",
            Self::Month => "month",
            Self::DayOfWeek => "day-of-week",
        })
    }
}

impl CronError {
    pub(super) fn unknown_zone(zone: &str) -> Self {
        let same = chrono_tz::TZ_VARIANTS
            .iter()
            .find(|known| known.name().eq_ignore_ascii_case(zone));
        let advice = match same {
            Some(known) => format!("did you mean {:?}?", known.name()),
            None => "use a name from the IANA database, e.g. \"Europe/Berlin\" or \"UTC\"".to_owned(),
        };
        Self::UnknownZone {
            zone: cut(zone),
            advice,
        }
    }
}

/// At most 64 characters of outside text, so that an error stays readable.
pub(super) fn cut(text: &str) -> String {
    text.chars().take(64).collect()
}
