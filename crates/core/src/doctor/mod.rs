//! What is wrong with an installation, said in plain words: facts in, findings out.
//!
//! | module | question it answers |
//! |---|---|
//! | [`reach`] | why is a server not reached, and what to do about it? |
//! | [`tls`] | what does this text of a TLS library mean? |
//! | [`version`] | does this version of the broker serve us, and are its feature flags on? |
//! | [`clock`] | do two clocks differ by more than measuring can explain? |
//! | [`schema`] | does the schema of the ledger fit this program? |
//! | [`routes`] | which rows of schedules make tasks that no queue takes? |
//! | [`timeouts`] | which queues let tasks run for longer than the broker waits? |
//!
//! Imports nothing of ours but what its parts name.

pub mod clock;
pub mod reach;
pub mod routes;
pub mod schema;
pub mod timeouts;
pub mod tls;
pub mod version;

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The broker, by AMQP.
    Broker,
    /// The broker's management API.
    Management,
    /// The database.
    Database,
    /// Topology files, and what exists of them on the broker.
    Topology,
    /// Settings of this program.
    Settings,
}

/// What an error is, for whoever decides by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// What was reached is not as it must be.
    Wrong,
    /// A server is away, or doesn't let us in: the same may work later.
    Unreachable,
    /// Settings or files can't be used as they are.
    Settings,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// As it should be.
    Ok,
    /// Works, and may hurt.
    Warning,
    /// Something will not work.
    Error(Cause),
}

/// One thing that was looked at. Holds no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it is about.
    pub part: Part,
    /// A stable name for programs, e.g. `unknown_host`; with `part` it says what was found.
    pub rule: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What is so.
    pub what: String,
    /// Where: a URL without its password, a queue, a file.
    pub place: String,
    /// What to do next; empty where nothing is to be done.
    pub next: String,
}

/// What could not be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotSeen {
    /// What.
    pub what: String,
    /// Why, and what would change it.
    pub why: String,
}

/// All that was found, in the order of looking.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The findings.
    pub findings: Vec<Finding>,
    /// What is unknown.
    pub not_seen: Vec<NotSeen>,
}

impl Part {
    /// Its name in output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Broker => "broker",
            Self::Management => "management",
            Self::Database => "database",
            Self::Topology => "topology",
            Self::Settings => "settings",
        }
    }
}

impl Severity {
    /// `ok`, `warning` or `error`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Error(_) => "error",
        }
    }
}

impl Finding {
    /// Something that is as it should be.
    pub fn ok(part: Part, rule: &'static str, what: impl Into<String>, place: impl Into<String>) -> Self {
        Self {
            part,
            rule,
            severity: Severity::Ok,
            what: what.into(),
            place: place.into(),
            next: String::new(),
        }
    }

    /// The same finding, as bad as `severity`, with what to do.
    #[must_use]
    pub fn bad(mut self, severity: Severity, next: impl Into<String>) -> Self {
        self.severity = severity;
        self.next = next.into();
        self
    }
}

impl Report {
    /// Adds a finding.
    pub fn push(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    /// Adds something that could not be looked at.
    pub fn unseen(&mut self, what: impl Into<String>, why: impl Into<String>) {
        let (what, why) = (what.into(), why.into());
        self.not_seen.push(NotSeen { what, why });
    }

    /// Appends another report.
    pub fn append(&mut self, other: Self) {
        self.findings.extend(other.findings);
        self.not_seen.extend(other.not_seen);
    }

    /// How many errors and warnings.
    pub fn counts(&self) -> (usize, usize) {
        let count = |wanted: &str| {
            let of = |finding: &&Finding| finding.severity.as_str() == wanted;
            self.findings.iter().filter(of).count()
        };
        (count("error"), count("warning"))
    }

    /// What all errors together are: settings first, since the rest can't be trusted under wrong ones, then what is
    /// away. `None` without errors.
    pub fn cause(&self) -> Option<Cause> {
        let causes = self.findings.iter().filter_map(|finding| match finding.severity {
            Severity::Error(cause) => Some(cause),
            Severity::Ok | Severity::Warning => None,
        });
        causes.max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_cause_is_told_and_warnings_are_none() {
        let with = |severities: &[Severity]| {
            let mut report = Report::default();
            for severity in severities {
                let finding = Finding::ok(Part::Broker, "x", "x", "x").bad(*severity, "");
                report.push(finding);
            }
            (report.cause(), report.counts())
        };
        let error = Severity::Error;
        for (given, expected) in [
            (vec![], (None, (0, 0))),
            (vec![Severity::Ok, Severity::Warning], (None, (0, 1))),
            (
                vec![error(Cause::Wrong), Severity::Warning],
                (Some(Cause::Wrong), (1, 1)),
            ),
            (
                vec![error(Cause::Unreachable), error(Cause::Wrong)],
                (Some(Cause::Unreachable), (2, 0)),
            ),
            (
                vec![error(Cause::Settings), error(Cause::Unreachable)],
                (Some(Cause::Settings), (2, 0)),
            ),
        ] {
            assert_eq!(with(&given), expected, "{given:?}");
        }
    }
}
