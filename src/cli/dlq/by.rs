//! Who changes dead letters: `--as`, or who is logged in.
//!
//! May import: `deadletter::discard`.

use super::{Failure, usage};
use crate::deadletter::discard::{Reason, ReasonError};

/// Who does it.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct By {
    /// Who does it, for the audit log [default: $USER]
    #[arg(long = "as", value_name = "NAME")]
    who: Option<String>,
}

impl By {
    /// Who, and why.
    pub(in crate::cli) fn reason(&self, why: &str) -> Result<Reason, Failure> {
        let logged_in = || std::env::var("USER").or_else(|_| std::env::var("LOGNAME"));
        let who = self.who.clone().or_else(|| logged_in().ok()).unwrap_or_default();
        Reason::new(&who, why).map_err(|error| match error {
            ReasonError::Who => usage(error, "--as", "name yourself by --as NAME"),
            ReasonError::Why => usage(
                error,
                "--reason",
                "say why by --reason TEXT; it is kept in the audit log",
            ),
        })
    }
}
