//! Whether a version of the broker serves us, and whether what we need of it is switched on.
//!
//! Imports the findings.

use super::{Cause, Finding, Part, Severity};

/// The lines that are tested, oldest first: major and minor.
pub const TESTED: &[(u32, u32)] = &[(3, 10), (3, 12), (3, 13), (4, 0), (4, 3)];

/// At-least-once dead-lettering of quorum queues depends on it, up to 3.13; from 4.0 on it is always on.
const STREAM_QUEUE: &str = "stream_queue";

/// What to say of the broker's version: major, minor, patch.
pub fn version(version: (u32, u32, u32), place: &str) -> Finding {
    let (major, minor, patch) = version;
    let line = (major, minor);
    let tested: Vec<String> = TESTED.iter().map(|(a, b)| format!("{a}.{b}")).collect();
    let tested = tested.join(", ");
    let found = |what: String| Finding::ok(Part::Broker, "version", what, place);
    let (oldest, newest) = (TESTED[0], TESTED[TESTED.len() - 1]);
    if line < oldest {
        let what = format!(
            "RabbitMQ {major}.{minor}.{patch} is too old: quorum queues have no time to live before {}.{}, so no \
             delay works",
            oldest.0, oldest.1
        );
        return found(what).bad(
            Severity::Error(Cause::Wrong),
            format!("upgrade the broker to one of {tested}"),
        );
    }
    if TESTED.contains(&line) {
        return found(format!("RabbitMQ {major}.{minor}.{patch} is supported"));
    }
    let what = if line > newest {
        format!("RabbitMQ {major}.{minor}.{patch} is newer than what this program was tested on ({tested})")
    } else {
        format!("RabbitMQ {major}.{minor}.{patch} is none of the versions that are tested ({tested})")
    };
    found(what).bad(
        Severity::Warning,
        "run `tidegate topology verify`, which sends real messages through every route, or use a tested version",
    )
}

/// What to say of the feature flags that are off.
pub fn feature_flags(version: (u32, u32, u32), disabled: &[String], place: &str) -> Finding {
    let found = |what: String| Finding::ok(Part::Broker, "feature_flags", what, place);
    let (needed, others): (Vec<&str>, Vec<&str>) = disabled
        .iter()
        .map(String::as_str)
        .partition(|flag| *flag == STREAM_QUEUE);
    if version.0 < 4 && !needed.is_empty() {
        return found(format!(
            "the feature flag {STREAM_QUEUE} is off: without it dead letters and delays may be lost on their way"
        ))
        .bad(
            Severity::Error(Cause::Wrong),
            format!("rabbitmqctl enable_feature_flag {STREAM_QUEUE}"),
        );
    }
    let more = match others.as_slice() {
        [] => String::new(),
        some => format!("; off, and not needed by us: {}", some.join(", ")),
    };
    found(format!("the feature flags that are needed are on{more}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_told_apart_by_their_line() {
        for (given, severity, says) in [
            ((3, 9, 29), "error", "too old"),
            ((3, 10, 8), "ok", "supported"),
            ((3, 11, 0), "warning", "none of the versions"),
            ((3, 13, 7), "ok", "supported"),
            ((4, 0, 5), "ok", "supported"),
            ((4, 2, 1), "warning", "none of the versions"),
            ((4, 3, 6), "ok", "supported"),
            ((4, 4, 0), "warning", "newer"),
            ((5, 0, 0), "warning", "newer"),
        ] {
            let found = version(given, "mq");
            assert_eq!(found.severity.as_str(), severity, "{given:?}");
            assert!(found.what.contains(says), "{found:?}");
            assert_eq!(found.next.is_empty(), severity == "ok", "{found:?}");
        }
    }

    #[test]
    fn a_flag_matters_where_something_depends_on_it() {
        for (given, off, expected) in [
            ((3, 10, 8), vec![], "ok"),
            ((3, 10, 8), vec![STREAM_QUEUE], "error"),
            ((3, 13, 7), vec!["other", STREAM_QUEUE], "error"),
            ((3, 10, 8), vec!["maintenance_mode_status"], "ok"),
            ((4, 0, 5), vec![STREAM_QUEUE, "khepri_db"], "ok"),
        ] {
            let off: Vec<String> = off.into_iter().map(str::to_owned).collect();
            let found = feature_flags(given, &off, "mq");
            assert_eq!(found.severity.as_str(), expected, "{given:?} {off:?}");
        }
    }
}
