//! Over the values of a valid JSON text for what a parser lets through: duplicate keys, numbers that doubles round,
//! NUL, lone surrogates, depth.
//!
//! Recursion goes as deep as the depth limit and never deeper than [`MAX_DEPTH`]; what lies below is skipped
//! iteratively. Texts without escapes cost no allocation, and keys are kept on one stack for all objects.

use std::{borrow::Cow, collections::HashSet};

use super::{
    error::{EnvelopeError, Rule, Violation},
    number,
    pointer::{Place, shown},
    scan::{RawStr, Scanner, Token},
};

/// Ceiling of every depth limit, so that no limit can overflow the stack.
const MAX_DEPTH: usize = 64;

/// Objects with more keys than this are searched by hash: comparing with each key before would be quadratic.
const FEW_KEYS: usize = 16;

/// No more to read: the list of violations is full, or the text turned out to be no JSON.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stop;

/// A scanner with the rules that hold for every value.
pub(super) struct Walk<'a> {
    pub(super) scanner: Scanner<'a>,
    pub(super) violations: Vec<Violation>,
    max_depth: usize,
    /// Keys seen in the objects that are open, outermost first.
    keys: Vec<Cow<'a, str>>,
}

impl<'a> Walk<'a> {
    /// A walk that allows `max_depth` levels of containers.
    pub(super) fn new(text: &'a str, max_depth: usize) -> Self {
        Self {
            scanner: Scanner::new(text),
            violations: Vec::new(),
            max_depth: max_depth.min(MAX_DEPTH),
            keys: Vec::new(),
        }
    }

    /// Notes a violation; `Stop` when no more are wanted.
    pub(super) fn refuse(
        &mut self,
        place: &Place<'_>,
        rule: Rule,
        advice: impl Into<String>,
    ) -> Result<(), Stop> {
        self.refuse_at(place.pointer(), rule, advice)
    }

    /// As [`Walk::refuse`], for a place that is not in the text.
    pub(super) fn refuse_at(
        &mut self,
        pointer: String,
        rule: Rule,
        advice: impl Into<String>,
    ) -> Result<(), Stop> {
        self.violations.push(Violation {
            pointer,
            rule,
            advice: advice.into(),
        });
        if self.violations.len() < EnvelopeError::MAX_VIOLATIONS {
            Ok(())
        } else {
            Err(Stop)
        }
    }

    /// Reads a token.
    pub(super) fn token(&mut self) -> Result<Token<'a>, Stop> {
        self.scanner.value().ok_or(Stop)
    }

    /// Reads on behind the value that starts with `token`.
    pub(super) fn skip(&mut self, token: Token<'a>) -> Result<(), Stop> {
        match token {
            Token::Object | Token::Array => self.scanner.skip_container().ok_or(Stop),
            _ => Ok(()),
        }
    }

    /// Reads behind an item: whether another one follows before `end`.
    pub(super) fn more(&mut self, end: u8) -> Result<bool, Stop> {
        if self.scanner.eat(b',') {
            return Ok(true);
        }
        if self.scanner.eat(end) {
            Ok(false)
        } else {
            Err(Stop)
        }
    }

    /// Reads a key of the object at `place`; `None`, with a violation, if it has a NUL or a lone surrogate.
    pub(super) fn key(&mut self, place: &Place<'_>) -> Result<Option<(RawStr<'a>, Cow<'a, str>)>, Stop> {
        let raw = self.scanner.key().ok_or(Stop)?;
        if let Some(rule) = raw.broken_rule() {
            // As escaped by the producer: the decoded key is what must not travel any further.
            let advice = format!("the key \"{}\" {}", shown(raw.raw()), text_advice(rule));
            self.refuse(place, rule, advice)?;
            return Ok(None);
        }
        Ok(Some((raw, raw.decode().ok_or(Stop)?)))
    }

    /// Notes the violation in a string, if any; whether it is sound.
    pub(super) fn sound(&mut self, place: &Place<'_>, text: RawStr<'a>) -> Result<bool, Stop> {
        match text.broken_rule() {
            None => Ok(true),
            Some(rule) => {
                self.refuse(place, rule, format!("the text {}", text_advice(rule)))?;
                Ok(false)
            }
        }
    }

    /// Walks over the rest of an object whose opening brace was read and which is container number `depth`.
    pub(super) fn object(&mut self, place: &Place<'_>, depth: usize) -> Result<(), Stop> {
        if self.scanner.eat(b'}') {
            return Ok(());
        }
        let first = self.keys.len();
        let mut many = HashSet::new();
        loop {
            let new = match self.key(place)? {
                Some((raw, key)) => {
                    let place = Place::Key(place, raw);
                    if self.is_new(first, &mut many, key) {
                        self.value(&place, depth)?;
                        true
                    } else {
                        let advice = "the key stands twice in this object; send it once";
                        self.refuse(&place, Rule::DuplicateKey, advice)?;
                        false
                    }
                }
                None => false,
            };
            if !new {
                // Below a refused key nothing can be pointed at.
                let token = self.token()?;
                self.skip(token)?;
            }
            if !self.more(b'}')? {
                break;
            }
        }
        self.keys.truncate(first);
        Ok(())
    }

    fn array(&mut self, place: &Place<'_>, depth: usize) -> Result<(), Stop> {
        if self.scanner.eat(b']') {
            return Ok(());
        }
        let mut index = 0;
        loop {
            self.value(&Place::Item(place, index), depth)?;
            index += 1;
            if !self.more(b']')? {
                return Ok(());
            }
        }
    }

    fn value(&mut self, place: &Place<'_>, depth: usize) -> Result<(), Stop> {
        match self.token()? {
            token @ (Token::Object | Token::Array) if depth >= self.max_depth => {
                let advice = format!(
                    "the payload is nested deeper than {} levels; flatten it, or send the inner part as a string",
                    self.max_depth
                );
                self.refuse(place, Rule::TooDeep, advice)?;
                self.skip(token)
            }
            Token::Object => self.object(place, depth + 1),
            Token::Array => self.array(place, depth + 1),
            Token::Str(text) => self.sound(place, text).map(|_| ()),
            Token::Number(number) if !number::is_exact(number) => {
                let advice = "a double cannot hold this number as written (above 2^53, over 17 digits, or too small); \
                              send as a string";
                self.refuse(place, Rule::NumberNotExact, advice)
            }
            Token::Number(_) | Token::Bool | Token::Null => Ok(()),
        }
    }

    /// Whether the innermost object, whose keys start at `first`, has not had `key`. `many` belongs to that object
    /// and stays empty while its keys are few.
    fn is_new(&mut self, first: usize, many: &mut HashSet<Cow<'a, str>>, key: Cow<'a, str>) -> bool {
        if !many.is_empty() {
            return many.insert(key);
        }
        if self.keys[first..].contains(&key) {
            return false;
        }
        self.keys.push(key);
        if self.keys.len() - first > FEW_KEYS {
            many.extend(self.keys.drain(first..));
        }
        true
    }
}

fn text_advice(rule: Rule) -> &'static str {
    match rule {
        Rule::Nul => "holds U+0000, which databases refuse; leave it out",
        _ => {
            "holds half of a surrogate pair, which is no character; send whole characters, binary data as base64"
        }
    }
}
