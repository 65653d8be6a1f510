//! Equality of JSON values as RFC 6902 has it for `test`: numbers by value, strings by content, objects whatever the
//! order of their keys.
//!
//! No number passes through a float: `decimal` compares them digit by digit.

use std::collections::HashMap;

use super::{decimal::Decimal, node::Node};

/// Whether both are the same value. Recursion is as deep as the shallower of the two.
pub(super) fn same(one: &Node<'_>, two: &Node<'_>) -> bool {
    match (one, two) {
        (Node::Object(one, _), Node::Object(two, _)) => {
            // By hash, because looking each key up among all would be quadratic.
            let two: HashMap<&str, &Node<'_>> = two.iter().map(|m| (&*m.name, &m.value)).collect();
            one.len() == two.len()
                && one
                    .iter()
                    .all(|m| two.get(&*m.name).is_some_and(|other| same(&m.value, other)))
        }
        (Node::Array(one, _), Node::Array(two, _)) => {
            one.len() == two.len() && one.iter().zip(two).all(|(a, b)| same(&a.value, &b.value))
        }
        (Node::Str(one), Node::Str(two)) => one == two || units(one) == units(two),
        (Node::Number(one), Node::Number(two)) => one == two || Decimal::of(one) == Decimal::of(two),
        (Node::Word(one), Node::Word(two)) => one == two,
        _ => false,
    }
}

/// The content of a valid literal as UTF-16, which also holds halves of surrogate pairs.
fn units(literal: &str) -> Vec<u16> {
    let mut units = Vec::with_capacity(literal.len());
    let mut chars = literal.get(1..literal.len() - 1).unwrap_or_default().chars();
    while let Some(c) = chars.next() {
        let c = match (c, c == '\\') {
            (c, false) => c,
            (_, true) => match chars.next() {
                Some('u') => {
                    let hex: String = chars.by_ref().take(4).collect();
                    units.extend(u16::from_str_radix(&hex, 16));
                    continue;
                }
                Some('b') => '\u{8}',
                Some('f') => '\u{c}',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('t') => '\t',
                Some(other) => other,
                None => continue,
            },
        };
        units.extend_from_slice(c.encode_utf16(&mut [0; 2]));
    }
    units
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_compared_by_content() {
        for (one, two) in [
            (r#""a\u002fb""#, r#""a/b""#),
            (r#""\/""#, r#""/""#),
            (r#""\ud83d\ude00""#, "\"😀\""),
            (r#""\ud800x""#, r#""\uD800x""#),
            (
                r#""\b\f\n\r\t\"\\""#,
                r#""\u0008\u000c\u000a\u000d\u0009\u0022\u005c""#,
            ),
        ] {
            assert_eq!(units(one), units(two), "{one} {two}");
        }
        assert_ne!(units(r#""\ud800""#), units(r#""\ud801""#));
        assert_ne!(units(r#""\\n""#), units(r#""\n""#));
    }
}
