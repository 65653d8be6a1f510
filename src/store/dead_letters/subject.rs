//! What a row of the audit log says it was done to, where that is a filter's choice.
//!
//! May import: `core`. Pure.

use tidegate_core::dead_letter_filter::{Condition, Filter};

/// Longest text of a filter in the audit log, in bytes.
const MAX_SUBJECT: usize = 60_000;

/// `filter` as it could be typed again; where it names one dead letter, that one's id.
pub(super) fn subject(filter: &Filter) -> String {
    if let [Condition::Id(ids)] = filter.conditions()
        && let [id] = ids[..]
    {
        return id.to_string();
    }
    let pair = |(key, value): (&str, String)| {
        if value.contains(|c: char| c.is_whitespace() || c == '"') {
            format!("{key}={value:?}")
        } else {
            format!("{key}={value}")
        }
    };
    let mut text = filter.pairs().into_iter().map(pair).collect::<Vec<_>>().join(" ");
    if text.len() > MAX_SUBJECT {
        text.truncate(text.floor_char_boundary(MAX_SUBJECT));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use chrono::Utc;

    use super::*;

    #[test]
    fn a_filter_is_told_as_it_could_be_typed() {
        let of = |words: &[&str]| Filter::parse_words(words.iter().copied(), Utc::now()).unwrap();
        assert_eq!(
            subject(&of(&["type=order.#", "text=no such \"card\"", "reason=rejected"])),
            "type=order.# text=\"no such \\\"card\\\"\" reason=rejected"
        );
        let long: Vec<String> = (0..900).map(|n| format!("text={n}{}", "订".repeat(60))).collect();
        let long: Vec<&str> = long.iter().map(String::as_str).collect();
        let cut = subject(&of(&long));
        assert!(cut.len() <= MAX_SUBJECT + 3 && cut.ends_with('…'));
    }
}
