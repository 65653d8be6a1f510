//! When a schedule fires next.

use chrono::{DateTime, Utc};

/// A schedule: an expression in a time zone.
#[derive(Clone, Debug)]
pub struct Schedule {
    zone: chrono_tz::Tz,
}

/// Why a schedule can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CronError {
    /// Not an IANA zone.
    #[error("unknown zone")]
    UnknownZone,
}

impl Schedule {
    /// Parses `expression` (5 or 6 fields, or a macro such as `@daily`) for an IANA `zone`.
    pub fn parse(_expression: &str, _zone: &str) -> Result<Self, CronError> {
        unimplemented!()
    }

    /// The first instant strictly after `after`; `None` if there is none.
    pub fn next_after(&self, _after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        unimplemented!()
    }

    /// The zone.
    pub fn zone(&self) -> chrono_tz::Tz {
        self.zone
    }
}
