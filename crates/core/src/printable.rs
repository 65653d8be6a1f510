//! Text of strangers on a terminal: what would move the cursor, turn a line around or hide is written out.
//!
//! A dead letter's body and error come from anybody, and are read by whoever is on call. Nothing is dropped: each
//! such character is shown as its escape, so that an id with a zero-width space in it looks like one.
//!
//! May import: nothing of ours.

use std::{borrow::Cow, fmt::Write};

/// Whether `c` is one that a terminal obeys instead of showing, or that no reader can see: controls, line and
/// paragraph separators, marks and overrides of direction, characters without width, and tags.
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// A JSON string literal with unsafe characters as JSON escapes: another spelling of the same string.
pub fn literal(literal: &str) -> Cow<'_, str> {
    if !literal.contains(is_unsafe) {
        return Cow::Borrowed(literal);
    }
    let mut out = String::with_capacity(literal.len() + 16);
    for c in literal.chars() {
        if is_unsafe(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a string can't fail.
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// `text` on one line: unsafe characters as `\u{202e}`, tab and line breaks as `\t`, `\n`, `\r`.
pub fn line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        push(&mut out, c);
    }
    out
}

/// `bytes` as text of at most `max_chars` characters of theirs: line breaks and tabs stay, bytes that are no UTF-8
/// are `\xff`, unsafe characters as by [`line()`]. A cut text ends in a line that says how many bytes are left out.
pub fn bytes(bytes: &[u8], max_chars: usize) -> String {
    let (mut out, mut left, mut shown) = (String::new(), max_chars, 0);
    // Invalid parts are at most three bytes long, so a cut never grows the text beyond twelve times the limit.
    'all: for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if left == 0 {
                break 'all;
            }
            left -= 1;
            shown += c.len_utf8();
            match c {
                '\n' | '\t' => out.push(c),
                c => push(&mut out, c),
            }
        }
        for byte in chunk.invalid() {
            if left == 0 {
                break 'all;
            }
            left -= 1;
            shown += 1;
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    if shown < bytes.len() {
        let _ = write!(out, "\n… {} more bytes", bytes.len() - shown);
    }
    out
}

fn push(out: &mut String, c: char) {
    match c {
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        c if is_unsafe(c) => {
            let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
        }
        c => out.push(c),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_written_out() {
        assert_eq!(line("a\u{1b}[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(line("\u{202e}gnp\r\n\t\0"), "\\u{202e}gnp\\r\\n\\t\\u{0}");
        assert_eq!(
            line("C1 \u{9b}31m, \u{200b}, \u{e0041}"),
            "C1 \\u{9b}31m, \\u{200b}, \\u{e0041}"
        );
        assert_eq!(line("订单 naïve 😀"), "订单 naïve 😀");
    }

    #[test]
    fn a_literal_keeps_its_meaning() {
        let hidden = "\"a\u{202e}b\u{e0041}\u{7f}\"";
        let shown = literal(hidden);
        assert_eq!(shown, r#""a\u202eb\udb40\udc41\u007f""#);
        let [one, two]: [String; 2] = [hidden, &shown].map(|text| serde_json::from_str(text).unwrap());
        assert_eq!(one, two);
        assert!(matches!(literal("\"plain\""), Cow::Borrowed(_)));
    }

    #[test]
    fn bytes_of_any_kind_are_shown_and_cut() {
        assert_eq!(bytes(b"a\xff\xfe\n\tb\r", 99), "a\\xff\\xfe\n\tb\\r");
        assert_eq!(bytes("订单订单".as_bytes(), 3), "订单订\n… 3 more bytes");
        assert_eq!(bytes(b"\xff\xff\xff", 2), "\\xff\\xff\n… 1 more bytes");
        assert_eq!(bytes(b"", 0), "");
    }
}
