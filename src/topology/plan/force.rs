//! Which policy is in force where, and what follows for an object: the broker's rules, by version and type. Pure.
//!
//! Of the policies that match an object the one of highest priority is in force, and likewise of the operator
//! policies; the two are merged. A policy with a key that the queue's type doesn't know is in force nowhere.

use std::collections::HashMap;

use fancy_regex::Regex;
use serde_json::Value as Json;

use super::change::Origin;
use crate::topology::live::{Arguments, Live, LivePolicy, Unread, Version};

/// Per-queue consumer timeouts exist from here.
pub(super) const CONSUMER_TIMEOUT_BY_POLICY: Version = Version::new(3, 12, 0);
/// A delivery limit that nobody set exists from here.
const DEFAULT_DELIVERY_LIMIT_SINCE: Version = Version::new(4, 0, 0);
/// That limit.
const DEFAULT_DELIVERY_LIMIT: i64 = 20;
/// How long a consumer may keep a delivery, unless configured, in milliseconds.
pub(super) const DEFAULT_CONSUMER_TIMEOUT: i64 = 1_800_000;

/// Keys of policies that change what a queue does, and who wins over an argument of the same name.
pub(super) const KEYS: [(&str, Winner); 10] = [
    ("consumer-timeout", Winner::Least),
    ("dead-letter-exchange", Winner::Argument),
    ("dead-letter-routing-key", Winner::Argument),
    ("dead-letter-strategy", Winner::Argument),
    ("delivery-limit", Winner::Limit),
    ("expires", Winner::Least),
    ("max-length", Winner::Least),
    ("max-length-bytes", Winner::Least),
    ("message-ttl", Winner::Least),
    ("overflow", Winner::Policy),
];

/// Keys that keep a policy from quorum queues.
const NOT_QUORUM: &[&str] = &[
    "max-priority",
    "queue-mode",
    "queue-version",
    "single-active-consumer",
    "ha-mode",
    "ha-params",
    "ha-sync-mode",
    "ha-sync-batch-size",
    "ha-promote-on-shutdown",
    "ha-promote-on-failure",
    "queue-master-locator",
    "max-age",
    "stream-max-segment-size-bytes",
    "stream-filter-size-bytes",
    "initial-cluster-size",
];
/// Keys that keep a policy from classic queues.
const NOT_CLASSIC: &[&str] = &[
    "delivery-limit",
    "dead-letter-strategy",
    "max-in-memory-length",
    "max-in-memory-bytes",
    "quorum-initial-group-size",
    "target-group-size",
    "max-age",
    "stream-max-segment-size-bytes",
    "stream-filter-size-bytes",
    "initial-cluster-size",
    "delayed-retry-type",
    "delayed-retry-min",
    "delayed-retry-max",
];

/// Who wins if both a policy and an argument say something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Winner {
    /// The policy.
    Policy,
    /// The argument.
    Argument,
    /// The smaller number.
    Least,
    /// The smaller number, where a negative one means no limit.
    Limit,
}

/// All policies, ready to be matched.
pub(in crate::topology) struct Policies<'a> {
    user: Ranked<'a>,
    operator: Ranked<'a>,
    /// Policies whose pattern this program can't read.
    pub(super) unread: Vec<Unread>,
}

/// Policies, strongest first. One that names its objects exactly, as the platform's own do, is looked up: there may be one
/// for each of thousands of queues.
#[derive(Default)]
struct Ranked<'a> {
    policies: Vec<&'a LivePolicy>,
    exact: HashMap<String, Vec<usize>>,
    patterns: Vec<(usize, Regex)>,
}

/// The policies in force on one object.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::topology) struct InForce<'a> {
    pub(in crate::topology) user: Option<&'a LivePolicy>,
    pub(in crate::topology) operator: Option<&'a LivePolicy>,
}

/// The policy and the operator policy in force for a queue that exists or would.
pub(in crate::topology) fn of_queue<'a>(live: &'a Live, name: &str, kind: &str) -> Vec<&'a LivePolicy> {
    let in_force = Policies::new(live).of_queue(name, kind);
    in_force.user.into_iter().chain(in_force.operator).collect()
}

