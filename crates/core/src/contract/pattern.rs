//! `pattern`: the part of regular expressions that means the same in every language's library, with a bounded size.
//!
//! Not taken: `.` (each library excludes other line ends), flags, look-around, back references, `\b`, `\s`, `\p` and the
//! set operations of classes. A match costs time linear in the text, whatever the pattern.
//!
//! May import: regex-lite.

use std::{fmt, iter::Peekable, str::Chars};

use regex_lite::{Regex, RegexBuilder};

/// Longest pattern in bytes.
const MAX_BYTES: usize = 512;

/// Most memory of a compiled pattern, in bytes: what bounds repetitions such as `a{1000}`.
const MAX_COMPILED_BYTES: usize = 64 * 1024;

/// Deepest nesting of groups.
const MAX_GROUPS: u32 = 16;

/// Characters that may follow a backslash for themselves.
const ESCAPABLE: &str = r"\.+*?()|[]{}^$/";

/// A pattern, unanchored as in JSON Schema.
#[derive(Clone)]
pub(crate) struct Pattern {
    text: Box<str>,
    regex: Regex,
}

/// Why a pattern isn't taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Longer than 512 bytes.
    #[error("it is over {MAX_BYTES} bytes")]
    TooLong,
    /// A `.` outside of a class.
    #[error(
        "`.` excludes other line ends in each language; name the characters, such as [^\\n] or [A-Za-z0-9]"
    )]
    Dot,
    /// `(?` that doesn't open `(?:`.
    #[error("of the groups with (? only (?: is the same everywhere: no flags, names, look-around")]
    Group,
    /// A backslash before something that isn't the same everywhere.
    #[error("a backslash may stand before d, w, n, r, t and {ESCAPABLE}, inside a class also before -")]
    Escape,
    /// `[` or a doubled operator inside a class.
    #[error(
        "inside a class write \\[ for a bracket and \\- for a hyphen; && -- ~~ mean something in some languages"
    )]
    Class,
    /// The grammar of regular expressions is broken, or the pattern is too large when repetitions are written out.
    #[error("it can't be compiled: brackets that don't match, a repetition of nothing, or too large")]
    Syntax,
}

impl Pattern {
    /// `text` as a pattern.
    pub(crate) fn parse(text: &str) -> Result<Self, PatternError> {
        if text.len() > MAX_BYTES {
            return Err(PatternError::TooLong);
        }
        portable(text)?;
        let regex = RegexBuilder::new(text)
            .size_limit(MAX_COMPILED_BYTES)
            .nest_limit(MAX_GROUPS)
            .build()
            .map_err(|_| PatternError::Syntax)?;
        Ok(Self {
            text: text.into(),
            regex,
        })
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it is found in `text`.
    pub(crate) fn takes(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pattern({})", self.text)
    }
}

/// What stands before a quantifier.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Nothing,
    Atom,
    Quantifier,
    Lazy,
}

fn portable(text: &str) -> Result<(), PatternError> {
    let mut chars = text.chars().peekable();
    let mut before = Before::Nothing;
    while let Some(c) = chars.next() {
        before = match c {
            '\\' => escape(chars.next(), "")?,
            '[' => class(&mut chars)?,
            '.' => return Err(PatternError::Dot),
            '(' => {
                if chars.next_if_eq(&'?').is_some() && chars.next() != Some(':') {
                    return Err(PatternError::Group);
                }
                Before::Nothing
            }
            '^' | '$' | '|' => Before::Nothing,
            '?' if before == Before::Quantifier => Before::Lazy,
            '*' | '+' | '?' | '{' => {
                if before != Before::Atom || (c == '{' && !count(&mut chars)) {
                    return Err(PatternError::Syntax);
                }
                Before::Quantifier
            }
            ']' | '}' => return Err(PatternError::Syntax),
            _ => Before::Atom,
        };
    }
    Ok(())
}

fn escape(c: Option<char>, more: &str) -> Result<Before, PatternError> {
    match c {
        Some('d' | 'w' | 'n' | 'r' | 't') => Ok(Before::Atom),
        Some(c) if ESCAPABLE.contains(c) || more.contains(c) => Ok(Before::Atom),
        _ => Err(PatternError::Escape),
    }
}

