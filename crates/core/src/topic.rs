//! Topic patterns as the broker matches them: `*` is one word, `#` any number of words.
//!
//! Words are what stands between dots, and an empty word is a word: `a..b` has three, and `*` takes the middle one.
//! Only the empty text has no word at all, so `#` matches it and `*` doesn't: that is how the broker splits.
//! Imports nothing of ours but the length limit.

use std::fmt;

use crate::names::MAX_SHORT_STRING;

/// Most `#` words in one pattern. Newer brokers refuse a binding with more, because each multiplies the work of
/// matching; refusing it here gives the same answer on every version.
pub const MAX_HASHES: usize = 2;

/// A binding pattern.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pattern(Box<str>);

/// Why a text can't be a binding pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Longer than AMQP can carry.
    #[error("binding pattern has {bytes} bytes; AMQP allows at most {MAX_SHORT_STRING}: shorten it")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// More than [`MAX_HASHES`] `#` words.
    #[error(
        "binding pattern has {found} '#' words; the broker allows at most {MAX_HASHES}: use '*' for single words, or bind twice"
    )]
    TooManyHashes {
        /// How many it has.
        found: usize,
    },
}

impl Pattern {
    /// `text` as a pattern: at most 255 bytes and at most two `#` words.
    ///
    /// `*` and `#` are wildcards only as whole words; `a*` is a literal word, as on the broker.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        if text.len() > MAX_SHORT_STRING {
            return Err(PatternError::TooLong { bytes: text.len() });
        }
        let found = words(text).filter(|word| *word == "#").count();
        if found > MAX_HASHES {
            return Err(PatternError::TooManyHashes { found });
        }
        Ok(Self(text.into()))
    }

    /// Whether the broker would route `key` along a binding with this pattern.
    pub fn matches(&self, key: &str) -> bool {
        let key: Vec<&str> = words(key).collect();
        // The set of key positions reached after each pattern word, so that time is words × words in the worst
        // case whatever the number of `#`.
        let mut reached = vec![false; key.len() + 1];
        reached[0] = true;
        for word in words(&self.0) {
            let mut next = vec![false; key.len() + 1];
            match word {
                "#" => {
                    let mut any = false;
                    for (from, to) in reached.iter().zip(&mut next) {
                        any |= *from;
                        *to = any;
                    }
                }
                _ => {
                    for (at, have) in key.iter().enumerate() {
                        next[at + 1] = reached[at] && (word == "*" || word == *have);
                    }
                }
            }
            reached = next;
        }
        reached[key.len()]
    }

    /// A key that both patterns match, if there is one: words that either side leaves open are `x`.
    ///
    /// Exact for patterns without empty words. With them the answer may be `""` for a key of one empty word, which no
    /// text can be; and two long literals may need more than the 255 bytes of a key.
    pub fn common_key(&self, other: &Self) -> Option<String> {
        let (a, b): (Vec<&str>, Vec<&str>) = (words(&self.0).collect(), words(&other.0).collect());
        // What is left of both sides decides, so it is filled from the end: the last word of a common key of
        // `a[i..]` and `b[j..]`, and which rest it leaves.
        let mut step: Vec<Vec<Option<Step<'_>>>> = vec![vec![None; b.len() + 1]; a.len() + 1];
        for i in (0..=a.len()).rev() {
            for j in (0..=b.len()).rev() {
                let goes = |i: usize, j: usize| i <= a.len() && j <= b.len() && step[i][j].is_some();
                step[i][j] = match (a.get(i).copied(), b.get(j).copied()) {
                    (None, None) => Some(Step::End),
                    (Some("#"), _) if goes(i + 1, j) => Some(Step::To(None, i + 1, j)),
                    (_, Some("#")) if goes(i, j + 1) => Some(Step::To(None, i, j + 1)),
                    (Some("#"), Some(word)) if goes(i, j + 1) => Some(Step::To(Some(word), i, j + 1)),
                    (Some(word), Some("#")) if goes(i + 1, j) => Some(Step::To(Some(word), i + 1, j)),
                    (Some("#"), _) | (_, Some("#")) | (None, _) | (_, None) => None,
                    (Some(one), Some(two)) => {
                        let word = match (one, two) {
                            ("*", word) | (word, "*") => Some(word),
                            (one, two) => (one == two).then_some(one),
                        };
                        word.filter(|_| goes(i + 1, j + 1))
                            .map(|word| Step::To(Some(word), i + 1, j + 1))
                    }
                };
            }
        }
        let (mut key, mut at) = (Vec::new(), step[0][0]?);
        while let Step::To(word, i, j) = at {
            key.extend(word.map(|word| if word == "*" { "x" } else { word }));
            at = step[i][j]?;
        }
        Some(key.join("."))
    }

    /// Whether one key can match both patterns. "No" is certain; "yes" is [`common_key`](Self::common_key)'s.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.common_key(other).is_some()
    }

    /// Its words.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        words(&self.0)
    }

    /// Whether it has no wildcard, so that it matches exactly one key.
    pub fn is_literal(&self) -> bool {
        words(&self.0).all(|word| word != "*" && word != "#")
    }

    /// The pattern as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// How a common key of two patterns goes on.
#[derive(Clone, Copy)]
enum Step<'a> {
    /// Both are at their ends.
    End,
    /// With this word, if any, and then from these places of the two.
    To(Option<&'a str>, usize, usize),
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split('.').skip(usize::from(text.is_empty()))
}
