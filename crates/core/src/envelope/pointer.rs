//! Where in the body a value stands, kept on the stack and written as a JSON pointer only for a violation.

use super::scan::RawStr;
use crate::printable;

/// Longest key shown, in characters.
const SHOWN_KEY_CHARS: usize = 64;

/// A place in the body: its parent's place and one step.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place<'p> {
    Body,
    Key(&'p Place<'p>, RawStr<'p>),
    Item(&'p Place<'p>, usize),
}

impl Place<'_> {
    /// The place as an RFC 6901 pointer.
    pub(crate) fn pointer(&self) -> String {
        let mut pointer = String::new();
        self.write(&mut pointer);
        pointer
    }

    // The recursion is as deep as the walk that made the place, which `walk` bounds.
    fn write(&self, out: &mut String) {
        match self {
            Self::Body => {}
            Self::Key(parent, key) => {
                parent.write(out);
                out.push('/');
                out.push_str(
                    &shown(&key.decode().unwrap_or_default())
                        .replace('~', "~0")
                        .replace('/', "~1"),
                );
            }
            Self::Item(parent, index) => {
                parent.write(out);
                out.push('/');
                out.push_str(&index.to_string());
            }
        }
    }
}

/// `key` fit for an error: cut, and without characters that would break a log line or turn it around.
pub(crate) fn shown(key: &str) -> String {
    let mut chars = key.chars();
    let mut shown: String = chars
        .by_ref()
        .take(SHOWN_KEY_CHARS)
        .map(|c| {
            if printable::is_unsafe(c) {
                char::REPLACEMENT_CHARACTER
            } else {
                c
            }
        })
        .collect();
    if chars.next().is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_shown_on_one_line_and_cut() {
        assert_eq!(shown("a\nb\u{202e}c"), "a\u{fffd}b\u{fffd}c");
        assert_eq!(shown(&"é".repeat(64)), "é".repeat(64));
        assert_eq!(shown(&"é".repeat(65)), format!("{}…", "é".repeat(64)));
    }
}
