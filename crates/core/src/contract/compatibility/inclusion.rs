//! Whether every value that one schema lets through (*sent*) is taken by another (*reader*).
//!
//! Safe, not complete: two patterns that mean the same are told of as different, and so is a choice whose branches take a
//! value only together. A pair of schemas is compared once for each pair of places that a value can have, which the number
//! of schemas in a contract bounds.

use std::cmp::Ordering;

use super::{
    ChangeRule, MAX_CHANGES,
    extent::{Counted, ITEMS, LENGTH, PROPERTIES, anything, members, takes, values},
};
use crate::contract::{
    place::child,
    schema::{ArrayRules, Bound, Kind, Member, NumberRules, ObjectRules, Rules, Schema, TextRules, Types},
};

/// Place in the new contract, rule, and what is refused.
pub(super) type Found = (String, ChangeRule, String);

/// Which of the two is the new contract: findings point into that one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum New {
    Sent,
    Reader,
}

/// What `sent` lets through and `reader` refuses, at most [`MAX_CHANGES`].
pub(super) fn check(sent: &Schema, reader: &Schema, new: New) -> Vec<Found> {
    let mut compare = Compare {
        new,
        found: Vec::new(),
        left: MAX_STEPS,
        is_trial: false,
    };
    compare.schemas(sent, reader);
    compare.found
}

/// Most pairs of schemas, and values with schemas, that are compared; choices inside of choices could make more of them than anybody waits for.
const MAX_STEPS: usize = 20_000;

/// Refused values that are named, and the longest of them in characters.
const NAMED_VALUES: usize = 8;
const NAMED_CHARS: usize = 40;

struct Compare {
    new: New,
    found: Vec<Found>,
    left: usize,
    /// The first thing found is enough.
    is_trial: bool,
}

impl Compare {
    fn add(&mut self, at: &str, keyword: &str, rule: ChangeRule, text: impl Into<String>) {
        let pointer = if keyword.is_empty() {
            at.to_owned()
        } else {
            child(at, keyword)
        };
        // A definition that is used twice is told of once.
        let known = |found: &Found| found.0 == pointer && found.1 == rule;
        if self.found.len() < MAX_CHANGES && !self.found.iter().any(known) {
            self.found.push((pointer, rule, text.into()));
        }
    }

    /// The place of the two in the new contract.
    fn at<'s>(&self, sent: &'s Schema, reader: &'s Schema) -> &'s str {
        match self.new {
            New::Sent => &sent.at,
            New::Reader => &reader.at,
        }
    }

    /// Whether `reader` takes all of `sent`, without a word.
    fn includes(&mut self, sent: &Schema, reader: &Schema) -> bool {
        let mut trial = Self {
            new: self.new,
            found: Vec::new(),
            left: self.left,
            is_trial: true,
        };
        trial.schemas(sent, reader);
        self.left = trial.left;
        trial.found.is_empty()
    }

    fn schemas(&mut self, sent: &Schema, reader: &Schema) {
        if self.is_trial && !self.found.is_empty() {
            return;
        }
        let Some(left) = self.left.checked_sub(1) else {
            let text = "there are too many choices inside of choices to compare";
            let at = self.at(sent, reader).to_owned();
            return self.add(&at, "", ChangeRule::AnyOf, text);
        };
        self.left = left;
        match (&sent.kind, &reader.kind) {
            (Kind::AnyOf(branches), _) => {
                for branch in branches {
                    self.schemas(branch, reader);
                }
            }
            (Kind::Value(rules), Kind::AnyOf(branches)) => self.choice(sent, rules, reader, branches),
            (Kind::Value(sent_rules), Kind::Value(reader_rules)) => {
                let at = self.at(sent, reader);
                // A type that the reader hasn't got is told of as such, however few values it has.
                let is_listed = sent_rules.values.is_some() || sent_rules.types.is_within(reader_rules.types);
                match values(sent_rules).filter(|_| is_listed) {
                    Some(values) => self.values(&values, reader, at),
                    None => self.rules(sent_rules, reader_rules, at),
                }
            }
        }
    }

