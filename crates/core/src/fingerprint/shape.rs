//! What stands at one place of a message: a URL, an address, a path, a value, a word.
//!
//! Each function looks at the start of the text it is given and says how many bytes belong to what it knows. Bytes of ASCII
//! only are classified, so every length ends on a character boundary.

/// What a place begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// A quoted id, quotes included in the length in bytes.
    Quoted { open: char, close: char, length: usize },
    /// A thing with a placeholder of its own.
    Placeholder(&'static str, usize),
    /// A word with a digit in it.
    Value(usize),
    /// A word without.
    Word(usize),
    /// One character of something else.
    Other,
}

/// Longest quoted id in bytes.
const MAX_QUOTED: usize = 128;

/// How far is looked ahead for an address, in bytes.
const MAX_RUN: usize = 256;

/// Endings of files that a line number follows, as a port follows a host.
const FILES: [&str; 26] = [
    "go", "rs", "py", "js", "ts", "mjs", "cjs", "jsx", "tsx", "java", "kt", "scala", "rb", "php", "c", "cc",
    "cpp", "h", "cs", "swift", "ex", "sql", "json", "xml", "yaml", "toml",
];

/// What `text`, which stands behind `before`, begins with.
pub(super) fn recognise(text: &str, before: Option<char>) -> Shape {
    // Non-ASCII letters end a word: in Chinese a number stands between them without spaces.
    if before.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Shape::Other;
    }
    if let Some(quoted) = quoted(text) {
        return quoted;
    }
    if let Some(named) = named(text, before) {
        return named;
    }
    let length = word(text);
    match &text[..length] {
        "" => Shape::Other,
        word if is_value(word) => Shape::Value(length),
        _ => Shape::Word(length),
    }
}

/// The things with a placeholder of their own.
fn named(text: &str, before: Option<char>) -> Option<Shape> {
    let address = || {
        email(text)
            .or_else(|| ipv4(text))
            .or_else(|| ipv6(text))
            .or_else(|| host(text))
    };
    url(text)
        .map(|length| Shape::Placeholder("<url>", length))
        .or_else(|| address().map(|length| Shape::Placeholder("<addr>", length)))
        .or_else(|| path(text, before).map(|length| Shape::Placeholder("<path>", length)))
}

fn quoted(text: &str) -> Option<Shape> {
    let open = text.chars().next()?;
    let close = match open {
        '"' | '\'' | '`' => open,
        '“' => '”',
        '‘' => '’',
        '«' => '»',
        _ => return None,
    };
    let inside = &text[open.len_utf8()..];
    // A path is a path with digits in it or without.
    if named(inside, Some(open)).is_some() {
        return None;
    }
    let mut has_digit = false;
    for (at, c) in inside.char_indices().take_while(|(at, _)| *at <= MAX_QUOTED) {
        if c == close {
            let length = open.len_utf8() + at + close.len_utf8();
            return has_digit.then_some(Shape::Quoted { open, close, length });
        }
        if c.is_ascii_whitespace() {
            return None;
        }
        has_digit |= c.is_ascii_digit();
    }
    None
}

/// How many bytes at the start belong, up to more than any address has: so that no message takes quadratic time.
fn run(text: &str, belongs: impl Fn(u8) -> bool) -> usize {
    text.bytes().take(MAX_RUN).take_while(|b| belongs(*b)).count()
}

/// Up to where a URL or a path reaches, without the punctuation of the sentence around it.
fn until_space(text: &str) -> usize {
    let ends = |c: char| c.is_ascii_whitespace() || c.is_ascii_control() || "\"'`<>(){},;|”’»".contains(c);
    let end = text.find(ends).unwrap_or(text.len());
    text[..end].trim_end_matches(['.', ':', '!', '?', ']']).len()
}

fn url(text: &str) -> Option<usize> {
    let scheme = run(text, |b| b.is_ascii_alphanumeric() || b"+.-".contains(&b));
    let starts = (2..=16).contains(&scheme)
        && text.as_bytes()[0].is_ascii_alphabetic()
        && text[scheme..].starts_with("://");
    starts.then(|| until_space(text))
}

fn email(text: &str) -> Option<usize> {
    let name = run(text, |b| b.is_ascii_alphanumeric() || b"._%+-".contains(&b));
    let domain = text[name..].strip_prefix('@').filter(|_| name > 0)?;
    let length = run(domain, |b| b.is_ascii_alphanumeric() || b".-".contains(&b));
    let domain = domain[..length].trim_end_matches('.');
    let (_, last) = domain.rsplit_once('.')?;
    (last.len() >= 2 && last.bytes().all(|b| b.is_ascii_alphabetic())).then_some(name + 1 + domain.len())
}

