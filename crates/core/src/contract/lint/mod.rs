//! Our rules on top of JSON Schema: a payload that keeps such a contract means the same in every language.
//!
//! May import: `schema`, `finding`, `validate` (the examples).

mod idempotency;
mod words;

use super::{
    Contract,
    finding::{Finding, LintRule},
    format::Format,
    place::child,
    scalar::Scalar,
    schema::{Additional, Bound, Kind, ObjectRules, Rules, Schema, Types},
};
use crate::json_text::Decimal;

/// Most levels of a payload.
const MAX_LEVELS: usize = 5;

/// Checking stops after this many findings.
const MAX_FINDINGS: usize = 100;

/// 2^53 - 1, the largest integer that every language holds.
const LARGEST: &str = "9007199254740991";

impl Contract {
    /// Most findings that one contract is told of.
    pub const MAX_FINDINGS: usize = MAX_FINDINGS;

    /// Which of our rules this contract breaks: those on its schema first, then the whole's, at most
    /// [`Contract::MAX_FINDINGS`]. What several references lead to is told of once.
    pub fn findings(&self) -> Vec<Finding> {
        let mut lint = Lint { found: Vec::new() };
        let root = self.schema.rules().map(|rules| rules.types);
        if root != Some(Types::OBJECT) {
            lint.add(
                "/type",
                LintRule::RootObject,
                "the payload can be something other than an object",
            );
        }
        lint.schema(&self.schema, 1, None);
        if self.owner().is_none() {
            lint.add(
                "/x-tidegate/owner",
                LintRule::Owner,
                "nobody answers for this contract",
            );
        }
        idempotency::check(self, &mut lint);
        lint.examples(self);
        lint.found.truncate(MAX_FINDINGS);
        lint.found
    }
}

pub(super) struct Lint {
    found: Vec<Finding>,
}

impl Lint {
    fn add(&mut self, pointer: &str, rule: LintRule, what: impl Into<String>) {
        // One more than are told of tells nothing either.
        let known = |finding: &Finding| finding.pointer == pointer && finding.rule == rule;
        if self.found.len() < MAX_FINDINGS && !self.found.iter().any(known) {
            self.found.push(Finding {
                pointer: pointer.to_owned(),
                rule,
                what: what.into(),
                advice: rule.advice(),
            });
        }
    }

    /// `level`: how many containers a value here is inside of, counting itself if it is one. `name`: the member it is.
    fn schema(&mut self, schema: &Schema, level: usize, name: Option<&str>) {
        match &schema.kind {
            Kind::AnyOf(branches) => {
                for branch in branches {
                    self.schema(branch, level, name);
                }
            }
            Kind::Value(rules) => self.rules(rules, &schema.at, level, name),
        }
    }

    fn rules(&mut self, rules: &Rules, at: &str, level: usize, name: Option<&str>) {
        if rules.types == Types::ALL {
            let what = "any value of any type is taken here";
            self.add(&child(at, "type"), LintRule::TypeMissing, what);
            // What follows would repeat it for each type.
            return;
        }
        let has_parts = rules.types.meets(Types::OBJECT.with(Types::ARRAY));
        if has_parts && level > MAX_LEVELS {
            let what = format!("this is level {level} of the payload, at most {MAX_LEVELS} are taken");
            return self.add(at, LintRule::Depth, what);
        }
        if let Some(values) = &rules.values {
            let plain = |value: &Scalar| matches!(value, Scalar::Text(_)) || value.types() == Types::NULL;
            if values.keyword == "enum" && !values.any_of.iter().all(plain) {
                let what = "the values of this enumeration aren't all texts";
                self.add(&child(at, "enum"), LintRule::EnumText, what);
            }
        }
        self.number(rules, at);
        if let Some(name) = name {
            self.meaning(rules, at, name);
        }
        if rules.types.meets(Types::ARRAY) {
            match &rules.array.items {
                // The name of a list is that of its items: amounts, prices.
                Some(items) => self.schema(items, level + 1, name),
                None => self.add(&child(at, "items"), LintRule::TypeMissing, "an array of anything"),
            }
        }
        if rules.types.meets(Types::OBJECT) {
            self.object(&rules.object, at, level);
        }
    }

    fn number(&mut self, rules: &Rules, at: &str) {
        if !rules.types.meets(Types::INTEGER) || rules.types.meets(Types::FRACTION) || rules.values.is_some()
        {
            return;
        }
        let largest = Decimal::of(LARGEST);
        let least = Decimal::of(&format!("-{LARGEST}"));
        let low = |bound: &Bound| bound.value.compare(&least).is_some_and(|order| order.is_ge());
        let high = |bound: &Bound| bound.value.compare(&largest).is_some_and(|order| order.is_le());
        if !rules.number.min.as_ref().is_some_and(low) || !rules.number.max.as_ref().is_some_and(high) {
            self.add(at, LintRule::IntegerSize, "this integer can be larger than 2^53");
        }
    }

    /// What the name of a member says it is.
    fn meaning(&mut self, rules: &Rules, at: &str, name: &str) {
        let is_number = rules.types.meets(Types::NUMBER);
        if words::is_money(name) && is_number {
            self.add(
                at,
                LintRule::Money,
                "by its name this is an amount of money, and it can be a number",
            );
        }
        if words::is_time(name) && rules.types.meets(Types::NUMBER.with(Types::STRING)) {
            let day = words::is_day(name) && rules.text.format == Some(Format::Date);
            let fixed = rules.values.is_some() && !is_number;
            if is_number || !(day || fixed || rules.text.format == Some(Format::DateTime)) {
                let what =
                    "by its name this is a time, and it can be something other than RFC 3339 with offset";
                self.add(at, LintRule::Time, what);
            }
        }
    }

    fn object(&mut self, rules: &ObjectRules, at: &str, level: usize) {
        match &rules.additional {
            Additional::Nothing => {}
            Additional::Anything => self.open(at),
            Additional::Like(schema) => {
                self.open(at);
                self.schema(schema, level + 1, None);
            }
        }
        for name in rules
            .required
            .iter()
            .filter(|name| rules.property(name).is_none())
        {
            let what = format!("{} is required and no property describes it", child("", name));
            self.add(&child(at, "required"), LintRule::RequiredUnknown, what);
        }
        for (name, schema) in &rules.properties {
            self.schema(schema, level + 1, Some(name));
        }
    }

    fn open(&mut self, at: &str) {
        let what = "this object takes members that nobody has described";
        self.add(&child(at, "additionalProperties"), LintRule::OpenObject, what);
    }

    fn examples(&mut self, contract: &Contract) {
        if contract.examples.is_empty() {
            self.add(
                "/examples",
                LintRule::ExampleMissing,
                "no example shows what is meant",
            );
        }
        for (index, example) in contract.examples.iter().enumerate() {
            if let Some(first) = contract.validate(example).into_iter().next() {
                let pointer = format!("/examples/{index}{}", first.pointer);
                self.add(&pointer, LintRule::ExampleInvalid, first.text);
            }
        }
    }
}
