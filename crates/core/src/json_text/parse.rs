//! From bytes to the tree. `serde_json` decides whether the text is JSON, without recursion; the envelope's scanner
//! then gives the tokens, and what lies between two of them is white space.

use std::{borrow::Cow, collections::HashSet};

use serde::de::IgnoredAny;

use super::{
    Document, Limits,
    node::{Item, Member, Node},
};
use crate::envelope::{
    Rule, Violation,
    pointer::{Place, shown},
    scan::{Scanner, Token},
    utf8,
};

/// Reads `bytes`.
pub(super) fn document<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Document<'a>, Violation> {
    if bytes.len() > limits.max_bytes {
        let advice = format!("the text is over {} bytes", limits.max_bytes);
        return Err(whole(Rule::TooLarge, advice));
    }
    let text = utf8::decode(bytes).map_err(|error| {
        let first = error.violations.into_iter().next();
        first.unwrap_or_else(|| whole(Rule::NotUtf8, "the text is not UTF-8".to_owned()))
    })?;
    let mut json = serde_json::Deserializer::from_str(text);
    serde::Deserialize::deserialize(&mut json)
        .and_then(|IgnoredAny| json.end())
        // serde_json's grammar errors are fixed texts with a place; they quote nothing of the text.
        .map_err(|error| whole(Rule::Syntax, format!("not JSON: {error}")))?;
    let mut reader = Reader {
        text,
        scanner: Scanner::new(text),
        max_depth: limits.depth(),
    };
    let before = reader.gap();
    let root = reader.value(&Place::Body, 0)?;
    let after = reader.gap();
    Ok(Document {
        gaps: (before, after),
        root,
    })
}

fn whole(rule: Rule, advice: String) -> Violation {
    Violation {
        pointer: String::new(),
        rule,
        advice,
    }
}

struct Reader<'a> {
    text: &'a str,
    scanner: Scanner<'a>,
    max_depth: usize,
}

impl<'a> Reader<'a> {
    /// The white space up to the next token.
    fn gap(&mut self) -> &'a str {
        let start = self.scanner.position();
        let end = match self.scanner.peek() {
            Some(_) => self.scanner.position(),
            None => self.text.len(),
        };
        self.text.get(start..end).unwrap_or_default()
    }

    fn value(&mut self, place: &Place<'_>, depth: usize) -> Result<Node<'a>, Violation> {
        let start = self.scanner.position();
        // Text that `serde_json` takes always has its token; should that ever be wrong, it is refused.
        let token = self.scanner.value().ok_or_else(|| unread(place))?;
        match token {
            Token::Object | Token::Array if depth >= self.max_depth => Err(Violation {
                pointer: place.pointer(),
                rule: Rule::TooDeep,
                advice: format!("the text is nested deeper than {} levels", self.max_depth),
            }),
            Token::Object => self.object(place, depth + 1),
            Token::Array => self.array(place, depth + 1),
            Token::Str(text) => Ok(Node::Str(Cow::Borrowed(text.literal()))),
            Token::Number(text) => Ok(Node::Number(Cow::Borrowed(text))),
            Token::Bool | Token::Null => {
                let word = self.text.get(start..self.scanner.position());
                word.map(Node::Word).ok_or_else(|| unread(place))
            }
        }
    }

    fn object(&mut self, place: &Place<'_>, depth: usize) -> Result<Node<'a>, Violation> {
        let (mut members, mut names) = (Vec::new(), HashSet::new());
        let mut before = self.gap();
        if self.scanner.eat(b'}') {
            return Ok(Node::Object(members, before));
        }
        loop {
            let raw = self.scanner.string().ok_or_else(|| unread(place))?;
            let name = raw.decode().ok_or_else(|| Violation {
                pointer: place.pointer(),
                rule: Rule::LoneSurrogate,
                advice: format!("the key \"{}\" holds half of a surrogate pair", shown(raw.raw())),
            })?;
            let here = Place::Key(place, raw);
            if !names.insert(name.clone()) {
                return Err(Violation {
                    pointer: here.pointer(),
                    rule: Rule::DuplicateKey,
                    advice: "the key stands twice in this object".to_owned(),
                });
            }
            let before_colon = self.gap();
            if !self.scanner.eat(b':') {
                return Err(unread(&here));
            }
            let colon = (before_colon, self.gap());
            let value = self.value(&here, depth)?;
            let after = self.gap();
            members.push(Member {
                before,
                key: Cow::Borrowed(raw.literal()),
                name,
                colon,
                value,
                after,
            });
            if !self.more(b'}', place)? {
                return Ok(Node::Object(members, ""));
            }
            before = self.gap();
        }
    }

    fn array(&mut self, place: &Place<'_>, depth: usize) -> Result<Node<'a>, Violation> {
        let mut items = Vec::new();
        let mut before = self.gap();
        if self.scanner.eat(b']') {
            return Ok(Node::Array(items, before));
        }
        loop {
            let value = self.value(&Place::Item(place, items.len()), depth)?;
            let after = self.gap();
            items.push(Item { before, value, after });
            if !self.more(b']', place)? {
                return Ok(Node::Array(items, ""));
            }
            before = self.gap();
        }
    }

    /// Whether another item follows before `end`.
    fn more(&mut self, end: u8, place: &Place<'_>) -> Result<bool, Violation> {
        if self.scanner.eat(b',') {
            return Ok(true);
        }
        if self.scanner.eat(end) {
            Ok(false)
        } else {
            Err(unread(place))
        }
    }
}

fn unread(place: &Place<'_>) -> Violation {
    Violation {
        pointer: place.pointer(),
        rule: Rule::Syntax,
        advice: "the text cannot be read".to_owned(),
    }
}