/// Reads on behind the `]` of the class whose `[` was read.
fn class(chars: &mut Peekable<Chars<'_>>) -> Result<Before, PatternError> {
    chars.next_if_eq(&'^');
    // A bracket that closes at once is a member in some languages and an empty class in others.
    if chars.peek() == Some(&']') {
        return Err(PatternError::Class);
    }
    let mut after_set = false;
    while let Some(c) = chars.next() {
        let next = chars.peek().copied();
        match c {
            ']' => return Ok(Before::Atom),
            '\\' => {
                escape(chars.next(), "-")?;
            }
            // A range that begins or ends in a set of characters.
            '-' if next == Some('\\') || (after_set && next != Some(']')) => return Err(PatternError::Class),
            '[' => return Err(PatternError::Class),
            '&' | '~' | '-' if next == Some(c) => return Err(PatternError::Class),
            _ => {}
        }
        after_set = c == '\\' && matches!(next, Some('d' | 'w'));
    }
    Err(PatternError::Syntax)
}

/// Reads `3}`, `3,}` or `3,5}`.
fn count(chars: &mut Peekable<Chars<'_>>) -> bool {
    let inside: String = chars.by_ref().take_while(|c| *c != '}').collect();
    let (low, high) = inside.split_once(',').unwrap_or((&inside, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    !low.is_empty() && digits(low) && digits(high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_every_language_reads_alike_is_taken() {
        for (pattern, yes, no) in [
            (r"^-?\d{1,15}\.\d{2}$", "-12.50", "12.5"),
            (r"^(?:a|b)+$", "abba", "abc"),
            (r"^[A-Z]{3}$", "CNY", "cny"),
            ("^[^\n]+$", "größe 任务", "a\nb"),
            ("b", "abc", "acd"),
            (r"^\[\w-/\]$", "[x-/]", "x-/"),
            (r"^[\d\-]+?$", "1-2", "1+2"),
            (r"^[\[\]a.]+$", "[a.]", "[b]"),
            ("^a$", "a", "a\n"),
            (r"^\d$", "7", "٣"),
        ] {
            let compiled = Pattern::parse(pattern).unwrap();
            assert!(compiled.takes(yes) && !compiled.takes(no), "{pattern}");
            assert_eq!(compiled.as_str(), pattern);
        }
    }

    #[test]
    fn what_differs_between_languages_or_grows_without_end_is_refused() {
        let long = "a".repeat(513);
        for (pattern, why) in [
            ("a.c", PatternError::Dot),
            ("(?i)a", PatternError::Group),
            ("(?<n>a)", PatternError::Group),
            ("(?=a)", PatternError::Group),
            (r"(a)\1", PatternError::Escape),
            (r"\bword\b", PatternError::Escape),
            (r"\p{L}", PatternError::Escape),
            (r"\s", PatternError::Escape),
            (r"a\-b", PatternError::Escape),
            (r"\", PatternError::Escape),
            ("[[:alpha:]]", PatternError::Class),
            ("[a&&b]", PatternError::Class),
            ("[a--b]", PatternError::Class),
            (r"[\w-z]", PatternError::Class),
            (r"[a-\d]", PatternError::Class),
            ("[]a]", PatternError::Class),
            ("[^]a]", PatternError::Class),
            ("(a", PatternError::Syntax),
            ("*a", PatternError::Syntax),
            ("^*", PatternError::Syntax),
            ("a++", PatternError::Syntax),
            ("a+??", PatternError::Syntax),
            ("a{,3}", PatternError::Syntax),
            ("a{x}", PatternError::Syntax),
            ("a{2", PatternError::Syntax),
            ("a]", PatternError::Syntax),
            ("[a", PatternError::Syntax),
            ("((((a{100}){100}){100}){100})", PatternError::Syntax),
            (&"(".repeat(200), PatternError::Syntax),
            (&long, PatternError::TooLong),
        ] {
            assert_eq!(Pattern::parse(pattern).unwrap_err(), why, "{pattern}");
        }
    }

    #[test]
    fn a_match_takes_linear_time() {
        let pattern = Pattern::parse("^(a+)+$").unwrap();
        assert!(!pattern.takes(&format!("{}b", "a".repeat(60_000))));
    }
}
