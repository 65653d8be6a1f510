//! Which queues let their tasks run for longer than the broker waits for an acknowledgement, by the topology files alone.
//!
//! Imports `consumer_timeout` and the findings.

use std::time::Duration;

use super::{Finding, Part, Severity};
use crate::consumer_timeout::{BROKER_DEFAULT, longest, needed};

/// What a queue says about time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Its name.
    pub name: String,
    /// The longest run of its tasks, where it says so.
    pub max_timeout: Option<Duration>,
    /// How long the broker waits, where it says so.
    pub consumer_timeout: Option<Duration>,
}

/// One finding for each queue whose tasks the broker would deliver again while they run.
pub fn timeouts(queues: &[Queue]) -> Vec<Finding> {
    let too_long = |queue: &Queue| {
        let run = queue.max_timeout?;
        let limit = queue.consumer_timeout.unwrap_or(BROKER_DEFAULT);
        if run <= longest(limit) {
            return None;
        }
        let whose = match queue.consumer_timeout {
            Some(_) => "its consumer_timeout",
            None => "the broker's default",
        };
        let what = format!(
            "its tasks may run for {} s, and the broker delivers them again after {} s ({whose})",
            run.as_secs(),
            limit.as_secs()
        );
        let finding = Finding::ok(
            Part::Topology,
            "consumer_timeout",
            what,
            format!("queue {}", queue.name),
        );
        let least = needed(run).as_secs() + u64::from(needed(run).subsec_nanos() > 0);
        let next = format!(
            "state `consumer_timeout = \"{least}s\"` or more for it in the topology, then `tidegate topology apply`; \
             before RabbitMQ 3.12 set consumer_timeout in rabbitmq.conf"
        );
        Some(finding.bad(Severity::Warning, next))
    };
    queues.iter().filter_map(too_long).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_must_fit_with_room_to_settle() {
        let minutes = |n: u64| Duration::from_secs(60 * n);
        for (run, limit, told) in [
            (None, None, false),
            (Some(minutes(29)), None, false),
            (Some(minutes(30)), None, true),
            (Some(minutes(60)), Some(minutes(61)), false),
            (Some(minutes(60)), Some(minutes(60)), true),
            (Some(minutes(600)), None, true),
        ] {
            let queue = Queue {
                name: "q".to_owned(),
                max_timeout: run,
                consumer_timeout: limit,
            };
            let found = timeouts(&[queue]);
            assert_eq!(!found.is_empty(), told, "{run:?} {limit:?}");
        }
        let queue = Queue {
            name: "q".to_owned(),
            max_timeout: Some(minutes(60)),
            consumer_timeout: None,
        };
        let next = &timeouts(&[queue])[0].next;
        assert!(next.contains("\"3660s\""), "{next}");
    }
}
