//! A payload against a schema. Numbers are judged by their text, texts by their content.
//!
//! The cost is bounded by the payload's size times the number of schemas, which reading has limited. Recursion ends with
//! the schema or the payload, whose depths are limited as well.
//!
//! May import: `json_text`, `envelope` (exact numbers), `schema`, `violation`, `place`.

use std::{borrow::Cow, cmp::Ordering};

use super::{
    Contract,
    place::Place,
    scalar::Scalar,
    schema::{ArrayRules, Bound, Kind, Member, NumberRules, ObjectRules, Rules, Schema, TextRules, Types},
    violation::{ValueRule, Violation},
};
use crate::{
    envelope::number,
    json_text::{Decimal, Document, Limits, Node},
};

/// Checking stops after this many violations.
pub(crate) const MAX_VIOLATIONS: usize = 20;

/// Values of an `enum` that a violation names.
const NAMED_VALUES: usize = 8;

/// Longest of them, in characters.
const NAMED_CHARS: usize = 40;

/// Limits on a payload's text here; the envelope's own are tighter, and checked before.
const LIMITS: Limits = Limits {
    max_bytes: 256 * 1024,
    max_depth: 64,
};

/// Reads `payload`.
pub(crate) fn document(payload: &str) -> Result<Document<'_>, Violation> {
    Document::parse(payload.as_bytes(), &LIMITS).map_err(|why| Violation {
        pointer: why.pointer,
        rule: ValueRule::Unreadable,
        text: why.advice,
    })
}

impl Contract {
    /// What in `payload`, a JSON text, breaks this contract: in the order of the text, missing members after the others
    /// of their object, at most [`Contract::MAX_VIOLATIONS`]. Empty if it is valid.
    pub fn validate(&self, payload: &str) -> Vec<Violation> {
        match document(payload) {
            Ok(document) => violations(&self.schema, document.root()),
            Err(unreadable) => vec![unreadable],
        }
    }
}

/// What in `node` breaks `schema`.
pub(crate) fn violations(schema: &Schema, node: &Node<'_>) -> Vec<Violation> {
    let mut check = Check { found: Vec::new() };
    // Stopping early is no news here: what was found is all that is wanted.
    let _full = check.schema(schema, node, &Place::Payload);
    check.found
}

/// Whether `schema` takes `node`.
pub(crate) fn takes(schema: &Schema, node: &Node<'_>) -> bool {
    violations(schema, node).is_empty()
}

/// The list is full.
struct Full;

struct Check {
    found: Vec<Violation>,
}

impl Check {
    fn refuse(&mut self, place: &Place<'_>, rule: ValueRule, text: impl Into<String>) -> Result<(), Full> {
        self.note(Violation {
            pointer: place.pointer(),
            rule,
            text: text.into(),
        })
    }

    fn note(&mut self, violation: Violation) -> Result<(), Full> {
        self.found.push(violation);
        if self.found.len() < MAX_VIOLATIONS {
            Ok(())
        } else {
            Err(Full)
        }
    }

    fn schema(&mut self, schema: &Schema, node: &Node<'_>, place: &Place<'_>) -> Result<(), Full> {
        match &schema.kind {
            Kind::Value(rules) => self.value(rules, node, place),
            Kind::AnyOf(branches) => self.any_of(branches, node, place),
        }
    }

    /// Where only one branch is for the value's type, what is wrong is said in its words.
    fn any_of(&mut self, branches: &[Schema], node: &Node<'_>, place: &Place<'_>) -> Result<(), Full> {
        let own = types(node);
        let mut meant = Vec::new();
        for branch in branches {
            let mut trial = Self { found: Vec::new() };
            let _full = trial.schema(branch, node, place);
            if trial.found.is_empty() {
                return Ok(());
            }
            if branch.rules().is_none_or(|rules| own.meets(rules.types)) {
                meant.push(trial.found);
            }
        }
        match (branches.len(), meant.len()) {
            (0, _) => self.refuse(place, ValueRule::AnyOf, "nothing may stand here; leave it out"),
            (_, 1) => {
                for found in meant.into_iter().flatten() {
                    self.note(found)?;
                }
                Ok(())
            }
            (all, _) => {
                let text = format!("fits none of the {all} forms that the contract allows here");
                self.refuse(place, ValueRule::AnyOf, text)
            }
        }
    }

