//! How much a schema lets through, where that can be counted: the values it lists, and numbers of members.
//!
//! May import: `schema`, `validate`.

use super::ChangeRule;
use crate::{
    contract::{
        scalar::Scalar,
        schema::{Kind, Member, ObjectRules, Rules, Schema, Types},
        validate,
    },
    json_text::{Document, Limits},
};

/// What is counted, and the keywords of its limits.
pub(super) struct Counted {
    pub(super) what: &'static str,
    pub(super) min: &'static str,
    pub(super) max: &'static str,
    pub(super) rule: ChangeRule,
}

pub(super) const LENGTH: Counted = Counted {
    what: "characters",
    min: "minLength",
    max: "maxLength",
    rule: ChangeRule::Length,
};

pub(super) const ITEMS: Counted = Counted {
    what: "items",
    min: "minItems",
    max: "maxItems",
    rule: ChangeRule::Items,
};

pub(super) const PROPERTIES: Counted = Counted {
    what: "members",
    min: "minProperties",
    max: "maxProperties",
    rule: ChangeRule::Properties,
};

/// How few and how many members an object can have, by what it requires and knows.
pub(super) fn members(object: &ObjectRules) -> (u64, Option<u64>) {
    let mut required: Vec<&str> = object.required.iter().map(|name| &**name).collect();
    required.sort_unstable();
    required.dedup();
    let known =
        matches!(object.additional.member(), Member::Nothing).then_some(object.properties.len() as u64);
    let most = match (known, object.max) {
        (Some(known), Some(max)) => Some(known.min(max)),
        (known, max) => known.or(max),
    };
    (object.min.max(required.len() as u64), most)
}

/// Takes any value.
pub(super) fn anything(at: &str) -> Schema {
    Schema {
        at: at.into(),
        kind: Kind::Value(Box::new(Rules::of(Types::ALL))),
    }
}

/// The texts of all values that `rules` let through, if these are few. A number that may have a fraction is written with
/// one: who takes that takes it without one as well.
pub(super) fn values(rules: &Rules) -> Option<Vec<String>> {
    let word = |word: &str| Scalar::Word(word.into());
    let fixed = match &rules.values {
        Some(values) => values.any_of.clone(),
        None if rules.types.is_within(Types::NULL.with(Types::BOOLEAN)) => {
            vec![word("null"), word("true"), word("false")]
        }
        None => return None,
    };
    let schema = Schema {
        at: "".into(),
        kind: Kind::Value(Box::new(rules.clone())),
    };
    let literals = fixed.into_iter().map(|value| {
        let literal = value.literal();
        let is_number = value.types().meets(Types::NUMBER);
        if is_number && rules.types.meets(Types::FRACTION) && !literal.contains(['.', 'e', 'E']) {
            format!("{literal}.0")
        } else {
            literal
        }
    });
    Some(literals.filter(|literal| takes(&schema, literal)).collect())
}

pub(super) fn takes(schema: &Schema, text: &str) -> bool {
    let document = Document::parse(text.as_bytes(), &Limits::standard());
    document.is_ok_and(|document| validate::takes(schema, document.root()))
}
