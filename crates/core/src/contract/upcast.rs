//! A payload of an older version as one of a newer, by declared steps. Only what a step names changes; numbers keep every
//! digit, and white space stays.
//!
//! A step that has nothing to do does nothing: a default for a member that is there, a rename or removal of one that isn't,
//! anything inside of an object that isn't. Steps lead through objects, never into an array. Whether the result is valid
//! is checked at the end, so a step that did nothing where it should have is seen.
//!
//! May import: `json_text`, `catalogue`, `extension`, `validate`.

use super::{catalogue::Versions, extension::Upcast, validate, violation::Violation};
use crate::json_text::{Document, EditError, Limits, Node, Pointer};

/// Limits on a payload on its way; the envelope's own are tighter.
const LIMITS: Limits = Limits {
    max_bytes: 256 * 1024,
    max_depth: 64,
};

/// Why a payload can't become one of another version. No error holds a value of the payload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpcastError {
    /// There is no contract of this version.
    #[error("there is no contract of version {0}")]
    UnknownVersion(u32),
    /// To an older version: what a new member means, an old reader can't know.
    #[error("version {from} is newer than {to}, and payloads are never taken back to an older version")]
    Backwards {
        /// The payload's version.
        from: u32,
        /// The wanted one.
        to: u32,
    },
    /// A contract on the way has no `upcasts`.
    #[error(
        "the contract of version {0} has no \"upcasts\" in x-tidegate, so nothing says how a payload gets there"
    )]
    NotDeclared(u32),
    /// The payload is no JSON text.
    #[error("the payload can't be read: {0}")]
    Unreadable(Violation),
    /// A member can't be renamed, since the new name is taken.
    #[error("version {version}: {from} can't become {to}, which is there already")]
    Taken {
        /// The contract with the step.
        version: u32,
        /// The old name.
        from: String,
        /// The new name.
        to: String,
    },
    /// The payload would be over a limit.
    #[error("version {version}: at {pointer} {why}")]
    Limit {
        /// The contract with the step.
        version: u32,
        /// The member.
        pointer: String,
        /// The limit.
        why: EditError,
    },
    /// The result breaks the contract of the wanted version.
    #[error("the result is not valid: {}", .0.first().map(ToString::to_string).unwrap_or_default())]
    Invalid(Vec<Violation>),
}

impl UpcastError {
    /// Its name in the vectors, snake_case.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::UnknownVersion(_) => "unknown_version",
            Self::Backwards { .. } => "backwards",
            Self::NotDeclared(_) => "not_declared",
            Self::Unreadable(_) => "unreadable",
            Self::Taken { .. } => "taken",
            Self::Limit { .. } => "limit",
            Self::Invalid(_) => "invalid",
        }
    }
}

/// `payload` of version `from` as one of version `to`.
pub(crate) fn along(versions: &Versions, payload: &str, from: u32, to: u32) -> Result<String, UpcastError> {
    let known = |version| versions.get(version).ok_or(UpcastError::UnknownVersion(version));
    known(from)?;
    let target = known(to)?;
    if from > to {
        return Err(UpcastError::Backwards { from, to });
    }
    let mut document = validate::document(payload).map_err(UpcastError::Unreadable)?;
    for (version, contract) in versions.way(from, to) {
        let steps = contract.extension.upcasts.as_deref();
        for step in steps.ok_or(UpcastError::NotDeclared(version))? {
            take(&mut document, step, version)?;
        }
    }
    let violations = validate::violations(&target.schema, document.root());
    if violations.is_empty() {
        Ok(document.to_string())
    } else {
        Err(UpcastError::Invalid(violations))
    }
}

fn take<'a>(document: &mut Document<'a>, step: &'a Upcast, version: u32) -> Result<(), UpcastError> {
    let limit = |pointer: &Pointer, why| UpcastError::Limit {
        version,
        pointer: pointer.to_string(),
        why,
    };
    match step {
        Upcast::Default(at, value) => {
            // No object to put it into, or it is there.
            if above(document, at).is_none_or(|(object, name)| object.member(name).is_some()) {
                return Ok(());
            }
            // A slice of a contract that was read, so it always is JSON.
            let value = validate::document(value).map_err(UpcastError::Unreadable)?;
            let added = document.add(at, value.root().clone(), &LIMITS);
            added.map_err(|why| limit(at, why))
        }
        Upcast::Remove(at) => {
            if has(document, at) {
                document.remove(at).map_err(|why| limit(at, why))?;
            }
            Ok(())
        }
        Upcast::Rename(from, to) => {
            if !has(document, from) {
                return Ok(());
            }
            if has(document, to) {
                return Err(UpcastError::Taken {
                    version,
                    from: from.to_string(),
                    to: to.to_string(),
                });
            }
            let value = document.remove(from).map_err(|why| limit(from, why))?;
            document.add(to, value, &LIMITS).map_err(|why| limit(to, why))
        }
    }
}

/// The object that holds the member at `pointer`, or would hold it, and the member's name.
fn above<'d, 'p>(document: &'d Document<'_>, pointer: &'p Pointer) -> Option<(&'d Node<'d>, &'p str)> {
    let (name, steps) = pointer.steps().split_last()?;
    let mut node: &Node<'_> = document.root();
    for step in steps {
        node = node.member(step)?;
    }
    matches!(node, Node::Object(..)).then_some((node, name))
}

fn has(document: &Document<'_>, pointer: &Pointer) -> bool {
    above(document, pointer).is_some_and(|(object, name)| object.member(name).is_some())
}
