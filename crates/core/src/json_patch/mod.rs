//! JSON Patch (RFC 6902) over a text that keeps every byte it is not told to change.
//!
//! All or nothing: a patch that fails at its last operation has changed nothing. What the patch's own text says is put
//! in as it stands there, so that `{"value": 1.10}` writes `1.10`.
//!
//! Both texts come from people who repair in a hurry, or from scripts: the number of operations, and the size and depth of
//! what they make, are limited, since thirty copies of the whole into itself would be a gigabyte.
//!
//! May import: `json_text`, `envelope` (errors).

mod error;
mod read;

pub use error::{PatchError, Problem};

use crate::json_text::{Document, EditError, Limits, Node, Pointer};

/// A patch, checked as far as it can be without a text to apply it to.
#[derive(Clone, Debug)]
pub struct Patch<'p> {
    operations: Vec<Operation<'p>>,
}

/// One operation; `Operation::parse` has checked that nothing it needs is missing.
#[derive(Clone, Debug)]
enum Operation<'p> {
    Add(Pointer, Node<'p>),
    Remove(Pointer),
    Replace(Pointer, Node<'p>),
    Move { from: Pointer, to: Pointer },
    Copy { from: Pointer, to: Pointer },
    Test(Pointer, Node<'p>),
}

impl<'p> Patch<'p> {
    /// Most operations in one patch.
    pub const MAX_OPERATIONS: usize = 256;

    /// Reads a patch: a JSON array of operations, as text.
    ///
    /// # Errors
    /// The first thing wrong with it; see [`PatchError`].
    pub fn parse(text: &'p [u8]) -> Result<Self, PatchError> {
        read::patch(text).map(|operations| Self { operations })
    }

    /// How many operations it has.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether it has none, and so changes nothing.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// What the patch makes of `document`.
    ///
    /// # Errors
    /// The first operation that does not fit, by its number from 0, its pointer and why; nothing has changed then.
    pub fn apply<'a>(&self, document: &Document<'a>, limits: &Limits) -> Result<Document<'a>, PatchError>
    where
        'p: 'a,
    {
        let mut edited = document.clone();
        for (index, operation) in self.operations.iter().enumerate() {
            step(&mut edited, operation, limits).map_err(|(pointer, problem)| PatchError::Operation {
                index,
                pointer: pointer.to_string(),
                problem,
            })?;
        }
        Ok(edited)
    }
}

type Failed<'o> = (&'o Pointer, Problem);

fn step<'o, 'a, 'p: 'a>(
    document: &mut Document<'a>,
    operation: &'o Operation<'p>,
    limits: &Limits,
) -> Result<(), Failed<'o>> {
    let at = |pointer: &'o Pointer| move |why: EditError| (pointer, Problem::DoesNotFit(why));
    match operation {
        Operation::Add(to, value) => document.add(to, value.clone(), limits).map_err(at(to)),
        Operation::Replace(to, value) => document.replace(to, value.clone(), limits).map_err(at(to)),
        Operation::Remove(from) => document.remove(from).map(|_| ()).map_err(at(from)),
        Operation::Move { from, to } => {
            if from.is_above(to) {
                return Err((to, Problem::IntoItself));
            }
            if from == to {
                // Taking it out and putting it back would move a member to the end.
                return document.get(from).map(|_| ()).map_err(at(from));
            }
            let value = document.remove(from).map_err(at(from))?;
            document.add(to, value, limits).map_err(at(to))
        }
        Operation::Copy { from, to } => {
            let value = document.get(from).map_err(at(from))?;
            // Before the copy is made, not after.
            if value.bytes() > limits.max_bytes {
                return Err((from, Problem::DoesNotFit(EditError::TooLarge(limits.max_bytes))));
            }
            let value = value.clone();
            document.add(to, value, limits).map_err(at(to))
        }
        Operation::Test(place, expected) => {
            let found = document.get(place).map_err(at(place))?;
            if found.same_value(expected) {
                Ok(())
            } else {
                Err((place, Problem::TestFailed))
            }
        }
    }
}
