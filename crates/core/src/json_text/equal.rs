//! Equality of JSON values as RFC 6902 has it for `test`: numbers by value, strings by content, objects whatever the
//! order of their keys.
//!
//! No number passes through a float: two of them are compared digit by digit, so that 9007199254740993 and
//! 9007199254740992 differ, and 1.0, 1 and 10e-1 don't.

use std::{borrow::Cow, collections::HashMap};

use super::node::Node;

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

/// A number as `0.DIGITS × 10^exponent`, digits without zeros at either end; zero has none, and no sign.
#[derive(PartialEq, Eq)]
struct Decimal<'t> {
    is_negative: bool,
    digits: String,
    exponent: Exponent<'t>,
}

#[derive(PartialEq, Eq)]
enum Exponent<'t> {
    Of(i128),
    /// More than thirty digits: no such number means anything, and only the same text is the same number.
    Beyond(Cow<'t, str>),
}

impl<'t> Decimal<'t> {
    fn of(number: &'t str) -> Self {
        let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
        let (is_negative, mantissa) = match mantissa.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, mantissa),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{whole}{fraction}");
        let digits = all.trim_start_matches('0');
        let leading = all.len() - digits.len();
        let digits = digits.trim_end_matches('0');
        if digits.is_empty() {
            let exponent = Exponent::Of(0);
            return Self {
                is_negative: false,
                digits: String::new(),
                exponent,
            };
        }
        let size = exponent.trim_start_matches(['+', '-']).trim_start_matches('0');
        let exponent = if size.len() > 30 {
            Exponent::Beyond(Cow::Borrowed(number))
        } else {
            let size: i128 = size.parse().unwrap_or(0);
            let written = if exponent.starts_with('-') { -size } else { size };
            // Lengths are those of a text in memory, far from the ends of the type.
            Exponent::Of(written + whole.len() as i128 - leading as i128)
        };
        Self {
            is_negative,
            digits: digits.to_owned(),
            exponent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn equal(one: &str, two: &str) -> bool {
        Decimal::of(one) == Decimal::of(two)
    }

    #[test]
    fn numbers_are_compared_by_value_and_to_the_last_digit() {
        for (one, two) in [
            ("1", "1.0"),
            ("1", "10e-1"),
            ("1", "0.1E+1"),
            ("100", "1e2"),
            ("-0", "0"),
            ("0.0", "0e99"),
            ("-1.50", "-15e-1"),
            ("0.001", "1e-3"),
            ("1e400", "10e399"),
            ("1e007", "1e7"),
            ("18446744073709551616", "1.8446744073709551616e19"),
        ] {
            assert!(equal(one, two), "{one} {two}");
        }
        for (one, two) in [
            ("1", "-1"),
            ("1", "10"),
            ("9007199254740993", "9007199254740992"),
            ("0.1", "0.10000000000000001"),
            ("1e400", "1e401"),
            ("1e-400", "0"),
            (
                "1e99999999999999999999999999999999",
                "1e99999999999999999999999999999998",
            ),
        ] {
            assert!(!equal(one, two), "{one} {two}");
        }
    }

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
