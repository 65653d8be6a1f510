//! Why a text is no contract that can be enforced: place, problem, and in the problem what to write instead.

use std::fmt;

use super::pattern::PatternError;
use crate::{envelope::Violation, json_text::PointerError};

/// The first thing that keeps a contract from being read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {problem}", Shown(.pointer))]
pub struct ContractError {
    /// JSON pointer into the contract; empty for the whole.
    pub pointer: String,
    /// What is wrong there.
    pub problem: Problem,
}

/// What is wrong at one place of a contract.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// No JSON text within the limits; the pointer is the violation's.
    #[error("{}", .0.advice)]
    Unreadable(Violation),
    /// A schema that is neither an object nor a truth value; the root must be an object.
    #[error("a schema is an object (or true or false inside of another)")]
    NotASchema,
    /// A keyword that isn't enforced here, so a contract can't rely on it.
    #[error("\"{keyword}\" is not enforced here; {advice}")]
    UnknownKeyword {
        /// The keyword, cut if long.
        keyword: String,
        /// What to write instead.
        advice: &'static str,
    },
    /// A keyword whose value is of the wrong kind.
    #[error("\"{keyword}\" is {expected}")]
    WrongValue {
        /// The keyword.
        keyword: &'static str,
        /// What it may be.
        expected: &'static str,
    },
    /// A keyword that says nothing about the types allowed here.
    #[error("\"{keyword}\" says something about {about}, and \"type\" here allows none")]
    Misplaced {
        /// The keyword.
        keyword: &'static str,
        /// The type it is for, in the plural.
        about: &'static str,
    },
    /// Two keywords that can't stand together.
    #[error("\"{0}\" and \"{1}\" can't stand together; {2}")]
    Together(&'static str, &'static str, &'static str),
    /// A `$schema` other than 2020-12.
    #[error("\"$schema\" is https://json-schema.org/draft/2020-12/schema, or left out")]
    OtherDialect,
    /// A `$ref` that leads out of this file. Nothing is ever fetched or opened.
    #[error("only \"#/$defs/NAME\" can be referred to; nothing outside of this file is ever read")]
    RemoteReference,
    /// A `$ref` to a definition that isn't there.
    #[error("there is no such definition in \"$defs\"")]
    UnknownReference,
    /// A `$ref` that comes back to itself: payloads have at most five levels, so write them out.
    #[error("this reference leads back to itself; payloads end after five levels, so write the levels out")]
    Circle,
    /// The pattern isn't the same in all languages, or too large.
    #[error("\"pattern\": {0}")]
    Pattern(PatternError),
    /// A pointer in `x-tidegate` is none, or names the whole payload.
    #[error("\"{0}\" is no pointer to a field: {1}")]
    Pointer(&'static str, PointerError),
    /// The schema, its references written out, is over a limit.
    #[error("{what}: at most {most}")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// The limit.
        most: usize,
    },
}

impl ContractError {
    pub(crate) fn new(pointer: impl Into<String>, problem: Problem) -> Self {
        Self {
            pointer: pointer.into(),
            problem,
        }
    }
}

impl Problem {
    /// Its name in output and vectors, snake_case.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Unreadable(violation) => violation.rule.as_str(),
            Self::NotASchema => "not_a_schema",
            Self::UnknownKeyword { .. } => "unknown_keyword",
            Self::WrongValue { .. } => "wrong_value",
            Self::Misplaced { .. } => "misplaced",
            Self::Together(..) => "together",
            Self::OtherDialect => "other_dialect",
            Self::RemoteReference => "remote_reference",
            Self::UnknownReference => "unknown_reference",
            Self::Circle => "circle",
            Self::Pattern(_) => "pattern",
            Self::Pointer(..) => "pointer",
            Self::TooMany { .. } => "too_many",
        }
    }
}

/// A pointer for people: the empty one has a name.
pub(crate) struct Shown<'p>(pub(crate) &'p str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "contract" } else { self.0 })
    }
}