    /// One branch takes it whole; or each of its types, or of its values, is taken by one.
    fn choice(&mut self, sent: &Schema, rules: &Rules, reader: &Schema, branches: &[Schema]) {
        if branches.iter().any(|branch| self.includes(sent, branch)) {
            return;
        }
        let at = self.at(sent, reader).to_owned();
        if let Some(values) = values(rules) {
            if rules.values.is_some() {
                return self.values(&values, reader, &at);
            }
            if values.iter().all(|text| takes(reader, text)) {
                return;
            }
        }
        let types: Vec<Types> = rules.types.singles().collect();
        if let ([_, _, ..], false) = (types.as_slice(), branches.is_empty()) {
            for single in types {
                let mut part = rules.clone();
                part.types = single;
                let part = Schema {
                    at: sent.at.clone(),
                    kind: Kind::Value(Box::new(part)),
                };
                self.schemas(&part, reader);
            }
            return;
        }
        // With one branch for this type, what is wrong is said in its words.
        let mut meant = branches
            .iter()
            .filter(|b| b.rules().is_none_or(|r| r.types.meets(rules.types)));
        match (meant.next(), meant.next()) {
            (Some(branch), None) => self.schemas(sent, branch),
            _ => {
                let text = format!(
                    "no form that the reader allows takes every {} that is sent",
                    rules.types.text()
                );
                self.add(&at, "", ChangeRule::AnyOf, text);
            }
        }
    }

    fn rules(&mut self, sent: &Rules, reader: &Rules, at: &str) {
        let refused = sent.types.without(reader.types);
        if !refused.is_empty() {
            let text = format!(
                "{} is sent, the reader takes {}",
                refused.text(),
                reader.types.text()
            );
            self.add(at, "type", ChangeRule::Type, text);
        }
        let both = sent.types.both(reader.types);
        if both.is_empty() {
            return;
        }
        if let Some(known) = &reader.values {
            let text = "any value is sent, the reader knows only those it lists";
            return self.add(at, known.keyword, ChangeRule::Enum, text);
        }
        if both.meets(Types::STRING) {
            self.text(&sent.text, &reader.text, at);
        }
        if both.meets(Types::NUMBER) {
            self.number(&sent.number, &reader.number, at);
        }
        if both.meets(Types::ARRAY) {
            self.array(&sent.array, &reader.array, at);
        }
        if both.meets(Types::OBJECT) {
            self.object(&sent.object, &reader.object, at);
        }
    }

    fn values(&mut self, sent: &[String], reader: &Schema, at: &str) {
        self.left = self.left.saturating_sub(sent.len());
        let refused = sent.iter().filter(|text| !takes(reader, text));
        let refused: Vec<String> = refused
            .map(|text| text.chars().take(NAMED_CHARS).collect())
            .collect();
        if !refused.is_empty() {
            let more = match refused.len().saturating_sub(NAMED_VALUES) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let named = refused[..refused.len().min(NAMED_VALUES)].join(", ");
            let text = format!("{named}{more} may be sent, and the reader refuses it");
            self.add(at, "enum", ChangeRule::Enum, text);
        }
    }

    fn text(&mut self, sent: &TextRules, reader: &TextRules, at: &str) {
        self.counts((sent.min, sent.max), (reader.min, reader.max), at, &LENGTH);
        if let Some(format) = reader.format.filter(|format| sent.format != Some(*format)) {
            let text = format!("any text is sent, the reader takes {} only", format.as_str());
            self.add(at, "format", ChangeRule::Format, text);
        }
        let wanted = reader.pattern.as_ref().map(|pattern| pattern.as_str());
        if wanted.is_some() && wanted != sent.pattern.as_ref().map(|pattern| pattern.as_str()) {
            let text = "what is sent need not match the reader's pattern";
            self.add(at, "pattern", ChangeRule::Pattern, text);
        }
    }

