//! Topic patterns against a table taken from the broker's documented rules and against a naive recursion.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use proptest::prelude::*;

use tidegate_core::topic::{Pattern, PatternError};

#[test]
fn table() {
    let table = [
        ("a.b", "a.b", true),
        ("a.b", "a.c", false),
        ("a.b", "a.b.c", false),
        ("a.*", "a.b", true),
        ("a.*", "a", false),
        ("a.*", "a.b.c", false),
        ("a.*", "a.", true),
        ("*", "", false),
        ("*", ".", false),
        ("*", "a", true),
        ("*.*", "a", false),
        ("*.*", ".", true),
        ("#", "", true),
        ("#", "a", true),
        ("#", "a.b.c", true),
        ("a.#", "a", true),
        ("a.#", "a.b.c", true),
        ("a.#", "ab", false),
        ("#.x", "x", true),
        ("#.x", "a.x", true),
        ("#.x", "a.x.y", false),
        ("#.b.#", "a.b.c", true),
        ("#.b.#", "b", true),
        ("#.b.#", "a.c", false),
        ("#.*", "", false),
        ("#.*", ".", true),
        ("", ".", false),
        ("*.#", "a", true),
        ("*.#.*", "a", false),
        ("*.#.*", "a.b", true),
        ("a..b", "a..b", true),
        ("a.*.b", "a..b", true),
        ("a.#.b", "a.b", true),
        ("", "", true),
        ("", "a", false),
        ("a*", "ab", false),
        ("a*", "a*", true),
        ("a.#b", "a.#b", true),
        ("order.close.#", "order.close", true),
        ("order.close.#", "order.close.timeout", true),
        ("order.close.#", "order.closed", false),
    ];
    for (pattern, key, expected) in table {
        assert_eq!(
            Pattern::parse(pattern).unwrap().matches(key),
            expected,
            "{pattern:?} on {key:?}"
        );
    }
}

#[test]
fn limits_are_named() {
    assert_eq!(Pattern::parse(&"a".repeat(255)).unwrap().as_str().len(), 255);
    assert_eq!(
        Pattern::parse(&"a".repeat(256)),
        Err(PatternError::TooLong { bytes: 256 })
    );
    assert!(Pattern::parse("#.a.#").is_ok());
    let error = Pattern::parse("#.a.#.b.#").unwrap_err();
    assert_eq!(error, PatternError::TooManyHashes { found: 3 });
    assert!(error.to_string().contains("at most 2"), "{error}");
    assert!(
        Pattern::parse("a#.b#.c#").is_ok(),
        "'#' counts only as a whole word"
    );
}

#[test]
fn literal_means_no_wildcard_word() {
    for (text, literal) in [
        ("a.b", true),
        ("a*.b#", true),
        ("", true),
        ("a.*", false),
        ("#", false),
    ] {
        assert_eq!(Pattern::parse(text).unwrap().is_literal(), literal, "{text:?}");
        assert_eq!(Pattern::parse(text).unwrap().to_string(), text);
    }
}

/// Two patterns, and whether one key can match both.
#[test]
fn overlaps() {
    let table = [
        ("a.b", "a.b", true),
        ("a.b", "a.c", false),
        ("a.b", "a.b.c", false),
        ("a.*", "a.b", true),
        ("a.*", "*.b", true),
        ("*", "*", true),
        ("*", "*.*", false),
        ("*", "#", true),
        ("#", "#", true),
        ("", "#", true),
        ("", "*", false),
        ("", "a", false),
        ("a.#", "a", true),
        ("a.#", "b.#", false),
        ("a.#", "#.b", true),
        ("a.#", "#.a", true),
        ("a.*.#", "#.b", true),
        ("a.#.c", "a.b.*", true),
        ("a.#.c", "*.b.*.d", false),
        ("#.b.#", "a.c", false),
        ("#.b.#", "#.c.#", true),
        ("#.b.#", "*.*", true),
        ("order.close.#", "order.*", true),
        ("order.close.#", "order.closed", false),
        ("order.close.#", "order.close.timeout", true),
        ("a*", "ab", false),
        ("a*", "a*", true),
        ("a..b", "a.*.b", true),
    ];
    for (one, two, expected) in table {
        let (a, b) = (Pattern::parse(one).unwrap(), Pattern::parse(two).unwrap());
        for (a, b) in [(&a, &b), (&b, &a)] {
            assert_eq!(a.overlaps(b), expected, "{a} and {b}");
            if let Some(key) = a.common_key(b) {
                assert!(a.matches(&key) && b.matches(&key), "{a} and {b} by {key:?}");
            }
        }
    }
}

fn naive(pattern: &[String], key: &[String]) -> bool {
    match pattern.split_first() {
        None => key.is_empty(),
        Some((word, rest)) if word == "#" => (0..=key.len()).any(|skip| naive(rest, &key[skip..])),
        Some((word, rest)) => key
            .split_first()
            .is_some_and(|(first, keys)| (*word == "*" || word == first) && naive(rest, keys)),
    }
}

proptest! {
    #[test]
    fn agrees_with_naive_recursion(pattern in "(a|b|\\*|#|)(\\.(a|b|\\*|#|)){0,5}", key in "(a|b|)(\\.(a|b|)){0,6}") {
        if let Ok(parsed) = Pattern::parse(&pattern) {
            let words = |text: &'_ str| -> Vec<String> {
                if text.is_empty() { Vec::new() } else { text.split('.').map(str::to_owned).collect() }
            };
            let (p, k) = (words(&pattern), words(&key));
            prop_assert_eq!(parsed.matches(&key), naive(&p, &k), "{} on {}", pattern, key);
        }
    }

    #[test]
    fn a_literal_pattern_matches_itself_only(pattern in "[ab]{1,2}(\\.[ab]{1,2}){0,3}", key in "[ab]{1,2}(\\.[ab]{1,2}){0,3}") {
        let parsed = Pattern::parse(&pattern).unwrap();
        prop_assert!(parsed.is_literal());
        prop_assert_eq!(parsed.matches(&key), pattern == key);
    }

    /// "No" is never wrong, empty words or not.
    #[test]
    fn patterns_that_do_not_overlap_share_no_key(
        one in "(a|b|\\*|#|)(\\.(a|b|\\*|#|)){0,4}",
        two in "(a|b|\\*|#|)(\\.(a|b|\\*|#|)){0,4}",
        key in "(a|b|)(\\.(a|b|)){0,5}",
    ) {
        if let (Ok(one), Ok(two)) = (Pattern::parse(&one), Pattern::parse(&two)) {
            prop_assert_eq!(one.overlaps(&two), two.overlaps(&one));
            prop_assert!(one.overlaps(&two) || !(one.matches(&key) && two.matches(&key)), "{one} and {two} by {key:?}");
        }
    }

    /// "Yes" comes with a key that proves it.
    #[test]
    fn a_common_key_matches_both(
        one in "(a|b|\\*|#)(\\.(a|b|\\*|#)){0,4}",
        two in "(a|b|\\*|#)(\\.(a|b|\\*|#)){0,4}",
    ) {
        if let (Ok(one), Ok(two)) = (Pattern::parse(&one), Pattern::parse(&two))
            && let Some(key) = one.common_key(&two)
        {
            prop_assert!(one.matches(&key) && two.matches(&key), "{one} and {two} by {key:?}");
        }
    }
}
