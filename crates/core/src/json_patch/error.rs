//! Why a patch is none, or does not fit. No error holds a value of the patched text.

use crate::{
    envelope::Violation,
    json_text::{EditError, PointerError},
};

use super::Patch;

/// Why a patch can't be read or applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch is no JSON text within the limits; the violation's pointer leads into the patch.
    #[error("the patch can't be read: {0}")]
    Unreadable(Violation),
    /// The patch is JSON, but no array.
    #[error("a patch is an array of operations, such as [{{\"op\":\"remove\",\"path\":\"/payload/x\"}}]")]
    NotAnArray,
    /// More operations than allowed.
    #[error(
        "the patch has {found} operations, at most {} are allowed",
        Patch::MAX_OPERATIONS
    )]
    TooMany {
        /// How many it has.
        found: usize,
    },
    /// One operation is wrong, or does not fit the text.
    #[error("operation {index} at {pointer:?}: {problem}")]
    Operation {
        /// Its number, 0 for the first.
        index: usize,
        /// Its `path`, or its `from` where that is what's wrong; empty where there is none to name.
        pointer: String,
        /// What is wrong.
        problem: Problem,
    },
}

impl PatchError {
    /// Its name in the vectors, snake_case.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Unreadable(_) => "unreadable",
            Self::NotAnArray => "not_an_array",
            Self::TooMany { .. } => "too_many",
            Self::Operation { problem, .. } => problem.as_str(),
        }
    }
}

/// What is wrong with one operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// It is no object.
    #[error("an operation is an object")]
    NotAnObject,
    /// `op` is missing, or none of the six.
    #[error("\"op\" is one of add, remove, replace, move, copy, test")]
    UnknownOp,
    /// It needs a member that is missing or of another type.
    #[error("\"{0}\" is missing, or not of its type")]
    Missing(&'static str),
    /// `path` or `from` is no pointer.
    #[error("\"{0}\" is no pointer: {1}")]
    BadPointer(&'static str, PointerError),
    /// The text has no such place, or the result would break a limit.
    #[error("{0}")]
    DoesNotFit(EditError),
    /// A value would be moved into itself.
    #[error("a value can't be moved into itself")]
    IntoItself,
    /// The value there is another than the test expects.
    #[error("the value there is not the expected one")]
    TestFailed,
}

impl Problem {
    /// Its name in the vectors, snake_case.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::NotAnObject => "not_an_object",
            Self::UnknownOp => "unknown_op",
            Self::Missing(_) => "missing",
            Self::BadPointer(..) => "bad_pointer",
            Self::DoesNotFit(why) => why.as_str(),
            Self::IntoItself => "into_itself",
            Self::TestFailed => "test_failed",
        }
    }
}
