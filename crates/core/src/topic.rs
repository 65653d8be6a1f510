//! Topic patterns as the broker matches them: `*` is one word, `#` any number of words.

/// A binding pattern.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pattern(Box<str>);