    fn number(&mut self, sent: &NumberRules, reader: &NumberRules, at: &str) {
        let beyond = |sent: &Option<Bound>, reader: &Bound, inner: Ordering| match sent {
            None => true,
            Some(sent) => match sent.value.compare(&reader.value) {
                Some(Ordering::Equal) => reader.is_exclusive && !sent.is_exclusive,
                order => order != Some(inner),
            },
        };
        if let Some(min) = reader
            .min
            .as_ref()
            .filter(|min| beyond(&sent.min, min, Ordering::Greater))
        {
            let keyword = if min.is_exclusive {
                "exclusiveMinimum"
            } else {
                "minimum"
            };
            let text = format!(
                "smaller numbers are sent than the reader's {keyword} {}",
                min.text
            );
            self.add(at, keyword, ChangeRule::Range, text);
        }
        if let Some(max) = reader
            .max
            .as_ref()
            .filter(|max| beyond(&sent.max, max, Ordering::Less))
        {
            let keyword = if max.is_exclusive {
                "exclusiveMaximum"
            } else {
                "maximum"
            };
            let text = format!("larger numbers are sent than the reader's {keyword} {}", max.text);
            self.add(at, keyword, ChangeRule::Range, text);
        }
    }

    fn array(&mut self, sent: &ArrayRules, reader: &ArrayRules, at: &str) {
        self.counts((sent.min, sent.max), (reader.min, reader.max), at, &ITEMS);
        if reader.is_unique && !sent.is_unique && sent.max.is_none_or(|max| max > 1) {
            let text = "an array with a value twice is sent, the reader takes none";
            self.add(at, "uniqueItems", ChangeRule::Unique, text);
        }
        if sent.max == Some(0) {
            return;
        }
        let any = anything(&child(at, "items"));
        match (&sent.items, &reader.items) {
            (_, None) => {}
            (Some(sent), Some(reader)) => self.schemas(sent, reader),
            (None, Some(reader)) => self.schemas(&any, reader),
        }
    }

    fn object(&mut self, sent: &ObjectRules, reader: &ObjectRules, at: &str) {
        for name in reader.required.iter().filter(|name| !sent.requires(name)) {
            let text = format!("{} may be missing, the reader requires it", child("", name));
            self.add(
                &child(&child(at, "properties"), name),
                "",
                ChangeRule::Required,
                text,
            );
        }
        let properties = child(at, "properties");
        for (name, schema) in &sent.properties {
            self.member(
                Member::Like(schema),
                reader.member(name),
                &child(&properties, name),
            );
        }
        for (name, schema) in &reader.properties {
            if sent.property(name).is_none() {
                let place = child(&properties, name);
                self.member(sent.additional.member(), Member::Like(schema), &place);
            }
        }
        let place = child(at, "additionalProperties");
        self.member(sent.additional.member(), reader.additional.member(), &place);
        self.counts(members(sent), (reader.min, reader.max), at, &PROPERTIES);
    }

    /// A member, or all that aren't named; `place` is where it stands, or would, in the new contract.
    fn member(&mut self, sent: Member<'_>, reader: Member<'_>, place: &str) {
        let any = anything(place);
        let sent = match sent {
            Member::Nothing => return,
            Member::Anything => &any,
            Member::Like(schema) => schema,
        };
        match reader {
            Member::Anything => {}
            Member::Like(reader) => self.schemas(sent, reader),
            Member::Nothing if sent.is_nothing() => {}
            Member::Nothing => {
                let text = "may be sent, and the reader doesn't know it";
                self.add(place, "", ChangeRule::UnknownField, text);
            }
        }
    }

    fn counts(&mut self, sent: (u64, Option<u64>), reader: (u64, Option<u64>), at: &str, of: &Counted) {
        if sent.0 < reader.0 {
            let text = format!(
                "{} {} are sent, the reader takes {} or more",
                sent.0, of.what, reader.0
            );
            self.add(at, of.min, of.rule, text);
        }
        if let Some(max) = reader.1.filter(|max| sent.1.is_none_or(|sent| sent > *max)) {
            let text = format!("more {} are sent than the {max} that the reader takes", of.what);
            self.add(at, of.max, of.rule, text);
        }
    }
}
