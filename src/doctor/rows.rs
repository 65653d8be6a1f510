//! What goes nowhere: schedules without a queue, and messages that no queue took. Pure.
//!
//! May import: `store`, `topology`, core.

use tidegate_core::{
    doctor::{
        Finding, Part, Report, Severity,
        routes::{self, Schedule},
    },
    names::Names,
};

use super::Installation;
use crate::{
    store::inspect::{EnabledSchedule, MOST_SCHEDULES},
    topology::{Topology, live::Live},
};

/// Schedules whose tasks no queue takes. Those with an exchange of their own are somebody else's matter.
pub(super) fn schedules(
    rows: &[EnabledSchedule],
    topology: &Topology,
    installation: &Installation,
) -> Report {
    let mut report = Report::default();
    let place = installation.place(Part::Database);
    let own = topology.names.exchange();
    let ours: Vec<Schedule> = rows
        .iter()
        .filter(|row| row.exchange.as_deref().is_none_or(|exchange| exchange == own))
        .map(|row| Schedule {
            name: row.name.clone(),
            key: row.key.clone(),
        })
        .collect();
    let bindings: Vec<_> = topology.queues.iter().flat_map(|queue| &queue.bind).collect();
    match routes::schedules(&ours, &bindings, place) {
        Some(finding) => report.push(finding),
        None => {
            let what = format!(
                "{} enabled schedules, each with a queue for its tasks",
                ours.len()
            );
            report.push(Finding::ok(Part::Topology, "unroutable_schedules", what, place));
        }
    }
    if usize::try_from(MOST_SCHEDULES).is_ok_and(|most| rows.len() >= most) {
        report.unseen(
            "schedules beyond the first 5000 by name",
            "that many are looked at",
        );
    }
    report
}

/// What was published under keys that no queue takes, and waits for a router.
pub(super) fn unrouted(live: &Live, topology: &Topology, place: &str) -> Report {
    let mut report = Report::default();
    let queue = Names::queue_of(&topology.names.unrouted());
    let waiting = live.queue(&queue).and_then(|queue| queue.messages).unwrap_or(0);
    if waiting > 0 {
        let what = format!("{waiting} messages that no queue took wait in {queue}");
        report.push(Finding::ok(Part::Topology, "unrouted", what, place).bad(
            Severity::Warning,
            "run `tidegate serve --roles router`, which says of each what key it had; then bind a queue or correct the producer",
        ));
    }
    report
}