fn ipv4(text: &str) -> Option<usize> {
    let mut at = 0;
    for octet in 0..4 {
        if octet > 0 {
            text[at..].strip_prefix('.')?;
            at += 1;
        }
        let digits = run(&text[at..], |b| b.is_ascii_digit());
        if !(1..=3).contains(&digits) {
            return None;
        }
        at += digits;
    }
    let rest = &text[at..];
    let goes_on = rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        || rest
            .strip_prefix('.')
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    (!goes_on).then(|| at + port(rest))
}

fn ipv6(text: &str) -> Option<usize> {
    let (open, inside) = match text.strip_prefix('[') {
        Some(inside) => (1, inside),
        None => (0, text),
    };
    let length = run(inside, |b| b.is_ascii_hexdigit() || b":.".contains(&b));
    let bare = inside[..length].trim_end_matches('.');
    // A colon of the sentence behind it, unless the address ends in its own two.
    let address = match bare.strip_suffix(':') {
        Some(cut) if !cut.ends_with(':') => cut,
        _ => bare,
    };
    let colons = address.bytes().filter(|b| *b == b':').count();
    let fits = address.bytes().any(|b| b.is_ascii_digit())
        && (colons == 7 || (2..=7).contains(&colons) && address.contains("::"));
    let mut rest = &inside[address.len()..];
    let zone = match rest.strip_prefix('%') {
        Some(zone) => 1 + run(zone, |b| b.is_ascii_alphanumeric()),
        None => 0,
    };
    rest = &rest[zone..];
    if !fits || rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') {
        return None;
    }
    let inner = address.len() + zone;
    match open {
        0 => Some(inner),
        _ => rest.strip_prefix(']').map(|rest| inner + 2 + port(rest)),
    }
}

/// `host.name:port`; one with no dot is taken for a host only if it is `localhost`.
fn host(text: &str) -> Option<usize> {
    let length = run(text, |b| b.is_ascii_alphanumeric() || b".-".contains(&b));
    let name = &text[..length];
    let last = name.rsplit('.').next().unwrap_or_default();
    let is_name = last != name
        && !last.is_empty()
        && last.bytes().all(|b| b.is_ascii_alphabetic())
        && !FILES.contains(&last);
    let port = port(&text[length..]);
    ((is_name || name == "localhost") && port > 0).then_some(length + port)
}

/// `:port` or `/bits`, if it ends there.
fn port(text: &str) -> usize {
    let digits = match text.strip_prefix([':', '/']) {
        Some(rest) => run(rest, |b| b.is_ascii_digit()),
        None => return 0,
    };
    let rest = &text[1 + digits..];
    let goes_on = rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        || rest
            .strip_prefix(':')
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    if (1..=5).contains(&digits) && !goes_on {
        1 + digits
    } else {
        0
    }
}

fn path(text: &str, before: Option<char>) -> Option<usize> {
    if before.is_some_and(|c| !c.is_ascii_whitespace() && !"\"'`([{=:,<“‘«".contains(c)) {
        return None;
    }
    let rest = text
        .strip_prefix("~/")
        .or_else(|| text.strip_prefix("../"))
        .or_else(|| text.strip_prefix("./"))
        .or_else(|| text.strip_prefix('/'))
        .or_else(|| {
            let rest = text.strip_prefix(|c: char| c.is_ascii_alphabetic())?;
            rest.strip_prefix(":\\").or_else(|| rest.strip_prefix(":/"))
        })?;
    let starts = rest.starts_with(|c: char| c.is_alphanumeric() || "._~-".contains(c));
    starts.then(|| until_space(text))
}

/// Letters, digits and `_`; `-` inside; `.`, `,`, `:`, `/` and `+` between digits.
fn word(text: &str) -> usize {
    let bytes = text.as_bytes();
    let is_word = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    let is_digit = |b: Option<&u8>| b.is_some_and(u8::is_ascii_digit);
    let mut at = usize::from(matches!(bytes.first(), Some(b'-' | b'+')) && is_digit(bytes.get(1)));
    if !is_word(bytes.get(at)) {
        return 0;
    }
    let mut has_digit = false;
    while let Some(byte) = bytes.get(at) {
        let (last, next) = (at.checked_sub(1).and_then(|at| bytes.get(at)), bytes.get(at + 1));
        match byte {
            b if is_word(Some(b)) => has_digit |= b.is_ascii_digit(),
            b'-' if is_word(next) => {}
            b'.' | b',' | b':' | b'/' if is_digit(last) && is_digit(next) => {}
            b'+' if has_digit && is_digit(next) => {}
            // The micro sign of `15µs`, in either of its two code points.
            _ if is_digit(last) && text[at..].starts_with(['\u{b5}', '\u{3bc}']) => at += 1,
            _ => break,
        }
        at += 1;
    }
    at
}

fn is_value(word: &str) -> bool {
    let all = |belongs: fn(&u8) -> bool| word.len() >= 8 && word.bytes().all(|b| belongs(&b));
    word.bytes().any(|b| b.is_ascii_digit())
        || all(|b| (b'a'..=b'f').contains(b))
        || all(|b| (b'A'..=b'F').contains(b))
}
