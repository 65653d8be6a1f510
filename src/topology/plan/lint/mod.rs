//! What is as described and still risky. Pure: each rule looks at the broker as it will be after `apply`.

mod cycle;
mod view;

use std::time::Duration;

use super::{
    change::{Lint, Origin},
    force::{CONSUMER_TIMEOUT_BY_POLICY, DEFAULT_CONSUMER_TIMEOUT},
    scope::Scope,
};
use crate::topology::{
    ObjectKind, ObjectName, Objects,
    live::{Live, Version},
};

use self::view::{Leads, Role, Seen, View};

/// From this limit on a queue without a dead-letter exchange is meant to keep what it has: `task.dead.queue`.
const KEEPS_FOR_GOOD: f64 = 1_000_000.0;
/// At-least-once dead-lettering depends on this feature flag, up to 3.13.
const STREAM_QUEUE: &str = "stream_queue";

/// The risks of `live`, which should be the broker as it will be when `wanted` is applied.
pub fn lints(live: &Live, wanted: &Objects, scope: &Scope) -> Vec<Lint> {
    let view = View::new(live, wanted, scope);
    let mut lints = Vec::new();
    for queue in &view.queues {
        let found = [
            drops_at_limit(queue, live.version),
            at_most_once(queue),
            dead_letters_nowhere(queue, &view),
            ttl_in_shared_queue(queue),
            classic(queue),
            consumer_timeout(queue, live.version),
        ];
        lints.extend(found.into_iter().flatten());
    }
    lints.extend(cycle::find(&view));
    lints.extend(timeouts_of_the_node(live.version, wanted));
    lints.extend(feature_flags(live));
    lints
}

/// A delivery limit and nowhere to go: the broker drops the message.
fn drops_at_limit(queue: &Seen<'_>, version: Version) -> Option<Lint> {
    let limit = queue
        .number("delivery-limit")
        .filter(|n| (0.0..KEEPS_FOR_GOOD).contains(n))?;
    if queue.live.kind != "quorum" || queue.dead_letter_exchange.is_some() {
        return None;
    }
    let whose = match &queue.get("delivery-limit").from {
        Origin::Default => format!("the default of RabbitMQ {version}"),
        from => from.to_string(),
    };
    queue.lint(
        "delivery-limit-drops",
        format!(
            "a message that was delivered more than {limit} times ({whose}) is dropped: there is no dead-letter \
             exchange"
        ),
        "give the queue a dead-letter exchange, or a delivery limit that is never reached",
    )
}

/// A quorum queue whose dead letters may be lost on their way.
fn at_most_once(queue: &Seen<'_>) -> Option<Lint> {
    queue.dead_letter_exchange.as_ref()?;
    if queue.live.kind != "quorum" {
        return None;
    }
    let overflow = queue.get("overflow");
    let refuses = overflow.text() == Some("reject-publish");
    if queue.role == Role::Delay && !refuses {
        return queue.lint(
            "delay-queue-drops-head",
            format!(
                "overflow {:?} ({}) makes this delay queue drop messages when it is full, and turns dead-lettering \
                 at least once off: what is pending may be lost",
                overflow.text().unwrap_or_default(),
                overflow.from
            ),
            "take `overflow` out of that policy, or narrow its pattern",
        );
    }
    if queue.get("dead-letter-strategy").text() == Some("at-least-once") && refuses {
        return None;
    }
    let missing = if refuses {
        "its dead-letter strategy is at-most-once"
    } else {
        "its overflow is not reject-publish, without which the broker dead-letters at most once"
    };
    queue.lint(
        "at-most-once",
        format!("dead letters of this queue may be lost: {missing}"),
        "set dead-letter-strategy at-least-once and overflow reject-publish",
    )
}

/// A dead-letter exchange that is not there or leads nowhere.
fn dead_letters_nowhere(queue: &Seen<'_>, view: &View<'_>) -> Option<Lint> {
    let exchange = queue.dead_letter_exchange.as_deref()?;
    let key = queue.dead_letter_key.as_deref();
    let what = match view.leads_somewhere(exchange, key) {
        Leads::Somewhere => return None,
        Leads::NoExchange => format!("its dead-letter exchange {exchange:?} does not exist"),
        Leads::Unbound => format!("nothing is bound to its dead-letter exchange {exchange:?}"),
        Leads::NoMatch => format!(
            "its dead-letter exchange {exchange:?} has no way for its dead-letter routing key {:?}",
            key.unwrap_or_default()
        ),
    };
    let then = if queue.get("dead-letter-strategy").text() == Some("at-least-once") {
        "dead letters stay in the queue and are tried again every three minutes"
    } else {
        "dead letters are dropped"
    };
    queue.lint(
        "dead-letter-nowhere",
        format!("{what}: {then}"),
        "bind a queue there, or take the dead-letter exchange away",
    )
}

