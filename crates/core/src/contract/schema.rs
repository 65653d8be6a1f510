//! The schema as a value: what `read` has understood, with every `$ref` written out, so that whoever walks it needs neither
//! the text nor a guard against circles.
//!
//! May import: `json_text` (numbers by value), `pattern`, `format`, `scalar`.

use super::{format::Format, pattern::Pattern, scalar::Scalar};
use crate::json_text::Decimal;

/// A schema at its place in the file.
#[derive(Clone, Debug)]
pub(crate) struct Schema {
    /// JSON pointer into the contract; of what stands in `$defs`, its place there.
    pub(crate) at: Box<str>,
    pub(crate) kind: Kind,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Value(Box<Rules>),
    /// At least one of these takes the value; with none, nothing is taken.
    AnyOf(Vec<Schema>),
}

/// What a value must be. Keywords of a type say nothing about values of another.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) types: Types,
    pub(crate) values: Option<Values>,
    pub(crate) text: TextRules,
    pub(crate) number: NumberRules,
    pub(crate) array: ArrayRules,
    pub(crate) object: ObjectRules,
}

/// `enum` or `const`.
#[derive(Clone, Debug)]
pub(crate) struct Values {
    pub(crate) keyword: &'static str,
    pub(crate) any_of: Vec<Scalar>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct TextRules {
    /// In characters (Unicode scalar values), as all lengths.
    pub(crate) min: u64,
    pub(crate) max: Option<u64>,
    pub(crate) pattern: Option<Pattern>,
    pub(crate) format: Option<Format>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct NumberRules {
    pub(crate) min: Option<Bound>,
    pub(crate) max: Option<Bound>,
}

#[derive(Clone, Debug)]
pub(crate) struct Bound {
    pub(crate) value: Decimal,
    /// As written in the contract.
    pub(crate) text: Box<str>,
    pub(crate) is_exclusive: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ArrayRules {
    pub(crate) items: Option<Box<Schema>>,
    pub(crate) min: u64,
    pub(crate) max: Option<u64>,
    pub(crate) is_unique: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ObjectRules {
    pub(crate) properties: Vec<(Box<str>, Schema)>,
    pub(crate) required: Vec<Box<str>>,
    pub(crate) additional: Additional,
    pub(crate) min: u64,
    pub(crate) max: Option<u64>,
}

/// `additionalProperties`.
#[derive(Clone, Debug, Default)]
pub(crate) enum Additional {
    #[default]
    Anything,
    Nothing,
    Like(Box<Schema>),
}

/// What an object's member of some name must be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Member<'s> {
    Anything,
    Nothing,
    Like(&'s Schema),
}

impl Schema {
    /// Takes nothing.
    pub(crate) fn is_nothing(&self) -> bool {
        matches!(&self.kind, Kind::AnyOf(branches) if branches.is_empty())
    }

    /// The rules, where it is no choice.
    pub(crate) fn rules(&self) -> Option<&Rules> {
        match &self.kind {
            Kind::Value(rules) => Some(rules),
            Kind::AnyOf(_) => None,
        }
    }
}

impl Rules {
    /// Takes any value of `types`.
    pub(crate) fn of(types: Types) -> Self {
        Self {
            types,
            values: None,
            text: TextRules::default(),
            number: NumberRules::default(),
            array: ArrayRules::default(),
            object: ObjectRules::default(),
        }
    }
}

impl ObjectRules {
    /// The property that is declared under `name`.
    pub(crate) fn property(&self, name: &str) -> Option<&Schema> {
        let found = self.properties.iter().find(|(known, _)| **known == *name);
        found.map(|(_, schema)| schema)
    }

    /// What holds for a member called `name`.
    pub(crate) fn member(&self, name: &str) -> Member<'_> {
        self.property(name)
            .map_or_else(|| self.additional.member(), Member::Like)
    }

    pub(crate) fn requires(&self, name: &str) -> bool {
        self.required.iter().any(|required| **required == *name)
    }
}

impl Additional {
    pub(crate) fn member(&self) -> Member<'_> {
        match self {
            Self::Anything => Member::Anything,
            Self::Nothing => Member::Nothing,
            Self::Like(schema) => Member::Like(schema),
        }
    }
}

/// A set of JSON types. `number` holds `integer`; an integer is a number that is written without fraction and exponent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Types(u8);

impl Types {
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const NULL: Self = Self(1);
    pub(crate) const BOOLEAN: Self = Self(2);
    pub(crate) const INTEGER: Self = Self(4);
    /// A number written with a fraction or an exponent: what `number` has beyond `integer`.
    pub(crate) const FRACTION: Self = Self(8);
    pub(crate) const NUMBER: Self = Self(4 | 8);
    pub(crate) const STRING: Self = Self(16);
    pub(crate) const ARRAY: Self = Self(32);
    pub(crate) const OBJECT: Self = Self(64);
    pub(crate) const ALL: Self = Self(127);

    const NAMES: [(&'static str, Self); 7] = [
        ("object", Self::OBJECT),
        ("array", Self::ARRAY),
        ("string", Self::STRING),
        ("number", Self::NUMBER),
        ("integer", Self::INTEGER),
        ("boolean", Self::BOOLEAN),
        ("null", Self::NULL),
    ];

    /// The type that JSON Schema calls `name`.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|t| t.1)
    }

    pub(crate) fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(crate) fn both(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether any type is in both.
    pub(crate) fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(crate) fn is_within(self, other: Self) -> bool {
        self.without(other).0 == 0
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The single types, `number` counting as one.
    pub(crate) fn singles(self) -> impl Iterator<Item = Self> {
        let parts = Self::NAMES.map(|(name, part)| if name == "integer" { Self::NONE } else { part });
        parts
            .into_iter()
            .map(move |part| self.both(part))
            .filter(|part| !part.is_empty())
    }

    /// `string or null`, for people.
    pub(crate) fn text(self) -> String {
        if self == Self::FRACTION {
            return "number with a fraction".to_owned();
        }
        let mut names = Vec::new();
        for (name, part) in Self::NAMES {
            let hidden = name == "integer" && Self::NUMBER.is_within(self);
            if part.is_within(self) && !hidden {
                names.push(name);
            }
        }
        if self.meets(Self::FRACTION) && !self.meets(Self::INTEGER) {
            names.push("number with a fraction");
        }
        names.join(" or ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_named_as_in_json_schema() {
        let all = "object or array or string or number or boolean or null";
        for (types, text) in [
            (Types::ALL, all),
            (Types::NUMBER, "number"),
            (Types::INTEGER, "integer"),
            (Types::FRACTION, "number with a fraction"),
            (Types::STRING.with(Types::NULL), "string or null"),
            (
                Types::NULL.with(Types::FRACTION),
                "null or number with a fraction",
            ),
        ] {
            assert_eq!(types.text(), text);
        }
        assert_eq!(Types::named("number"), Some(Types::NUMBER));
        assert_eq!(Types::named("float"), None);
        assert!(Types::INTEGER.is_within(Types::NUMBER) && !Types::NUMBER.is_within(Types::INTEGER));
        assert_eq!(Types::ALL.singles().count(), 6);
        assert_eq!(Types::INTEGER.singles().collect::<Vec<_>>(), [Types::INTEGER]);
    }
}
