//! What a contract does that will hurt its readers, though it can be enforced.

use std::fmt;

use super::error::Shown;

/// One of our rules on contracts that this one breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// JSON pointer into the contract; of what is missing, where it should stand.
    pub pointer: String,
    /// The rule.
    pub rule: LintRule,
    /// What is wrong.
    pub what: String,
    /// What to write instead.
    pub advice: &'static str,
}

/// Our rules on top of JSON Schema, a closed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LintRule {
    /// The payload is an object and nothing else.
    RootObject,
    /// A schema says which type it takes.
    TypeMissing,
    /// An object takes no members that aren't named.
    OpenObject,
    /// A required member is named among the properties.
    RequiredUnknown,
    /// An integer stays within 2^53, or is a text.
    IntegerSize,
    /// An amount of money is a text.
    Money,
    /// A time is RFC 3339 with offset, a day is a date.
    Time,
    /// An enumeration has texts.
    EnumText,
    /// A payload has at most five levels.
    Depth,
    /// The idempotency field is named.
    IdempotencyMissing,
    /// The idempotency field exists, is required, and is a text or an integer.
    IdempotencyField,
    /// Somebody answers for the contract.
    Owner,
    /// There is an example.
    ExampleMissing,
    /// Every example is valid.
    ExampleInvalid,
}

impl LintRule {
    /// Its name in output and vectors, snake_case.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RootObject => "root_object",
            Self::TypeMissing => "type_missing",
            Self::OpenObject => "open_object",
            Self::RequiredUnknown => "required_unknown",
            Self::IntegerSize => "integer_size",
            Self::Money => "money",
            Self::Time => "time",
            Self::EnumText => "enum_text",
            Self::Depth => "depth",
            Self::IdempotencyMissing => "idempotency_missing",
            Self::IdempotencyField => "idempotency_field",
            Self::Owner => "owner",
            Self::ExampleMissing => "example_missing",
            Self::ExampleInvalid => "example_invalid",
        }
    }

    /// What to write instead.
    pub(crate) const fn advice(self) -> &'static str {
        match self {
            Self::RootObject => "write \"type\": \"object\" at the top",
            Self::TypeMissing => "name the type, such as \"type\": \"string\"",
            Self::OpenObject => {
                "write \"additionalProperties\": false: a misspelt member is refused then, and a new one can't \
                 mean two things; a map is an array of {\"key\", \"value\"}"
            }
            Self::RequiredUnknown => "add it to \"properties\", or take it out of \"required\"",
            Self::IntegerSize => {
                "set \"minimum\" and \"maximum\" within 9007199254740991 on both sides, or send a text with the pattern \
                 ^-?[0-9]{1,19}$: most languages read JSON numbers as doubles"
            }
            Self::Money => {
                "send a text with a pattern such as ^-?[0-9]{1,15}\\.[0-9]{2}$, with the currency beside it"
            }
            Self::Time => {
                "write \"type\": \"string\" with \"format\": \"date-time\" (RFC 3339 with offset), or \"date\" for a day; \
                 a length of time is an integer whose name ends in its unit, such as timeoutMs"
            }
            Self::EnumText => {
                "write the values as texts: a number says nothing to who reads it, and can't be renamed"
            }
            Self::Depth => "flatten it: payloads end after five levels, the payload being the first",
            Self::IdempotencyMissing => {
                "name the field that makes a task the same task: \"x-tidegate\": {\"idempotencyKey\": \"/orderId\"}"
            }
            Self::IdempotencyField => {
                "name a field that every payload has, of type string or integer, required as is each object above it"
            }
            Self::Owner => "name the team: \"x-tidegate\": {\"owner\": \"order-team\"}",
            Self::ExampleMissing => "write one payload as it would be sent into \"examples\"",
            Self::ExampleInvalid => "correct the example or the schema",
        }
    }
}

impl fmt::Display for LintRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} ({}); {}",
            Shown(&self.pointer),
            self.what,
            self.rule,
            self.advice
        )
    }
}
