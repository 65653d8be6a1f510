//! An error message without what differs from one occurrence to the next.
//!
//! | in the message | becomes |
//! |---|---|
//! | numbers, ids, uuids, hexadecimal, times, durations, versions: each word with a digit; lists of them | `#` |
//! | a quoted text without spaces that has a digit, and is none of the next | `#` in its quotes |
//! | IP addresses, `host.name:port`, `localhost:port`, e-mail | `<addr>` |
//! | URLs | `<url>` |
//! | absolute paths and those from `.`, `..`, `~`, `C:` | `<path>` |
//! | line breaks, controls, NUL, runs of spaces | one space |
//! | indented lines after the first, Go's goroutines, Rust's and Python's backtraces | nothing |
//!
//! A short number behind `status`, `code`, `errno`, `HTTP`, `exit` and the like stays, for it says what has failed and
//! not for whom: 404 and 503 are two faults. Quoted names without digits stay for the same reason.
//!
//! Linear in the message but for bounded looks ahead; only the first [`MAX_INPUT`] bytes are looked at.

use super::shape::{self, Shape};

/// Longest result in characters, with the `…` of one that was cut.
pub const MAX_CHARS: usize = 300;

/// How much of a message is looked at, in bytes.
const MAX_INPUT: usize = 8 * 1024;

/// Words that a code follows: the word in lower case, what may stand between, and the most digits.
const CODES: [(&str, &str, usize); 12] = [
    ("status", " =:(", 3),
    ("code", " =:([#", 3),
    ("statuscode", " =:\"'", 3),
    ("status_code", " =:\"'", 3),
    ("errorcode", " =:\"'", 3),
    ("error_code", " =:\"'", 3),
    ("errno", " =:", 4),
    ("http", " =:", 3),
    ("exit", " =:", 3),
    ("error", " ", 4),
    ("signal", " =:", 2),
    ("sqlstate", " =:([", 5),
];

/// Longest gap between such a word and its code.
const MAX_GAP: usize = 3;

/// `message` reduced to what its fault has in common with others of the kind: one line, at most [`MAX_CHARS`] characters,
/// no control characters.
pub fn normalise(message: &str) -> String {
    let text = kept_lines(cut(message, MAX_INPUT));
    let mut out = Out::default();
    let (mut at, mut before) = (0, None);
    while let Some(c) = text[at..].chars().next() {
        if out.chars > MAX_CHARS {
            break;
        }
        let rest = &text[at..];
        let length = match shape::recognise(rest, before) {
            _ if c.is_ascii_control() || c == ' ' => {
                out.space();
                1
            }
            Shape::Quoted { open, close, length } => {
                out.char(open);
                out.value();
                out.char(close);
                length
            }
            Shape::Placeholder(name, length) => {
                out.literal(name);
                length
            }
            Shape::Value(length) => {
                out.value_or_code(&rest[..length]);
                length
            }
            Shape::Word(length) => {
                out.word(&rest[..length], &rest[length..]);
                length
            }
            Shape::Other => {
                out.char(c);
                c.len_utf8()
            }
        };
        at += length;
        before = text[..at].chars().next_back();
    }
    out.finish()
}

/// `text` without the lines of a stack, each line break a space.
fn kept_lines(text: &str) -> String {
    let (mut kept, mut seen) = (String::with_capacity(text.len()), false);
    for line in text.split(['\n', '\r']).filter(|line| !line.trim().is_empty()) {
        let is_indented = line.starts_with([' ', '\t']);
        if line.starts_with("goroutine ") || line.starts_with("stack backtrace:") {
            break;
        }
        let is_stack = line.starts_with("Traceback (most recent call last)")
            || line.starts_with("note: run with `RUST_BACKTRACE");
        if !(is_stack || is_indented && seen) {
            if !kept.is_empty() {
                kept.push(' ');
            }
            kept.push_str(line);
        }
        seen = true;
    }
    if kept.is_empty() { text.to_owned() } else { kept }
}

fn cut(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[derive(Default)]
struct Out {
    text: String,
    chars: usize,
    /// The row of [`CODES`] whose word stands just before, and how long the gap since is.
    code: Option<(usize, usize)>,
}

impl Out {
    fn push(&mut self, text: &str) {
        self.text.push_str(text);
        self.chars += text.chars().count();
    }

    fn space(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with(' ') {
            self.push(" ");
        }
        self.gap(' ');
    }

    fn char(&mut self, c: char) {
        self.push(c.encode_utf8(&mut [0; 4]));
        self.gap(c);
    }

    fn literal(&mut self, text: &str) {
        self.push(text);
        self.code = None;
    }

    fn gap(&mut self, c: char) {
        self.code = match self.code {
            Some((row, gap)) if gap < MAX_GAP && CODES[row].1.contains(c) => Some((row, gap + 1)),
            // `HTTP/1.1 503`: the version follows, then the code.
            Some((row, 0)) if c == '/' && CODES[row].0 == "http" => Some((row, MAX_GAP + 1)),
            _ => None,
        };
    }

    fn word(&mut self, word: &str, rest: &str) {
        let is_month = [
            "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
        ]
        .contains(&word)
            && self.text.ends_with("# ");
        let is_day = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"].contains(&word)
            && rest
                .strip_prefix(", ")
                .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        if is_month || is_day {
            return self.value();
        }
        self.push(word);
        let lower = word.to_ascii_lowercase();
        self.code = CODES
            .iter()
            .position(|(code, ..)| *code == lower)
            .map(|row| (row, 0));
    }

    fn value_or_code(&mut self, value: &str) {
        match self.code {
            Some((row, gap)) if gap == MAX_GAP + 1 => {
                self.push(value);
                self.code = Some((row, 0));
            }
            Some((row, gap)) if gap > 0 && is_code(value, &CODES[row]) => self.literal(value),
            _ => self.value(),
        }
    }

    /// A `#`, unless it would only lengthen a list of them.
    fn value(&mut self) {
        let list = self.text.trim_end_matches([' ', ',']);
        if list.ends_with('#') {
            let end = list.len();
            self.chars -= self.text.len() - end;
            self.text.truncate(end);
        } else {
            self.push("#");
        }
        self.code = None;
    }

    fn finish(self) -> String {
        let text = self.text.trim_end();
        match text.char_indices().nth(MAX_CHARS) {
            None => text.to_owned(),
            Some(_) => text.chars().take(MAX_CHARS - 1).chain(['…']).collect(),
        }
    }
}

/// Whether `value` is a code as the row of [`CODES`] has it. Those of SQL hold letters too.
fn is_code(value: &str, (word, _, most): &(&str, &str, usize)) -> bool {
    match *word {
        "sqlstate" => value.len() == *most && value.bytes().all(|b| b.is_ascii_alphanumeric()),
        _ => value.len() <= *most && value.bytes().all(|b| b.is_ascii_digit()),
    }
}
