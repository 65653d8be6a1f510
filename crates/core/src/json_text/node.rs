//! The tree: each node with its own text, and with the white space between its parts.
//!
//! Every function that recurses does so along a tree whose depth was limited when it was read or edited.

use std::{borrow::Cow, fmt};

use super::{edit, equal};

/// A value.
#[derive(Clone)]
pub(crate) enum Node<'a> {
    Object(Vec<Member<'a>>, Empty<'a>),
    Array(Vec<Item<'a>>, Empty<'a>),
    /// The literal, quotes and escapes included.
    Str(Cow<'a, str>),
    Number(Cow<'a, str>),
    /// `true`, `false` or `null`.
    Word(&'a str),
}

/// The white space inside a container that has nothing else.
pub(crate) type Empty<'a> = &'a str;

/// `before "key" colon.0 : colon.1 value after`, up to the comma or the bracket.
#[derive(Clone)]
pub(crate) struct Member<'a> {
    pub(super) before: &'a str,
    /// The key's literal.
    pub(super) key: Cow<'a, str>,
    /// The key, escapes decoded.
    pub(super) name: Cow<'a, str>,
    pub(super) colon: (&'a str, &'a str),
    pub(super) value: Node<'a>,
    pub(super) after: &'a str,
}

/// `before value after`, up to the comma or the bracket.
#[derive(Clone)]
pub(crate) struct Item<'a> {
    pub(super) before: &'a str,
    pub(super) value: Node<'a>,
    pub(super) after: &'a str,
}

impl<'a> Node<'a> {
    /// A string node with this content.
    pub(crate) fn string(content: &str) -> Self {
        Self::Str(Cow::Owned(literal(content)))
    }

    /// A number node.
    pub(crate) fn number(number: u32) -> Self {
        Self::Number(Cow::Owned(number.to_string()))
    }

    /// Its content if it is a string without a half of a surrogate pair.
    pub(crate) fn as_string(&self) -> Option<Cow<'_, str>> {
        let Self::Str(literal) = self else { return None };
        if literal.contains('\\') {
            return serde_json::from_str(literal).ok().map(Cow::Owned);
        }
        literal.get(1..literal.len() - 1).map(Cow::Borrowed)
    }

    /// Its digits if it is a number.
    pub(crate) fn as_number(&self) -> Option<&str> {
        match self {
            Self::Number(text) => Some(text),
            _ => None,
        }
    }

    /// The values of an array.
    pub(crate) fn items(&self) -> Option<impl ExactSizeIterator<Item = &Self>> {
        match self {
            Self::Array(items, _) => Some(items.iter().map(|item| &item.value)),
            _ => None,
        }
    }

    /// The members of an object, names with escapes decoded.
    pub(crate) fn members(&self) -> Option<impl ExactSizeIterator<Item = (&str, &Self)>> {
        match self {
            Self::Object(members, _) => Some(members.iter().map(|m| (&*m.name, &m.value))),
            _ => None,
        }
    }

    /// The value of an object's member.
    pub(crate) fn member(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Object(members, _) => members.iter().find(|m| m.name == name).map(|m| &m.value),
            _ => None,
        }
    }

    /// The value that `steps` lead to.
    pub(crate) fn at(&self, steps: &[Box<str>]) -> Option<&Self> {
        let mut node = self;
        for step in steps {
            node = match node {
                Self::Array(items, _) => &items.get(edit::index(step)?)?.value,
                node => node.member(step)?,
            };
        }
        Some(node)
    }

    /// Whether both are the same value, however they are written.
    pub(crate) fn same_value(&self, other: &Node<'_>) -> bool {
        equal::same(self, other)
    }

    /// Length of its text.
    pub(crate) fn bytes(&self) -> usize {
        // Brackets, and a comma behind all but the last.
        let around = |count: usize| 2 + count.saturating_sub(1);
        match self {
            Self::Object(members, empty) => {
                let members_bytes: usize = members.iter().map(Member::bytes).sum();
                members_bytes + around(members.len()) + if members.is_empty() { empty.len() } else { 0 }
            }
            Self::Array(items, empty) => {
                let items_bytes: usize = items
                    .iter()
                    .map(|i| i.before.len() + i.value.bytes() + i.after.len())
                    .sum();
                items_bytes + around(items.len()) + if items.is_empty() { empty.len() } else { 0 }
            }
            Self::Str(text) | Self::Number(text) => text.len(),
            Self::Word(text) => text.len(),
        }
    }

    /// How many containers are inside each other here.
    pub(crate) fn depth(&self) -> usize {
        match self {
            Self::Object(members, _) => 1 + members.iter().map(|m| m.value.depth()).max().unwrap_or(0),
            Self::Array(items, _) => 1 + items.iter().map(|i| i.value.depth()).max().unwrap_or(0),
            _ => 0,
        }
    }
}

impl Member<'_> {
    fn bytes(&self) -> usize {
        let colon = self.colon.0.len() + 1 + self.colon.1.len();
        self.before.len() + self.key.len() + colon + self.value.bytes() + self.after.len()
    }
}

/// `content` as a literal.
pub(super) fn literal(content: &str) -> String {
    // A string always has a JSON form; should that ever fail, an empty one is still JSON.
    serde_json::to_string(content).unwrap_or_else(|_| "\"\"".to_owned())
}

impl fmt::Display for Node<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(members, empty) if members.is_empty() => write!(f, "{{{empty}}}"),
            Self::Array(items, empty) if items.is_empty() => write!(f, "[{empty}]"),
            Self::Object(members, _) => {
                for (at, m) in members.iter().enumerate() {
                    f.write_str(if at == 0 { "{" } else { "," })?;
                    write!(f, "{}{}{}:{}", m.before, m.key, m.colon.0, m.colon.1)?;
                    write!(f, "{}{}", m.value, m.after)?;
                }
                f.write_str("}")
            }
            Self::Array(items, _) => {
                for (at, item) in items.iter().enumerate() {
                    f.write_str(if at == 0 { "[" } else { "," })?;
                    write!(f, "{}{}{}", item.before, item.value, item.after)?;
                }
                f.write_str("]")
            }
            Self::Str(text) | Self::Number(text) => f.write_str(text),
            Self::Word(text) => f.write_str(text),
        }
    }
}

impl fmt::Debug for Node<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node({} bytes)", self.bytes())
    }
}
