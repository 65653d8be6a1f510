//! What only a policy can say on every broker that knows it: the consumer timeout. Pure; imports `core`.
//!
//! As an argument it is ignored by some versions, compared by others and refused for classic queues by the newest.
//! Of the policies that match a queue the broker puts one in force, so ours name their queue exactly and hold
//! nothing else.

use std::collections::BTreeMap;

use tidegate_core::names::Names;

use super::{
    model::BusinessQueue,
    objects::{Policy, Value},
};

/// Priority of the platform's own policies: above what is usual for a vhost-wide one, and with room above it for an
/// operator who means to overrule.
const PRIORITY: i64 = 100;

impl Policy {
    /// The policy for the consumer timeout of `queue` and its high lane, where it states one.
    pub(super) fn consumer_timeout(names: &Names, queue: &BusinessQueue) -> Option<Self> {
        let millis = queue.consumer_timeout?.as_millis();
        let name = exactly(&queue.name);
        let lane = if queue.high_lane.is_some() {
            let lane = Names::high_lane(&queue.name);
            format!("|{}", exactly(&lane))
        } else {
            String::new()
        };
        Some(Self {
            name: names.consumer_timeout(&queue.name),
            pattern: format!("{name}{lane}"),
            apply_to: "queues",
            priority: PRIORITY,
            definition: BTreeMap::from([(
                "consumer-timeout",
                Value::Int(i64::try_from(millis).unwrap_or(i64::MAX)),
            )]),
        })
    }
}

/// A regular expression that matches `name` and nothing else.
pub(super) fn exactly(name: &str) -> String {
    format!("^{}$", escape(name))
}

/// `text` with every character that a regular expression could take for more than itself escaped.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if c.is_ascii() && !c.is_ascii_alphanumeric() && !"_-:".contains(c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_are_no_wildcards() {
        assert_eq!(exactly("a.b-c_d:e"), r"^a\.b-c_d:e$");
        assert_eq!(escape("(a|b)*"), r"\(a\|b\)\*");
    }
}
