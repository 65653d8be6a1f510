//! How long handlers may run: which timeout counts, and whether the broker waits that long.
//!
//! May import: `core`, `topology`, `broker`. A delivery given back here was not started, so it spends no attempt.

use std::time::Duration;

use humantime::format_duration;
use tidegate_core::{
    consumer_timeout::{BROKER_DEFAULT, Hold, hold, longest, needed},
    envelope::Envelope,
};

use super::{build_error::BuildError, delivery::Station, handled::Handlers};
use crate::{
    broker::consumer::Incoming,
    topology::{BusinessQueue, Topology},
};

/// How long the broker waits for an acknowledgement in `queue`, as far as the topology says.
pub(super) fn broker_limit(queue: &BusinessQueue) -> Duration {
    queue.consumer_timeout.unwrap_or(BROKER_DEFAULT)
}

/// Whether tasks of `task_type` come by `queue`, as far as the topology says.
fn carries(queue: &BusinessQueue, task_type: &str) -> bool {
    queue.task_types.iter().any(|named| named == task_type)
        || queue.bind.iter().any(|pattern| pattern.matches(task_type))
}

/// Refuses a handler whose timeout does not fit a queue that its tasks come by.
pub(super) fn check(
    topology: &Topology,
    queues: &[&BusinessQueue],
    handlers: &Handlers,
) -> Result<(), BuildError> {
    for (task_type, handled) in handlers.iter() {
        let mut carrying: Vec<&&BusinessQueue> =
            queues.iter().filter(|queue| carries(queue, task_type)).collect();
        if carrying.is_empty() {
            // Published by another key, so it may come by any of them.
            carrying = queues.iter().collect();
        }
        for queue in carrying {
            let broker = broker_limit(queue);
            if handled.timeout > longest(broker) {
                let typed = topology
                    .types
                    .get(task_type)
                    .is_some_and(|policy| policy.timeout.is_some());
                return Err(BuildError::TimeoutTooLong {
                    task_type: task_type.clone(),
                    queue: queue.name.clone(),
                    timeout: handled.timeout,
                    broker,
                    typed,
                });
            }
        }
    }
    Ok(())
}

/// The text of [`BuildError::TimeoutTooLong`].
pub(super) fn too_long(
    task_type: &str,
    queue: &str,
    timeout: Duration,
    broker: Duration,
    typed: bool,
) -> String {
    let lower = if typed {
        format!("`timeout` of the [[task_type]] {task_type:?} in its topology file")
    } else {
        format!(
            "`timeout` of a [[task_type]] {task_type:?} in a topology file, or `WorkerBuilder::default_timeout`,"
        )
    };
    format!(
        "task type {task_type:?} may run for {}, but the broker takes a delivery of queue {queue:?} back after {}: set \
         `consumer_timeout` of the [[queue]] {queue:?} in its topology file to {} or more and apply the topology, or \
         lower {lower} to {} or less",
        format_duration(timeout),
        format_duration(broker),
        format_duration(whole_seconds(needed(timeout))),
        format_duration(longest(broker)),
    )
}

fn whole_seconds(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs() + u64::from(time.subsec_nanos() > 0))
}

/// How long an attempt may run, and what to say when that time is up.
pub(super) struct Limit {
    pub(super) timeout: Duration,
    cut: Option<Cut>,
}

struct Cut {
    wanted: Duration,
    broker: Duration,
}

impl Limit {
    /// Why the attempt was stopped.
    pub(super) fn exceeded(&self, queue: &str) -> String {
        let ran = format_duration(self.timeout);
        match &self.cut {
            None => format!("ran longer than {ran}"),
            Some(Cut { wanted, broker }) => format!(
                "ran longer than {ran}, which is all that is left of its timeoutMs of {}: the broker takes a delivery of \
                 queue {queue:?} back after {}; set `consumer_timeout` of that [[queue]] in its topology file to {} or \
                 more",
                format_duration(*wanted),
                format_duration(*broker),
                format_duration(whole_seconds(needed(*wanted))),
            ),
        }
    }
}

impl Station {
    /// How long `incoming` may run; `None`: it has waited here for so long that it must go back to its queue.
    pub(super) fn limit(&self, incoming: &Incoming, envelope: &Envelope) -> Option<Limit> {
        let handled = self.handlers.get(envelope.task_type.as_str());
        let wanted = match (envelope.timeout, handled) {
            (Some(timeout), _) => timeout,
            (None, Some(handled)) => handled.timeout,
            // Nothing here runs it.
            (None, None) => Duration::ZERO,
        };
        match hold(wanted, self.broker_limit, incoming.arrived.elapsed()) {
            Hold::Whole(timeout) => Some(Limit { timeout, cut: None }),
            Hold::Cut(timeout) => Some(Limit {
                timeout,
                cut: Some(Cut {
                    wanted,
                    broker: self.broker_limit,
                }),
            }),
            Hold::TooOld => None,
        }
    }
}
