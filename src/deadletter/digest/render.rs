//! A digest as a message, in the shape that a webhook takes.
//!
//! Pure. May import: `store::digests` (the numbers), serde_json. A digest leaves the company's network and is read by many:
//! it holds numbers and names, never a payload and never an error's text, not even a normalised one, since names of people
//! survive normalising. What strangers can choose (types, queues, kinds of errors) is shown only as far as it is made of the
//! characters of names, so that no message can hold a link, a mention or a sentence of theirs.

use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Value, json};

use crate::store::digests::{Numbers, OfGroup, OfType};

/// Most types, and most groups, in one digest.
pub const MAX_LINES: i64 = 10;

/// Longest name, in characters.
const MAX_NAME: usize = 64;

/// Longest kind of an error, in characters.
const MAX_KIND: usize = 48;

/// Digits of a fingerprint in a text: enough for `dlq list fingerprint=…`.
const DIGITS: usize = 12;

/// What a webhook takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// JSON of our own, for programs.
    Plain,
    /// An incoming webhook of Slack.
    Slack,
    /// A custom bot of Feishu (Lark).
    Feishu,
    /// A custom robot of DingTalk.
    DingTalk,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Plain, Self::Slack, Self::Feishu, Self::DingTalk];

    /// Its name in settings and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Slack => "slack",
            Self::Feishu => "feishu",
            Self::DingTalk => "dingtalk",
        }
    }
}

/// What is told.
#[derive(Clone, Debug)]
pub struct Digest {
    /// Beginning of the span.
    pub since: DateTime<Utc>,
    /// Its end.
    pub until: DateTime<Utc>,
    /// What happened in it.
    pub numbers: Numbers,
}

/// The body of the request.
pub fn render(format: Format, digest: &Digest) -> Value {
    match format {
        Format::Plain => plain(digest),
        // Without markup: names hold underscores.
        Format::Slack => json!({"text": text(digest), "mrkdwn": false, "unfurl_links": false}),
        Format::Feishu => json!({"msg_type": "text", "content": {"text": text(digest)}}),
        Format::DingTalk => json!({"msgtype": "text", "text": {"content": text(digest)}}),
    }
}

fn plain(digest: &Digest) -> Value {
    let numbers = &digest.numbers;
    let of_type =
        |of: &OfType| json!({"taskType": type_name(of.task_type.as_deref()), "new": of.new, "open": of.open});
    let of_group = |of: &OfGroup| {
        json!({
            "fingerprint": of.fingerprint.to_string(),
            "taskType": type_name(of.task_type.as_deref()),
            "reason": name(&of.reason),
            "errorKind": kind(&of.error_kind),
            "queue": name(&of.queue),
            "new": of.new,
            "open": of.open,
        })
    };
    json!({
        "kind": "tidegate.dead_letters.digest",
        "version": 1,
        "since": shown(digest.since),
        "until": shown(digest.until),
        "new": numbers.new,
        "open": numbers.open,
        "types": numbers.types.iter().map(of_type).collect::<Vec<_>>(),
        "moreTypes": more(numbers.all_types, numbers.types.len()),
        "groups": numbers.groups.iter().map(of_group).collect::<Vec<_>>(),
        "moreGroups": more(numbers.all_groups, numbers.groups.len()),
    })
}

fn text(digest: &Digest) -> String {
    let numbers = &digest.numbers;
    let mut lines = vec![
        format!(
            "Tidegate: {} new dead letter{}, {} to {}",
            numbers.new,
            if numbers.new == 1 { "" } else { "s" },
            shown(digest.since),
            shown(digest.until)
        ),
        format!("Open now: {}", numbers.open),
        "By type:".to_owned(),
    ];
    for of in &numbers.types {
        let task_type = type_name(of.task_type.as_deref()).unwrap_or_else(|| "(no type)".to_owned());
        lines.push(format!("- {task_type}: {} new, {} open", of.new, of.open));
    }
    let beyond = |all, shown, what: &str| match more(all, shown) {
        0 => None,
        more => Some(format!("- and {more} more {what}")),
    };
    lines.extend(beyond(numbers.all_types, numbers.types.len(), "types"));
    lines.push("Largest groups:".to_owned());
    for of in &numbers.groups {
        let digits: String = of.fingerprint.to_string().chars().take(DIGITS).collect();
        lines.push(format!(
            "- {digits}: {} new, {} open; {}, {}, {}, {}",
            of.new,
            of.open,
            type_name(of.task_type.as_deref()).unwrap_or_else(|| "(no type)".to_owned()),
            name(&of.queue),
            name(&of.reason),
            kind(&of.error_kind),
        ));
    }
    lines.extend(beyond(numbers.all_groups, numbers.groups.len(), "groups"));
    lines.join("\n")
}

