//! Whether a worker takes a payload of some version, as it is or up-cast, and what becomes of one that it doesn't take.
//! So no handler ever meets a payload it can't parse.
//!
//! May import: `catalogue`.

use std::{collections::BTreeSet, fmt};

use super::catalogue::{Versions, is_version};

/// The payload versions that a worker takes: 1 to 64 of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken(BTreeSet<u32>);

/// Why these are no versions to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TakenError {
    /// None at all.
    #[error("name at least one version, such as 1")]
    None,
    /// More than 64.
    #[error("at most {} versions are taken at a time", Taken::MAX)]
    TooMany,
    /// Outside of 1 to 2147483647.
    #[error("{0} is no version: they are 1 to 2147483647")]
    NoVersion(u32),
}

impl Taken {
    /// Most versions at a time.
    pub const MAX: usize = 64;

    /// Takes `versions`, in any order.
    ///
    /// # Errors
    /// None, too many, or one out of range.
    pub fn new(versions: impl IntoIterator<Item = u32>) -> Result<Self, TakenError> {
        let mut taken = BTreeSet::new();
        for version in versions {
            if !is_version(version) {
                return Err(TakenError::NoVersion(version));
            }
            taken.insert(version);
            if taken.len() > Self::MAX {
                return Err(TakenError::TooMany);
            }
        }
        if taken.is_empty() {
            return Err(TakenError::None);
        }
        Ok(Self(taken))
    }

    /// The versions, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().copied()
    }
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, version) in self.iter().enumerate() {
            write!(f, "{}{version}", if at == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// What is done with a payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The handler gets it as it is.
    AsItIs,
    /// The handler gets it as one of this version.
    Upcast(u32),
    /// It is newer than this worker: a newer worker may be about to start, so it is retried later.
    Later {
        /// For people.
        reason: String,
    },
    /// It is older than this worker takes, and nothing leads from there: it is parked as a dead letter.
    Park {
        /// For people.
        reason: String,
    },
}

impl Verdict {
    /// Its name in the vectors, snake_case.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::AsItIs => "as_it_is",
            Self::Upcast(_) => "upcast",
            Self::Later { .. } => "later",
            Self::Park { .. } => "park",
        }
    }
}

/// What a worker that takes `taken` does with a payload of `version`. An up-cast goes to the nearest version that is
/// taken and can be reached; without `versions` none can.
pub fn verdict(version: u32, taken: &Taken, versions: Option<&Versions>) -> Verdict {
    if taken.0.contains(&version) {
        return Verdict::AsItIs;
    }
    let mut newer = taken.0.range(version..).copied();
    let reached = newer.find(|to| versions.is_some_and(|versions| versions.can_upcast(version, *to)));
    if let Some(to) = reached {
        return Verdict::Upcast(to);
    }
    let this = format!("the payload has version {version}, this worker takes {taken}");
    if taken.0.range(version..).next().is_none() {
        let reason = format!("{this}; it waits for a worker that takes {version}");
        Verdict::Later { reason }
    } else {
        let reason = format!("{this}, and no contract declares up-casts from {version} to one of these");
        Verdict::Park { reason }
    }
}