    /// What holds for every value, whatever the contract says.
    fn plain(&mut self, node: &Node<'_>, place: &Place<'_>) -> Result<(), Full> {
        match node {
            Node::Str(_) => self.sound(node, place).map(|_| ()),
            Node::Number(text) => self.exact(text, place).map(|_| ()),
            Node::Word(_) => Ok(()),
            Node::Array(..) => {
                for (at, item) in node.items().into_iter().flatten().enumerate() {
                    self.plain(item, &Place::Item(place, at))?;
                }
                Ok(())
            }
            Node::Object(..) => {
                for (name, value) in node.members().into_iter().flatten() {
                    self.plain(value, &Place::Key(place, name))?;
                }
                Ok(())
            }
        }
    }

    /// The text, if it can be stored.
    fn sound<'n>(&mut self, node: &'n Node<'_>, place: &Place<'_>) -> Result<Option<Cow<'n, str>>, Full> {
        let text = node.as_string().filter(|text| !text.contains('\0'));
        if text.is_none() {
            let text = "holds U+0000 or half of a surrogate pair; leave it out";
            self.refuse(place, ValueRule::Text, text)?;
        }
        Ok(text)
    }

    /// Whether a double holds the number.
    fn exact(&mut self, number: &str, place: &Place<'_>) -> Result<bool, Full> {
        let exact = number::is_exact(number);
        if !exact {
            let text = "a double cannot hold this number as written; the contract should have it as text";
            self.refuse(place, ValueRule::NumberNotExact, text)?;
        }
        Ok(exact)
    }

    fn value(&mut self, rules: &Rules, node: &Node<'_>, place: &Place<'_>) -> Result<(), Full> {
        let own = types(node);
        if !own.meets(rules.types) {
            let text = format!("is {}, not {}", own.text(), rules.types.text());
            return self.refuse(place, ValueRule::Type, text);
        }
        if let Some(values) = &rules.values
            && !values.any_of.iter().any(|value| value.is(node))
        {
            return self.refuse(place, ValueRule::Enum, one_of(&values.any_of));
        }
        match node {
            Node::Str(_) => self.text(&rules.text, node, place),
            Node::Number(text) => self.number(&rules.number, text, place),
            Node::Array(..) => self.array(&rules.array, node, place),
            Node::Object(..) => self.object(&rules.object, node, place),
            Node::Word(_) => Ok(()),
        }
    }

    fn text(&mut self, rules: &TextRules, node: &Node<'_>, place: &Place<'_>) -> Result<(), Full> {
        let Some(text) = self.sound(node, place)? else {
            return Ok(());
        };
        let chars = text.chars().count();
        if !within(chars, rules.min, rules.max) {
            let text = format!("has {chars} characters, {} allowed", span(rules.min, rules.max));
            self.refuse(place, ValueRule::Length, text)?;
        }
        if let Some(format) = rules.format
            && !format.takes(&text)
        {
            self.refuse(place, ValueRule::Format, format!("is not {}", format.advice()))?;
        }
        match &rules.pattern {
            Some(pattern) if !pattern.takes(&text) => {
                let text = format!("does not match {}", pattern.as_str());
                self.refuse(place, ValueRule::Pattern, text)
            }
            _ => Ok(()),
        }
    }

    fn number(&mut self, rules: &NumberRules, text: &str, place: &Place<'_>) -> Result<(), Full> {
        if !self.exact(text, place)? || (rules.min.is_none() && rules.max.is_none()) {
            return Ok(());
        }
        let value = Decimal::of(text);
        // What can't be compared is outside: an exact number always can.
        let outside = |bound: &Bound, wanted: Ordering| match value.compare(&bound.value) {
            Some(Ordering::Equal) => bound.is_exclusive,
            found => found != Some(wanted),
        };
        if let Some(bound) = rules.min.as_ref().filter(|b| outside(b, Ordering::Greater)) {
            let word = if bound.is_exclusive {
                "more than"
            } else {
                "at least"
            };
            return self.refuse(place, ValueRule::Range, format!("must be {word} {}", bound.text));
        }
        if let Some(bound) = rules.max.as_ref().filter(|b| outside(b, Ordering::Less)) {
            let word = if bound.is_exclusive {
                "less than"
            } else {
                "at most"
            };
            return self.refuse(place, ValueRule::Range, format!("must be {word} {}", bound.text));
        }
        Ok(())
    }

    fn array(&mut self, rules: &ArrayRules, node: &Node<'_>, place: &Place<'_>) -> Result<(), Full> {
        let items: Vec<&Node<'_>> = node.items().into_iter().flatten().collect();
        if !within(items.len(), rules.min, rules.max) {
            let text = format!(
                "has {} items, {} allowed",
                items.len(),
                span(rules.min, rules.max)
            );
            self.refuse(place, ValueRule::Items, text)?;
        }
        // Not looked for in an array that is too long anyway: it compares every two.
        if rules.is_unique && items.len() <= Self::MOST_COMPARED {
            let twice = (1..items.len()).find(|at| items[..*at].iter().any(|one| one.same_value(items[*at])));
            if let Some(at) = twice {
                let text = "stands earlier in this array already";
                self.refuse(&Place::Item(place, at), ValueRule::Unique, text)?;
            }
        } else if rules.is_unique {
            let text = format!(
                "over {} items are never taken where each must differ",
                Self::MOST_COMPARED
            );
            self.refuse(place, ValueRule::Unique, text)?;
        }
        for (at, item) in items.into_iter().enumerate() {
            let here = Place::Item(place, at);
            match &rules.items {
                Some(schema) => self.schema(schema, item, &here)?,
                None => self.plain(item, &here)?,
            }
        }
        Ok(())
    }

    fn object(&mut self, rules: &ObjectRules, node: &Node<'_>, place: &Place<'_>) -> Result<(), Full> {
        let mut count = 0;
        for (name, value) in node.members().into_iter().flatten() {
            count += 1;
            let here = Place::Key(place, name);
            match rules.member(name) {
                Member::Like(schema) => self.schema(schema, value, &here)?,
                Member::Anything => self.plain(value, &here)?,
                Member::Nothing => {
                    self.refuse(&here, ValueRule::UnknownField, "the contract has no such member")?;
                }
            }
        }
        if !within(count, rules.min, rules.max) {
            let text = format!("has {count} members, {} allowed", span(rules.min, rules.max));
            self.refuse(place, ValueRule::Properties, text)?;
        }
        for name in &rules.required {
            if node.member(name).is_none() {
                self.refuse(&Place::Key(place, name), ValueRule::Required, "is missing")?;
            }
        }
        Ok(())
    }

    /// Longest array whose items are compared with each other.
    const MOST_COMPARED: usize = 1_000;
}