/// A value and where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Effective {
    pub(super) value: Option<Json>,
    pub(super) from: Origin,
}

impl<'a> Policies<'a> {
    pub(in crate::topology) fn new(live: &'a Live) -> Self {
        let mut unread = Vec::new();
        let mut ranked = |operator: bool| {
            let mut policies: Vec<&LivePolicy> =
                live.policies.iter().filter(|p| p.operator == operator).collect();
            // The first that matches is in force. Of equal priorities the broker takes any.
            policies.sort_by_key(|policy| (-policy.priority, policy.name.as_str()));
            Ranked::new(policies, &mut unread)
        };
        let (user, operator) = (ranked(false), ranked(true));
        Self {
            user,
            operator,
            unread,
        }
    }

    pub(in crate::topology) fn of_queue(&self, name: &str, kind: &str) -> InForce<'a> {
        let unknown = match kind {
            "quorum" => NOT_QUORUM,
            "classic" => NOT_CLASSIC,
            _ => &[],
        };
        let typed = format!("{kind}_queues");
        let fits = |policy: &LivePolicy| {
            let to = policy.apply_to.as_str();
            let to_kind = to == "all" || to == "queues" || to == typed || to == "streams" && kind == "stream";
            to_kind
                && !policy
                    .definition
                    .keys()
                    .any(|key| unknown.contains(&key.as_str()))
        };
        self.of(name, fits)
    }

    pub(super) fn of_exchange(&self, name: &str) -> InForce<'a> {
        self.of(name, |policy| {
            matches!(policy.apply_to.as_str(), "all" | "exchanges")
        })
    }

    fn of(&self, name: &str, fits: impl Fn(&LivePolicy) -> bool) -> InForce<'a> {
        InForce {
            user: self.user.first(name, &fits),
            operator: self.operator.first(name, &fits),
        }
    }
}

impl<'a> Ranked<'a> {
    fn new(policies: Vec<&'a LivePolicy>, unread: &mut Vec<Unread>) -> Self {
        let mut ranked = Self::default();
        for (rank, policy) in policies.iter().enumerate() {
            if let Some(names) = exact(&policy.pattern) {
                for name in names {
                    ranked.exact.entry(name).or_default().push(rank);
                }
                continue;
            }
            match Regex::new(&policy.pattern) {
                Ok(pattern) => ranked.patterns.push((rank, pattern)),
                Err(_) => unread.push(Unread {
                    what: format!("what {} matches", Origin::of(policy)),
                    why: "its pattern is a regular expression that only the broker understands".to_owned(),
                }),
            }
        }
        ranked.policies = policies;
        ranked
    }

    /// The strongest that matches `name` and fits.
    fn first(&self, name: &str, fits: impl Fn(&LivePolicy) -> bool) -> Option<&'a LivePolicy> {
        let by_name = self.exact.get(name).into_iter().flatten().copied();
        let exact = by_name.filter(|rank| fits(self.policies[*rank])).min();
        // A pattern that takes the matcher too long matches nothing, here as on the broker.
        let matches = |(rank, pattern): &&(usize, Regex)| {
            fits(self.policies[*rank]) && pattern.is_match(name).unwrap_or(false)
        };
        let pattern = self.patterns.iter().find(matches).map(|(rank, _)| *rank);
        exact
            .into_iter()
            .chain(pattern)
            .min()
            .map(|rank| self.policies[rank])
    }
}

/// The names that a pattern of the form `^name$` or `^name$|^other$` matches, with no expression in them.
fn exact(pattern: &str) -> Option<Vec<String>> {
    let literal = |piece: &str| {
        let inner = piece.strip_prefix('^')?.strip_suffix('$')?;
        let (mut name, mut chars) = (String::new(), inner.chars());
        while let Some(c) = chars.next() {
            match c {
                // A letter or digit after it would be a class or a reference.
                '\\' => name.push(chars.next().filter(|c| c.is_ascii_punctuation())?),
                c if c.is_ascii_alphanumeric() || "_-:".contains(c) => name.push(c),
                _ => return None,
            }
        }
        Some(name)
    };
    pattern.split('|').map(literal).collect()
}

