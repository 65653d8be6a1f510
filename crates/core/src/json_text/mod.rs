//! A JSON text as a tree that keeps every byte: what is not edited comes out as it came in.
//!
//! Numbers stay digits, strings keep their escapes, white space and the order of keys stay where they are. A number
//! beyond 2^53 that passes through here is the same number afterwards, which no tree of doubles can say.
//!
//! Bytes come from anybody: size and depth have limits, nothing recurses deeper than [`MAX_DEPTH`], and duplicate
//! keys are refused, because no two languages agree on which of them counts. Errors are the envelope's own: place, rule,
//! advice, never a value.
//!
//! May import: `envelope` (scanner, pointers, errors), `printable`, serde_json.

mod decimal;
mod difference;
mod edit;
mod equal;
mod locate;
mod node;
mod parse;
mod pointer;
mod pretty;

use std::fmt;

pub(crate) use decimal::Decimal;
pub use difference::Difference;
pub use edit::EditError;
pub(crate) use node::Node;
pub use pointer::{Pointer, PointerError};

use crate::envelope::Violation;

/// Ceiling of every depth limit, so that no limit can overflow the stack.
pub const MAX_DEPTH: usize = 128;

/// Limits on a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest text in bytes, also after an edit.
    pub max_bytes: usize,
    /// Most containers inside each other, also after an edit. Values above [`MAX_DEPTH`] count as that.
    pub max_depth: usize,
}

impl Limits {
    /// 256 KiB, four times the largest body that is accepted, and 128 levels.
    pub const fn standard() -> Self {
        Self {
            max_bytes: 256 * 1024,
            max_depth: MAX_DEPTH,
        }
    }

    pub(crate) fn depth(&self) -> usize {
        self.max_depth.min(MAX_DEPTH)
    }
}

/// A JSON text, of any one value. `Display` writes the text; `Debug` shows its length only.
#[derive(Clone)]
pub struct Document<'a> {
    /// White space before and after the value.
    gaps: (&'a str, &'a str),
    root: Node<'a>,
}

impl<'a> Document<'a> {
    /// Reads `text`.
    ///
    /// # Errors
    /// The first broken rule: too large, not UTF-8, not JSON, too deep, a duplicate key, or a key with half of a
    /// surrogate pair, which no pointer could name. Values may hold such halves, and U+0000: a text that was cut in
    /// the middle of a character is a thing to repair.
    pub fn parse(text: &'a [u8], limits: &Limits) -> Result<Self, Violation> {
        parse::document(text, limits)
    }

    /// The text for people: two spaces per level, numbers and strings as they were written, but for characters that a
    /// terminal would obey, which are escaped. The result is a JSON text of the same value.
    pub fn pretty(&self) -> String {
        pretty::text(&self.root)
    }

    /// The text of the value at `pointer`, without the white space around it.
    pub fn text_at(&self, pointer: &Pointer) -> Option<String> {
        self.root.at(pointer.steps()).map(Node::to_string)
    }

    /// The string at `pointer`, escapes decoded; `None` if there is none, or it holds half of a surrogate pair.
    pub fn string_at(&self, pointer: &Pointer) -> Option<String> {
        self.root
            .at(pointer.steps())?
            .as_string()
            .map(|text| text.into_owned())
    }

    /// Whether both texts are the same value by RFC 6902: numbers by value, strings by content, keys in any order.
    pub fn same_value(&self, other: &Document<'_>) -> bool {
        self.root.same_value(&other.root)
    }

    pub(crate) fn root(&self) -> &Node<'a> {
        &self.root
    }

    pub(crate) fn root_mut(&mut self) -> &mut Node<'a> {
        &mut self.root
    }
}

impl fmt::Display for Document<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", self.gaps.0, self.root, self.gaps.1)
    }
}

impl fmt::Debug for Document<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Document({} bytes)", self.root.bytes())
    }
}