/// A time to live where messages wait for workers.
fn ttl_in_shared_queue(queue: &Seen<'_>) -> Option<Lint> {
    let millis = queue.number("message-ttl")?;
    if queue.role != Role::Business {
        return None;
    }
    queue.lint(
        "ttl-in-shared-queue",
        format!(
            "tasks that wait longer than {millis} ms expire ({}), and only when they reach the head: one with a \
             longer life of its own holds up all behind it",
            queue.get("message-ttl").from
        ),
        "take the time to live away; delays belong into the ladder",
    )
}

fn classic(queue: &Seen<'_>) -> Option<Lint> {
    if queue.live.kind != "classic" {
        return None;
    }
    queue.lint(
        "classic-queue",
        "a classic queue is on one node only and dead-letters at most once; the platform's are quorum queues"
            .to_owned(),
        "declare it as a quorum queue (`tidegate topology migrate` for one of the topology)",
    )
}

/// Handlers may run longer than the broker waits.
fn consumer_timeout(queue: &Seen<'_>, version: Version) -> Option<Lint> {
    let longest = queue.max_timeout?;
    let timeout = queue
        .number("consumer-timeout")
        .unwrap_or(DEFAULT_CONSUMER_TIMEOUT as f64);
    if longest.as_millis() as f64 <= timeout {
        return None;
    }
    let next = if version >= CONSUMER_TIMEOUT_BY_POLICY {
        "state `consumer_timeout` of the queue in its topology file, above its longest `timeoutMs`"
    } else {
        "set `consumer_timeout` in rabbitmq.conf above it; this version knows no other way"
    };
    queue.lint(
        "consumer-timeout",
        format!(
            "its tasks may run for {}, and after {} ({}) the broker delivers them again",
            humantime::format_duration(longest),
            humantime::format_duration(Duration::from_millis(timeout as u64)),
            queue.get("consumer-timeout").from,
        ),
        next,
    )
}

/// Policies of the platform's own that this version can't put in force.
fn timeouts_of_the_node(version: Version, wanted: &Objects) -> Option<Lint> {
    if version >= CONSUMER_TIMEOUT_BY_POLICY || wanted.policies.is_empty() {
        return None;
    }
    Some(Lint {
        rule: "consumer-timeout-by-node",
        object: None,
        what: format!(
            "{} of the queues state a consumer timeout, which RabbitMQ {version} has for the whole node only",
            wanted.policies.len()
        ),
        next: "set `consumer_timeout` in rabbitmq.conf to the longest of them".to_owned(),
    })
}

fn feature_flags(live: &Live) -> Vec<Lint> {
    let mut lints = Vec::new();
    let (needed, others): (Vec<&str>, Vec<&str>) = live
        .disabled_feature_flags
        .iter()
        .map(String::as_str)
        .partition(|flag| *flag == STREAM_QUEUE);
    let lint = |what: String, next: String| Lint {
        rule: "feature-flags",
        object: None,
        what,
        next,
    };
    if live.version < Version::new(4, 0, 0) && !needed.is_empty() {
        lints.push(lint(
            format!("the feature flag {STREAM_QUEUE} is off: dead-lettering is at most once without it"),
            format!("rabbitmqctl enable_feature_flag {STREAM_QUEUE}"),
        ));
    }
    if live.version >= CONSUMER_TIMEOUT_BY_POLICY && !others.is_empty() {
        lints.push(lint(
            format!(
                "feature flags are off that an upgrade to the next version may need: {}",
                others.join(", ")
            ),
            "rabbitmqctl enable_feature_flag all, once every node runs this version".to_owned(),
        ));
    }
    lints
}

impl Seen<'_> {
    fn lint(&self, rule: &'static str, what: String, next: &str) -> Option<Lint> {
        Some(Lint {
            rule,
            object: Some(ObjectName::new(ObjectKind::Queue, &self.live.name)),
            what,
            next: next.to_owned(),
        })
    }
}
