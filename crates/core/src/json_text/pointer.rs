//! JSON pointers of RFC 6901, parsed once.

use std::fmt;

/// A pointer: the steps from the root to a value. The empty one is the root.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pointer {
    text: Box<str>,
    steps: Box<[Box<str>]>,
}

/// Why a text is no pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PointerError {
    /// Longer than [`Pointer::MAX_BYTES`].
    #[error("a pointer has at most {} bytes", Pointer::MAX_BYTES)]
    TooLong,
    /// Not empty, and no slash first.
    #[error("a pointer is empty (the whole text) or begins with '/'")]
    NoSlash,
    /// A `~` that is neither `~0` nor `~1`.
    #[error("in a pointer '~' is written ~0 and '/' in a key ~1")]
    BadEscape,
}

impl Pointer {
    /// Longest pointer in bytes.
    pub const MAX_BYTES: usize = 4 * 1024;

    /// `text` as a pointer.
    pub fn parse(text: &str) -> Result<Self, PointerError> {
        if text.len() > Self::MAX_BYTES {
            return Err(PointerError::TooLong);
        }
        let steps = match text.strip_prefix('/') {
            None if text.is_empty() => Vec::new(),
            None => return Err(PointerError::NoSlash),
            Some(rest) => rest.split('/').map(step).collect::<Result<_, _>>()?,
        };
        Ok(Self {
            text: text.into(),
            steps: steps.into(),
        })
    }

    /// The pointer to `name` at the top level.
    pub fn to_member(name: &str) -> Self {
        Self {
            text: format!("/{}", name.replace('~', "~0").replace('/', "~1")).into(),
            steps: [name.into()].into(),
        }
    }

    /// The steps, unescaped.
    pub fn steps(&self) -> &[Box<str>] {
        &self.steps
    }

    /// Whether it leads to a value that holds the one at `other`.
    pub fn is_above(&self, other: &Self) -> bool {
        self.steps.len() < other.steps.len() && other.steps.starts_with(&self.steps)
    }

    /// The pointer as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn step(text: &str) -> Result<Box<str>, PointerError> {
    let mut rest = text;
    while let Some(at) = rest.find('~') {
        rest = &rest[at + 1..];
        if !rest.starts_with(['0', '1']) {
            return Err(PointerError::BadEscape);
        }
    }
    // `~01` is a tilde and a one, so the slashes come first.
    Ok(text.replace("~1", "/").replace("~0", "~").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_rfc_6901_are_read() {
        for (text, steps) in [
            ("", &[] as &[&str]),
            ("/", &[""]),
            ("/foo/0", &["foo", "0"]),
            ("/a~1b", &["a/b"]),
            ("/m~0n", &["m~n"]),
            ("/~01", &["~1"]),
            ("/ /\u{e9}", &[" ", "\u{e9}"]),
            ("//a/", &["", "a", ""]),
        ] {
            let pointer = Pointer::parse(text).unwrap();
            let found: Vec<&str> = pointer.steps().iter().map(|s| &**s).collect();
            assert_eq!(found, steps, "{text}");
        }
        for (text, why) in [
            ("a", PointerError::NoSlash),
            ("#/a", PointerError::NoSlash),
            ("/~", PointerError::BadEscape),
            ("/a~2", PointerError::BadEscape),
            ("/~0~", PointerError::BadEscape),
            (&"/".repeat(5_000), PointerError::TooLong),
        ] {
            assert_eq!(Pointer::parse(text), Err(why));
        }
    }

    #[test]
    fn a_pointer_is_above_what_it_holds_and_not_above_itself() {
        let is_above = |a: &str, b: &str| Pointer::parse(a).unwrap().is_above(&Pointer::parse(b).unwrap());
        assert!(is_above("", "/a") && is_above("/a", "/a/b"));
        assert!(!is_above("/a", "/a") && !is_above("/a", "/ab") && !is_above("/a/b", "/a"));
        assert_eq!(Pointer::to_member("a/~b"), Pointer::parse("/a~1~0b").unwrap());
    }
}
