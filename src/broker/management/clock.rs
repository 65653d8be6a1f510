//! The clock of the broker's machine, by the `Date` of an answer: whole seconds, and all that any protocol of it tells.
//!
//! May import: chrono, reqwest.

use chrono::{DateTime, Utc};
use reqwest::{Method, header::DATE};

use super::{Management, ManagementError, answered, reason};

/// The time of the broker's machine, in whole seconds, between two readings of ours.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Ours before the question.
    pub before: DateTime<Utc>,
    /// Theirs.
    pub there: DateTime<Utc>,
    /// Ours after the answer.
    pub after: DateTime<Utc>,
}

impl Management {
    /// Whether the API lets this user in. It needs the tag `management`, or one that includes it.
    ///
    /// # Errors
    /// [`ManagementError::Denied`] if not, and as for every other call.
    pub async fn enter(&self) -> Result<(), ManagementError> {
        let doing = "GET whoami";
        answered(doing, self.request(Method::GET, "whoami"))
            .await
            .map(drop)
    }

    /// The broker's clock; `None` if the answer has no date, as behind some proxies.
    ///
    /// # Errors
    /// If nobody answers.
    pub async fn clock(&self) -> Result<Option<Clock>, ManagementError> {
        let before = Utc::now();
        let response = self.request(Method::GET, "whoami").send().await;
        let after = Utc::now();
        let response = response.map_err(|why| ManagementError::Unavailable {
            doing: "GET whoami".to_owned(),
            reason: reason(&why),
        })?;
        let date = response.headers().get(DATE).and_then(|date| date.to_str().ok());
        let there = date.and_then(|date| DateTime::parse_from_rfc2822(date).ok());
        Ok(there.map(|there| Clock {
            before,
            there: there.to_utc(),
            after,
        }))
    }
}