/// The types a value has: an integer is one by how it is written.
fn types(node: &Node<'_>) -> Types {
    match node {
        Node::Object(..) => Types::OBJECT,
        Node::Array(..) => Types::ARRAY,
        Node::Str(_) => Types::STRING,
        Node::Number(text) if text.contains(['.', 'e', 'E']) => Types::FRACTION,
        Node::Number(_) => Types::INTEGER,
        Node::Word("null") => Types::NULL,
        Node::Word(_) => Types::BOOLEAN,
    }
}

fn within(count: usize, min: u64, max: Option<u64>) -> bool {
    let count = count as u64;
    count >= min && max.is_none_or(|max| count <= max)
}

/// `3 to 5 are`, for people.
fn span(min: u64, max: Option<u64>) -> String {
    match max {
        Some(max) if max == min => format!("exactly {min} are"),
        Some(max) => format!("{min} to {max} are"),
        None => format!("{min} or more are"),
    }
}

fn one_of(values: &[Scalar]) -> String {
    let mut named = Vec::new();
    for value in values.iter().take(NAMED_VALUES) {
        let literal = value.literal();
        let mut shown: String = literal.chars().take(NAMED_CHARS).collect();
        if shown.len() < literal.len() {
            shown.push('…');
        }
        named.push(shown);
    }
    let more = match values.len().saturating_sub(NAMED_VALUES) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("must be one of {}{more}", named.join(", "))
}
