//! What in a payload breaks its contract. Names of fields may stand here, values never.

use std::fmt;

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// JSON pointer into the payload; of what is missing, where it should stand; empty for the whole. Keys over 64
    /// characters are cut, and what would break a log line is U+FFFD.
    pub pointer: String,
    /// The rule that is broken.
    pub rule: ValueRule,
    /// What is expected there. It may quote the contract, and never the payload.
    pub text: String,
}

/// The rules a payload can break, a closed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ValueRule {
    /// The payload is no JSON text within the limits, or has a key twice.
    Unreadable,
    /// A value is of another type than `type` allows.
    Type,
    /// A value is none of `enum`, or not the `const`.
    Enum,
    /// A text is shorter than `minLength` or longer than `maxLength`.
    Length,
    /// A text doesn't match `pattern`.
    Pattern,
    /// A text hasn't the form that `format` names.
    Format,
    /// A number is outside of its bounds.
    Range,
    /// An array has too few or too many items.
    Items,
    /// An array has a value twice.
    Unique,
    /// A required member is missing.
    Required,
    /// A member that the contract doesn't know.
    UnknownField,
    /// An object has too few or too many members.
    Properties,
    /// No branch of `anyOf` takes the value, or nothing may stand here.
    AnyOf,
    /// A double doesn't hold the number as it is written.
    NumberNotExact,
    /// A text holds U+0000 or half of a surrogate pair.
    Text,
}

impl ValueRule {
    /// Its name in output and vectors, snake_case.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unreadable => "unreadable",
            Self::Type => "type",
            Self::Enum => "enum",
            Self::Length => "length",
            Self::Pattern => "pattern",
            Self::Format => "format",
            Self::Range => "range",
            Self::Items => "items",
            Self::Unique => "unique",
            Self::Required => "required",
            Self::UnknownField => "unknown_field",
            Self::Properties => "properties",
            Self::AnyOf => "any_of",
            Self::NumberNotExact => "number_not_exact",
            Self::Text => "text",
        }
    }
}

impl fmt::Display for ValueRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.pointer.is_empty() {
            "payload"
        } else {
            &self.pointer
        };
        write!(f, "{place}: {} ({})", self.text, self.rule)
    }
}
