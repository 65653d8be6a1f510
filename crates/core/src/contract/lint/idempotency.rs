//! The idempotency field: named, and in every payload. A field that may be missing falls back to the task id, and a
//! duplicate with another id then runs twice.

use super::{Lint, Types};
use crate::contract::{Contract, finding::LintRule, place::child, schema::Rules};

const AT: &str = "/x-tidegate/idempotencyKey";

pub(super) fn check(contract: &Contract, lint: &mut Lint) {
    let Some(field) = contract.idempotency_key() else {
        return lint.add(
            AT,
            LintRule::IdempotencyMissing,
            "nothing says when two tasks are the same",
        );
    };
    let mut schema = &contract.schema;
    let mut here = String::new();
    for step in field.steps() {
        let object = match schema.rules() {
            Some(rules) if rules.types == Types::OBJECT => &rules.object,
            _ => {
                return lint.add(
                    AT,
                    LintRule::IdempotencyField,
                    "it leads into something other than an object",
                );
            }
        };
        here = child(&here, step);
        schema = match object.property(step) {
            Some(schema) if object.requires(step) => schema,
            Some(_) => return lint.add(AT, LintRule::IdempotencyField, format!("{here} isn't required")),
            None => return lint.add(AT, LintRule::IdempotencyField, format!("{here} isn't a property")),
        };
    }
    let single = |rules: &Rules| rules.types == Types::STRING || rules.types == Types::INTEGER;
    if !schema.rules().is_some_and(single) {
        let what = format!("{here} can be something other than a text or an integer");
        return lint.add(AT, LintRule::IdempotencyField, what);
    }
    // An empty text counts as none where the key is taken from the payload.
    let can_be_empty = |rules: &Rules| {
        let says_more = rules.text.format.is_some() || rules.text.pattern.is_some() || rules.values.is_some();
        rules.types == Types::STRING && rules.text.min == 0 && !says_more
    };
    if schema.rules().is_some_and(can_be_empty) {
        let what = format!("{here} can be an empty text, which is no key; set minLength");
        lint.add(AT, LintRule::IdempotencyField, what);
    }
}
