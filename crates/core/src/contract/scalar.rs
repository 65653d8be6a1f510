//! A value of `enum` or `const`: a text, a number, a truth value or null. Objects and arrays are refused there, because
//! no two languages compare them alike.
//!
//! May import: `json_text`, `schema` (types).

use super::schema::Types;
use crate::json_text::{Decimal, Node};

/// A value without parts.
#[derive(Clone, Debug)]
pub(crate) enum Scalar {
    Text(Box<str>),
    /// By value, and as written in the contract.
    Number(Decimal, Box<str>),
    /// `true`, `false` or `null`.
    Word(Box<str>),
}

impl Scalar {
    /// The value of `node`, if it is one without parts and without half of a surrogate pair.
    pub(crate) fn of(node: &Node<'_>) -> Option<Self> {
        match node {
            Node::Str(_) => node.as_string().map(|text| Self::Text(text.into())),
            Node::Number(text) => Some(Self::Number(Decimal::of(text), text.as_ref().into())),
            Node::Word(word) => Some(Self::Word((*word).into())),
            Node::Object(..) | Node::Array(..) => None,
        }
    }

    /// Whether `node` is this value, however it is written.
    pub(crate) fn is(&self, node: &Node<'_>) -> bool {
        match (self, node) {
            (Self::Text(text), Node::Str(_)) => node.as_string().is_some_and(|found| *found == **text),
            (Self::Number(value, text), Node::Number(found)) => {
                **text == **found || *value == Decimal::of(found)
            }
            (Self::Word(word), Node::Word(found)) => **word == **found,
            _ => false,
        }
    }

    /// Every type that a text of this value can have: 1 may be written 1.0.
    pub(crate) fn types(&self) -> Types {
        match self {
            Self::Text(_) => Types::STRING,
            Self::Number(..) => Types::NUMBER,
            Self::Word(word) if **word == *"null" => Types::NULL,
            Self::Word(_) => Types::BOOLEAN,
        }
    }

    /// As JSON.
    pub(crate) fn literal(&self) -> String {
        match self {
            Self::Text(text) => Node::string(text).to_string(),
            Self::Number(_, text) | Self::Word(text) => text.to_string(),
        }
    }
}