fn more(all: i64, shown: usize) -> i64 {
    all.saturating_sub(i64::try_from(shown).unwrap_or(i64::MAX))
        .max(0)
}

fn shown(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

fn type_name(task_type: Option<&str>) -> Option<String> {
    task_type.map(name)
}

/// A name: letters, digits and what joins them; anything else is `?`.
fn name(text: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let mut name: String = text
        .chars()
        .take(MAX_NAME)
        .map(|c| if is_part(c) { c } else { '?' })
        .collect();
    if text.chars().nth(MAX_NAME).is_some() {
        name.push('…');
    }
    name
}

/// A kind, if it is a short word as handlers name it: one made of a message may hold anything.
fn kind(text: &str) -> &str {
    let is_word = text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.len() <= MAX_KIND
        && text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-' | b'.'));
    if is_word { text } else { "(other)" }
}

#[cfg(test)]
mod tests {
    use tidegate_core::fingerprint::Fingerprint;

    use super::*;

    fn group(task_type: Option<&str>, error_kind: &str, new: i64) -> OfGroup {
        OfGroup {
            fingerprint: Fingerprint([0x5f; 16]),
            task_type: task_type.map(str::to_owned),
            reason: "retries_exhausted".to_owned(),
            error_kind: error_kind.to_owned(),
            queue: "order.close.queue".to_owned(),
            new,
            open: new * 2,
        }
    }

    fn digest() -> Digest {
        let of_type = |task_type: Option<&str>, new| OfType {
            task_type: task_type.map(str::to_owned),
            new,
            open: new * 2,
        };
        Digest {
            since: "2026-03-01T10:00:00Z".parse().unwrap(),
            until: "2026-03-01T11:00:00Z".parse().unwrap(),
            numbers: Numbers {
                new: 42,
                open: 1_203,
                types: vec![of_type(Some("order.close.timeout"), 40), of_type(None, 2)],
                all_types: 5,
                groups: vec![
                    group(Some("order.close.timeout"), "http_503", 40),
                    group(None, "Unexpected token 'j'", 2),
                ],
                all_groups: 2,
            },
        }
    }

    #[test]
    fn the_shapes() {
        let shapes: Vec<(&str, Value)> = Format::ALL
            .iter()
            .map(|format| (format.as_str(), render(*format, &digest())))
            .collect();
        insta::assert_json_snapshot!(shapes);
    }

    /// Whatever strangers name things, a digest is as long as it is, and holds no link, mention, markup or sentence.
    #[test]
    fn names_can_say_nothing_but_names() {
        let hostile = "<at user_id=\"all\">@all</at> https://evil.example/x?a=1 <!channel> *b* [a](b)\n订单 4111111111111111".repeat(50);
        let mut digest = digest();
        for group in &mut digest.numbers.groups {
            group.task_type = Some(hostile.clone());
            group.queue = hostile.clone();
            group.reason = hostile.clone();
            group.error_kind = hostile.clone();
        }
        digest.numbers.types[0].task_type = Some(hostile);
        for format in Format::ALL {
            let body = render(format, &digest).to_string();
            for bad in [
                "@",
                "<",
                "//",
                "evil.example/",
                "(b)",
                "[a]",
                "*b*",
                "订单",
                "4111",
            ] {
                assert!(!body.contains(bad), "{bad} in {body}");
            }
            assert!(body.len() < 4_000, "{}", body.len());
        }
        assert_eq!(kind("http_503"), "http_503");
        for bad in ["", "Card of Ann", "card of ann", "5xx", &"x".repeat(MAX_KIND + 1)] {
            assert_eq!(kind(bad), "(other)");
        }
    }
}