impl InForce<'_> {
    /// What the policies say of `key`, merged.
    pub(super) fn get(&self, key: &str) -> Option<Effective> {
        let find = |policy: Option<&LivePolicy>| {
            let policy = policy?;
            let value = policy.definition.get(key)?.clone();
            Some(Effective {
                value: Some(value),
                from: Origin::of(policy),
            })
        };
        match (find(self.user), find(self.operator)) {
            (Some(user), Some(operator)) => {
                let least = match (number(user.value.as_ref()), number(operator.value.as_ref())) {
                    (Some(u), Some(o)) => u < o,
                    _ => false,
                };
                Some(if least { user } else { operator })
            }
            (one, other) => one.or(other),
        }
    }
}

/// What a queue of this type does about `key`, with these arguments under these policies.
pub(super) fn effective(
    key: &str,
    winner: Winner,
    kind: &str,
    arguments: &Arguments,
    in_force: InForce<'_>,
    version: Version,
) -> Effective {
    let declared = arguments.get(&format!("x-{key}")).map(|value| Effective {
        value: Some(value.clone()),
        from: Origin::Declared,
    });
    let known = key != "consumer-timeout" || version >= CONSUMER_TIMEOUT_BY_POLICY;
    let policy = in_force.get(key).filter(|_| known);
    let declared = declared.filter(|_| known);
    let found = match (declared, policy) {
        (Some(declared), Some(policy)) => Some(match winner {
            // Of a classic queue the argument wins here too.
            Winner::Policy if kind == "classic" => declared,
            Winner::Policy => policy,
            Winner::Argument => declared,
            Winner::Least | Winner::Limit => {
                let (d, p) = (number(declared.value.as_ref()), number(policy.value.as_ref()));
                let policy_wins = match (d, p) {
                    (Some(d), Some(p)) if winner == Winner::Limit && (d < 0.0 || p < 0.0) => p > d,
                    (Some(d), Some(p)) => p < d,
                    (None, _) => true,
                    (_, None) => false,
                };
                if policy_wins { policy } else { declared }
            }
        }),
        (declared, policy) => declared.or(policy),
    };
    found.unwrap_or_else(|| Effective {
        value: default(key, kind, version),
        from: Origin::Default,
    })
}

/// What the broker does where nobody said anything.
pub(super) fn default(key: &str, kind: &str, version: Version) -> Option<Json> {
    match key {
        "overflow" => Some("drop-head".into()),
        "dead-letter-strategy" if kind == "quorum" => Some("at-most-once".into()),
        "delivery-limit" if kind == "quorum" && version >= DEFAULT_DELIVERY_LIMIT_SINCE => {
            Some(DEFAULT_DELIVERY_LIMIT.into())
        }
        "consumer-timeout" => Some(DEFAULT_CONSUMER_TIMEOUT.into()),
        _ => None,
    }
}

/// Whether two values are one to the broker: numbers by value, whatever their type.
pub(super) fn same(a: Option<&Json>, b: Option<&Json>) -> bool {
    match (a, b) {
        (Some(Json::Number(_)), Some(Json::Number(_))) => number(a) == number(b),
        _ => a == b,
    }
}

pub(super) fn number(value: Option<&Json>) -> Option<f64> {
    value?.as_f64()
}

impl Origin {
    pub(super) fn of(policy: &LivePolicy) -> Self {
        let name = policy.name.clone();
        if policy.operator {
            Self::OperatorPolicy(name)
        } else {
            Self::Policy(name)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_no_expression_is_taken_by_name() {
        let names = |pattern: &str| exact(pattern).map(|names| names.join(" "));
        assert_eq!(names(r"^a\.b-c$").as_deref(), Some("a.b-c"));
        assert_eq!(names(r"^a$|^a\.high$").as_deref(), Some("a a.high"));
        for expression in [
            "a", "^a", "a$", "^a.b$", r"^a\d$", "^(a|b)$", r"^a\$", "^a$|b", ".*", "",
        ] {
            assert_eq!(names(expression), None, "{expression}");
        }
    }
}
