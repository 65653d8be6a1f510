//! Routing keys that a pattern matches, to be sent as probes.

use tidegate_core::{names::MAX_SHORT_STRING, topic::Pattern};

/// The word that stands for `*`, and twice for `#`.
const WORD: &str = "verify";

/// One key for a pattern without `#`; for one with `#` a key in which it stands for no word and one in which it stands for two.
/// A key that AMQP can't carry, with `prefix` bytes before it, is left out.
pub fn keys(pattern: &Pattern, prefix: usize) -> Vec<String> {
    let mut keys: Vec<String> = [0, 2]
        .iter()
        .map(|many| key(pattern.as_str(), *many))
        .filter(|key| key.len() + prefix <= MAX_SHORT_STRING)
        .collect();
    keys.dedup();
    keys
}

fn key(pattern: &str, many: usize) -> String {
    let mut words = Vec::new();
    for word in pattern.split('.') {
        match word {
            "#" => words.extend(std::iter::repeat_n(WORD, many)),
            "*" => words.push(WORD),
            word => words.push(word),
        }
    }
    words.join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_matched_by_its_pattern() {
        for (pattern, expected) in [
            ("order.close", vec!["order.close"]),
            ("order.*.eu", vec!["order.verify.eu"]),
            ("order.#", vec!["order", "order.verify.verify"]),
            ("#", vec!["", "verify.verify"]),
            ("#.close.#", vec!["close", "verify.verify.close.verify.verify"]),
            ("a..b", vec!["a..b"]),
        ] {
            let pattern = Pattern::parse(pattern).unwrap();
            assert_eq!(keys(&pattern, 0), expected);
            assert!(
                keys(&pattern, 0).iter().all(|key| pattern.matches(key)),
                "{pattern}"
            );
        }
    }

    #[test]
    fn a_key_that_would_be_too_long_is_not_sent() {
        let pattern = Pattern::parse(&format!("{}.#", "a".repeat(235))).unwrap();
        assert_eq!(keys(&pattern, 18).len(), 1);
        assert_eq!(keys(&pattern, 0).len(), 2);
        let longest = Pattern::parse(&"a".repeat(255)).unwrap();
        assert!(keys(&longest, 18).is_empty());
    }
}
