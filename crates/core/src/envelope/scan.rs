//! Tokens of a JSON text, as slices of it.
//!
//! No grammar check: `walk` reads text that `serde_json` has found valid, and `peek` reads whatever came. On text
//! that is not JSON the scanner gives `None` or nonsense tokens, but always ends and never leaves the text.
//! Nothing here recurses or, but for [`RawStr::decode`], allocates.

use std::borrow::Cow;

use memchr::memchr2;

use super::error::Rule;

/// Reads tokens one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

/// A value; containers are the opening bracket only, with the scanner standing behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    Object,
    Array,
    Str(RawStr<'a>),
    Number(&'a str),
    Bool,
    Null,
}

/// The inside of a string literal, escapes and all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawStr<'a> {
    /// With both quotes.
    literal: &'a str,
    has_escapes: bool,
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// Bytes read so far.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// The next byte that is no white space, left unread.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        let rest = self.rest();
        let skipped = rest
            .iter()
            .position(|b| !matches!(b, b' ' | b'\t' | b'\n' | b'\r'))?;
        self.at += skipped;
        rest.get(skipped).copied()
    }

    /// Reads `byte` if it comes next.
    pub(crate) fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// Reads an object's key and the colon behind it.
    pub(crate) fn key(&mut self) -> Option<RawStr<'a>> {
        let key = self.string()?;
        self.eat(b':').then_some(key)
    }

    /// Reads a scalar, or the opening bracket of a container.
    pub(crate) fn value(&mut self) -> Option<Token<'a>> {
        match self.peek()? {
            b'{' => self.bracket(Token::Object),
            b'[' => self.bracket(Token::Array),
            b'"' => self.string().map(Token::Str),
            b'-' | b'0'..=b'9' => {
                Some(Token::Number(self.run(|b| {
                    matches!(b, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E')
                })))
            }
            _ => match self.run(|b| b.is_ascii_lowercase()) {
                "true" | "false" => Some(Token::Bool),
                "null" => Some(Token::Null),
                _ => None,
            },
        }
    }

    /// Reads on behind the end of the container whose opening bracket was read last.
    pub(crate) fn skip_container(&mut self) -> Option<()> {
        let mut open = 1_usize;
        while open > 0 {
            let skipped = self
                .rest()
                .iter()
                .position(|b| matches!(b, b'"' | b'{' | b'[' | b'}' | b']'))?;
            self.at += skipped;
            match self.peek()? {
                b'"' => {
                    self.string()?;
                }
                b'{' | b'[' => {
                    open += 1;
                    self.at += 1;
                }
                _ => {
                    open -= 1;
                    self.at += 1;
                }
            }
        }
        Some(())
    }

    fn bracket(&mut self, token: Token<'a>) -> Option<Token<'a>> {
        self.at += 1;
        Some(token)
    }

    /// Reads a string.
    pub(crate) fn string(&mut self) -> Option<RawStr<'a>> {
        if self.peek()? != b'"' {
            return None;
        }
        let start = self.at;
        let mut at = start + 1;
        let mut has_escapes = false;
        loop {
            let rest = self.text.as_bytes().get(at..)?;
            let found = memchr2(b'"', b'\\', rest)?;
            at += found;
            if rest.get(found) == Some(&b'"') {
                break;
            }
            has_escapes = true;
            at += 2;
        }
        self.at = at + 1;
        Some(RawStr {
            literal: self.text.get(start..self.at)?,
            has_escapes,
        })
    }

    fn run(&mut self, belongs: impl Fn(u8) -> bool) -> &'a str {
        let rest = self.rest();
        let length = rest.iter().position(|b| !belongs(*b)).unwrap_or(rest.len());
        let start = self.at;
        self.at += length;
        self.text.get(start..self.at).unwrap_or_default()
    }

    fn rest(&self) -> &'a [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }
}

impl<'a> RawStr<'a> {
    /// The whole literal, both quotes included.
    pub(crate) fn literal(self) -> &'a str {
        self.literal
    }

    /// The text between the quotes, escapes not decoded.
    pub(crate) fn raw(self) -> &'a str {
        self.literal.get(1..self.literal.len() - 1).unwrap_or_default()
    }

    /// The text it stands for; `None` if an escape is broken or half of a surrogate pair.
    pub(crate) fn decode(self) -> Option<Cow<'a, str>> {
        if self.has_escapes {
            serde_json::from_str(self.literal).ok().map(Cow::Owned)
        } else {
            Some(Cow::Borrowed(self.raw()))
        }
    }

    /// The rule that the text breaks, if any: no U+0000, no half of a surrogate pair.
    pub(crate) fn broken_rule(self) -> Option<Rule> {
        if !self.has_escapes {
            return None;
        }
        let mut rest = self.raw();
        let mut wants_low = false;
        while let Some(at) = rest.find('\\') {
            let unit = unit(&rest[at..]);
            let low = matches!(unit, Some(0xdc00..=0xdfff));
            // A high half needs the low half at once: nothing may stand between.
            if wants_low != low || (wants_low && at > 0) {
                return Some(Rule::LoneSurrogate);
            }
            if unit == Some(0) {
                return Some(Rule::Nul);
            }
            wants_low = matches!(unit, Some(0xd800..=0xdbff));
            rest = rest
                .get(at + if unit.is_some() { 6 } else { 2 }..)
                .unwrap_or_default();
        }
        wants_low.then_some(Rule::LoneSurrogate)
    }
}

/// The UTF-16 unit of an escape `\uXXXX` at the start of `text`; `None` for the short escapes.
fn unit(text: &str) -> Option<u16> {
    u16::from_str_radix(text.strip_prefix("\\u")?.get(..4)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(literal: &str) -> Option<Rule> {
        Scanner::new(literal).string().unwrap().broken_rule()
    }

    #[test]
    fn nul_and_lone_surrogates_are_found_among_other_escapes() {
        for fine in [
            r#""""#,
            r#""\\u0000""#,
            r#""\ud83d\ude00""#,
            r#""\uD83D\uDE00\n\u4e2d""#,
            r#""\u0001""#,
            r#""\"""#,
        ] {
            assert_eq!(broken(fine), None, "{fine}");
        }
        for nul in [r#""\u0000""#, r#""\\\u0000""#, r#""a\n\u0000""#] {
            assert_eq!(broken(nul), Some(Rule::Nul), "{nul}");
        }
        let lone = [
            r#""\ud800""#,
            r#""\udc00""#,
            r#""\ud800x\udc00""#,
            r#""\ud800\n\udc00""#,
            r#""\ude00\ud83d""#,
        ];
        for lone in lone.into_iter().chain([
            r#""\ud800\ud800\udc00""#,
            r#""\ud800\u0041""#,
            r#""\ud83d\ude00\ude00""#,
        ]) {
            assert_eq!(broken(lone), Some(Rule::LoneSurrogate), "{lone}");
        }
    }

    #[test]
    fn text_that_is_not_json_ends_the_scan() {
        for text in [
            "",
            "\"",
            "\"\\",
            "\"\\\"",
            "tru",
            "\u{e9}",
            "[[[",
            "{\"a",
            "\"a\\é\"",
        ] {
            let mut scanner = Scanner::new(text);
            while scanner.value().is_some() {}
            assert!(scanner.position() <= text.len() + 1, "{text:?}");
            assert_eq!(Scanner::new(text).skip_container(), None, "{text:?}");
        }
    }
}
