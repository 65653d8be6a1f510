//! Rust source as far as the checks read it: comments and texts blanked out, tests cut off, names of paths found.
//! No parser: what it looks for stands in plain sight, and rustfmt has written it.

/// `text` with every comment and the inside of every string blanked out; line breaks stay, so lines keep their numbers.
pub(crate) fn code(text: &str) -> String {
    let bytes: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    let keep_breaks = |out: &mut String, from: &[char]| {
        out.extend(from.iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
    };
    while at < bytes.len() {
        let rest = &bytes[at..];
        let end = if rest.starts_with(&['/', '/']) {
            rest.iter().position(|c| *c == '\n').unwrap_or(rest.len())
        } else if let Some(hashes) = raw_string(rest, at.checked_sub(1).map(|before| bytes[before])) {
            let close: Vec<char> = std::iter::once('"')
                .chain(std::iter::repeat_n('#', hashes))
                .collect();
            let start = hashes + 2;
            (start..rest.len())
                .find(|i| rest[*i..].starts_with(&close))
                .map_or(rest.len(), |i| i + close.len())
        } else if rest[0] == '"' {
            string(rest)
        } else if rest.starts_with(&['\'', '"', '\'']) || rest.starts_with(&['\'', '\\']) {
            // A character that would look like the start of a string.
            rest.iter()
                .skip(2)
                .position(|c| *c == '\'')
                .map_or(rest.len(), |i| i + 3)
        } else {
            out.push(rest[0]);
            at += 1;
            continue;
        };
        keep_breaks(&mut out, &rest[..end]);
        at += end;
    }
    out
}

/// How many `#` the raw string at the start of `rest` has.
fn raw_string(rest: &[char], before: Option<char>) -> Option<usize> {
    if rest[0] != 'r' || before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
        return None;
    }
    let hashes = rest[1..].iter().take_while(|c| **c == '#').count();
    (rest.get(1 + hashes) == Some(&'"')).then_some(hashes)
}

fn string(rest: &[char]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// `code` up to its unit tests.
pub(crate) fn without_tests(code: &str) -> &str {
    [
        "\n#[cfg(test)]\nmod tests {",
        "\n#[cfg(test)]\npub(crate) mod tests {",
    ]
    .iter()
    .find_map(|start| code.find(start))
    .map_or(code, |end| &code[..end])
}

/// A name at the root of a path, and the line it stands in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Used {
    pub(crate) name: String,
    pub(crate) line: usize,
}

/// The names that directly follow `prefix` (`crate::`, say): one, or each of a `{…}`.
pub(crate) fn after(code: &str, prefix: &str) -> Vec<Used> {
    let mut used = Vec::new();
    for (start, _) in code.match_indices(prefix) {
        if code[..start]
            .chars()
            .next_back()
            .is_some_and(|c| is_name(c) || c == ':' || c == '$')
        {
            continue;
        }
        let from = start + prefix.len();
        if code[from..].starts_with('{') {
            group(code, from + 1, &mut used);
        } else {
            name_at(code, from, &mut used);
        }
    }
    used
}

/// The first names of a group, not those inside its own groups.
fn group(code: &str, from: usize, used: &mut Vec<Used>) {
    let (mut depth, mut at_start) = (0, true);
    for (offset, c) in code[from..].char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => return,
            '}' => depth -= 1,
            ',' if depth == 0 => at_start = true,
            c if is_name(c) && at_start && depth == 0 => {
                name_at(code, from + offset, used);
                at_start = false;
            }
            _ => {}
        }
    }
}

fn name_at(code: &str, from: usize, used: &mut Vec<Used>) {
    let name: String = code[from..].chars().take_while(|c| is_name(*c)).collect();
    if !name.is_empty() {
        let line = line_of(code, from);
        used.push(Used { name, line });
    }
}

/// Lines in which a path begins with the crate `name`.
pub(crate) fn lines_using(code: &str, name: &str) -> Vec<usize> {
    let starts = |start: usize| {
        let before = code[..start].chars().next_back();
        let after = &code[start + name.len()..];
        !before.is_some_and(|c| is_name(c) || c == ':' || c == '.')
            && (after.starts_with("::") || after.starts_with(';') && code[..start].ends_with("use "))
    };
    code.match_indices(name)
        .filter(|(start, _)| starts(*start))
        .map(|(start, _)| line_of(code, start))
        .collect()
}

fn line_of(code: &str, at: usize) -> usize {
    code[..at].matches('\n').count() + 1
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[test]
fn paths_are_found_and_texts_are_not() {
    let source = "//! crate::a::b\nuse crate::{\n    store::{x, y::z},\n    broker,\n};\nlet s = \"crate::c \\\" crate::d\";\nlet r = r#\"crate::e\"#;\nlet q = '\"'; crate::f::g();\nmycrate::h();\n#[cfg(test)]\nmod tests {\n    use crate::i;\n}\n";
    let code = code(source);
    assert_eq!(code.matches('\n').count(), source.matches('\n').count());
    let found: Vec<_> = after(without_tests(&code), "crate::")
        .into_iter()
        .map(|used| (used.name, used.line))
        .collect();
    let expected = [("store", 3), ("broker", 4), ("f", 8)].map(|(name, line)| (name.to_owned(), line));
    assert_eq!(found, expected);
}

#[test]
fn a_crate_is_used_by_path_or_by_name() {
    let code =
        code("use sqlx;\nuse sqlx::PgPool;\nself.sqlx::x; a::sqlx::b; my_sqlx::c;\nlet x: sqlx::Error;\n");
    assert_eq!(lines_using(&code, "sqlx"), [1, 2, 4]);
}
