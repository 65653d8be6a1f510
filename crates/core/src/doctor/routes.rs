//! Which schedules make tasks that no queue takes.
//!
//! Imports `topic` and the findings.

use super::{Finding, Part, Severity};
use crate::topic::Pattern;

/// Most schedules that are named; the rest is counted.
pub const NAMED: usize = 10;

/// Where the tasks of a schedule go on the platform's own exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Its name.
    pub name: String,
    /// The routing key.
    pub key: String,
}

/// A finding if any of `schedules` has a key that none of `bindings` takes.
pub fn schedules(schedules: &[Schedule], bindings: &[&Pattern], place: &str) -> Option<Finding> {
    let is_lost = |schedule: &&Schedule| !bindings.iter().any(|pattern| pattern.matches(&schedule.key));
    let lost: Vec<&Schedule> = schedules.iter().filter(is_lost).collect();
    if lost.is_empty() {
        return None;
    }
    let names: Vec<String> = lost
        .iter()
        .take(NAMED)
        .map(|schedule| format!("{} ({})", schedule.name, schedule.key))
        .collect();
    let more = match lost.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let what = format!(
        "{} make tasks that no queue of the topology takes: {}{more}",
        match lost.len() {
            1 => "one enabled schedule".to_owned(),
            n => format!("{n} enabled schedules"),
        },
        names.join(", ")
    );
    Some(
        Finding::ok(Part::Topology, "unroutable_schedules", what, place).bad(
            Severity::Warning,
            "bind a queue to these keys in the topology and run `tidegate topology apply`, or correct the rows (`tidegate cron show NAME`)",
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nothing_takes_is_told() {
        let schedule = |n: usize, key: &str| Schedule {
            name: format!("s{n}"),
            key: key.to_owned(),
        };
        let order = Pattern::parse("order.close.#").unwrap();
        let rows = [schedule(1, "order.close"), schedule(2, "report.daily")];
        assert_eq!(schedules(&rows[..1], &[&order], "db"), None);
        assert_eq!(schedules(&[], &[], "db"), None);
        let found = schedules(&rows, &[&order], "db").unwrap();
        assert!(
            found.what.contains("one enabled schedule") && found.what.contains("s2 (report.daily)"),
            "{found:?}"
        );
        let many: Vec<Schedule> = (0..12).map(|n| schedule(n, "a.b")).collect();
        let found = schedules(&many, &[], "db").unwrap();
        assert!(
            found.what.starts_with("12 enabled") && found.what.ends_with("and 2 more"),
            "{found:?}"
        );
    }
}
