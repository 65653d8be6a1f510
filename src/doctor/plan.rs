//! What a plan of the topology says is wrong, as findings. Pure.
//!
//! May import: `topology`, core.

use tidegate_core::doctor::{Cause, Finding, Part, Report, Severity};

use crate::topology::plan::{Change, Conflict, Lint, Origin, Plan};

/// Most objects that are named, and most findings of one kind; the rest is counted.
const NAMED: usize = 10;
/// What makes delays lose tasks.
const FATAL: &[&str] = &["delay-queue-drops-head"];
/// Said by the core, with the version.
const SAID_ELSEWHERE: &[&str] = &["feature-flags"];

/// The findings of `plan`, made for the broker at `place`.
pub(super) fn findings(plan: &Plan, place: &str) -> Report {
    let mut report = Report::default();
    missing(plan, place, &mut report);
    let mut conflicts: Vec<&Conflict> = plan.conflicts().collect();
    // What a policy does is told first: it may have come overnight.
    conflicts.sort_by_key(|conflict| !is_by_policy(conflict));
    for conflict in conflicts.iter().take(NAMED) {
        report.push(of_conflict(conflict, plan));
    }
    more(conflicts.len(), "conflict", place, &mut report);
    others(plan, place, &mut report);
    let lints: Vec<&Lint> = plan
        .lints
        .iter()
        .filter(|lint| !SAID_ELSEWHERE.contains(&lint.rule))
        .collect();
    for lint in lints.iter().take(NAMED) {
        report.push(of_lint(lint, place));
    }
    more(lints.len(), "risk", place, &mut report);
    for unread in &plan.unread {
        report.unseen(unread.what.as_str(), unread.why.as_str());
    }
    if plan.changes.is_empty() {
        let what = match plan.unread.is_empty() {
            true => format!(
                "the broker is as the topology describes it ({} objects)",
                plan.wanted
            ),
            false => "nothing of the topology is missing on the broker, as far as could be seen".to_owned(),
        };
        report.push(Finding::ok(Part::Topology, "objects", what, place));
    }
    report
}

fn missing(plan: &Plan, place: &str, report: &mut Report) {
    let added: Vec<String> = plan
        .changes
        .iter()
        .filter(|change| matches!(change, Change::Add(_)))
        .map(|change| change.object().to_string())
        .collect();
    if added.is_empty() {
        return;
    }
    let rest = match added.len().saturating_sub(NAMED) {
        0 => String::new(),
        rest => format!(" and {rest} more"),
    };
    let names: Vec<&str> = added.iter().take(NAMED).map(String::as_str).collect();
    let what = format!(
        "of the {} objects of the topology {} are missing on the broker: {}{rest}",
        plan.wanted,
        added.len(),
        names.join(", ")
    );
    report.push(Finding::ok(Part::Topology, "missing", what, place).bad(
        Severity::Error(Cause::Wrong),
        "run `tidegate topology apply` as a user that may declare",
    ));
}

fn is_by_policy(conflict: &Conflict) -> bool {
    let by_policy = |from: &Origin| matches!(from, Origin::Policy(_) | Origin::OperatorPolicy(_));
    conflict.differences.iter().any(|d| by_policy(&d.from))
}

fn of_conflict(conflict: &Conflict, plan: &Plan) -> Finding {
    let (rule, says) = if is_by_policy(conflict) {
        ("policy", "a policy changes what the queue does")
    } else {
        ("conflict", "it exists with other properties")
    };
    let what = format!(
        "{says} (in force → as the topology has it): {}",
        conflict.sentence(plan.version)
    );
    let next: Vec<String> = conflict.remedies.iter().map(ToString::to_string).collect();
    Finding::ok(Part::Topology, rule, what, conflict.object.to_string())
        .bad(Severity::Error(Cause::Wrong), next.join("; "))
}

/// Policies of our own that were changed, migrations that have not ended, and extras.
fn others(plan: &Plan, place: &str, report: &mut Report) {
    for change in &plan.changes {
        let (rule, what, next) = match change {
            Change::Edit(edit) => (
                "own_policy",
                format!("the policy {} is not as the topology has it", edit.policy.name),
                "run `tidegate topology apply`".to_owned(),
            ),
            Change::Migrating(migrating) => (
                "migrating",
                format!("a migration of {} has begun and not ended", migrating.queue),
                change.advice(),
            ),
            Change::Add(_) | Change::Conflict(_) | Change::Extra(_) => continue,
        };
        let found = Finding::ok(Part::Topology, rule, what, change.object().to_string());
        report.push(found.bad(Severity::Warning, next));
    }
    let extras = plan.extras().count();
    if extras > 0 {
        let what =
            format!("{extras} objects count as the platform's, and nothing in the topology wants them");
        report.push(Finding::ok(Part::Topology, "extra", what, place).bad(
            Severity::Warning,
            "`tidegate topology plan` names them; `tidegate topology apply --prune` deletes those that are not in use",
        ));
    }
}

fn of_lint(lint: &Lint, place: &str) -> Finding {
    let severity = if FATAL.contains(&lint.rule) {
        Severity::Error(Cause::Wrong)
    } else {
        Severity::Warning
    };
    let object = lint.object.as_ref().map(ToString::to_string);
    Finding::ok(
        Part::Topology,
        lint.rule,
        lint.what.as_str(),
        object.unwrap_or_else(|| place.to_owned()),
    )
    .bad(severity, lint.next.as_str())
}

fn more(found: usize, what: &str, place: &str, report: &mut Report) {
    let rest = found.saturating_sub(NAMED);
    if rest > 0 {
        let what = format!("{rest} more of this kind ({what})");
        report.push(
            Finding::ok(Part::Topology, "more", what, place)
                .bad(Severity::Warning, "`tidegate topology plan` shows all"),
        );
    }
}
