//! `tidegate doctor`: connects as configured and says what is wrong.
//!
//! May import: `doctor`, `services`.

use std::{io::IsTerminal, sync::Arc};

use serde_json::{Value, json};
use tidegate_core::doctor::{Cause, Finding, Part, Report, Severity, reach::Target};

use super::{
    failure::{Exit, Failure},
    output::{Output, escaped},
    services,
};
use crate::{
    broker::management::Management,
    config::{Loaded, Source},
    doctor::{self, ANSWER, Installation, target},
    store::Store,
    topology::Topology,
};

/// Arguments of `doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Looks only, and changes nothing. Ends within 30 seconds, whatever hangs.

Exit codes: 0 no error (there may be warnings), 2 settings or topology files can't be used,
7 a server is away or doesn't let this user in, 3 any other error.")]
pub(super) struct Doctor {
    /// Only what is wrong, and what could not be looked at
    #[arg(long)]
    quiet: bool,
}

impl Doctor {
    /// Runs the command.
    pub(super) async fn run(self, loaded: &Loaded, output: Output) -> Result<(), Failure> {
        let installation = installation(loaded)?;
        let report = doctor::examine(&installation).await;
        if output.json {
            output.json_line(&as_json(&report))?;
        } else {
            output.data(&text(&report, self.quiet))?;
        }
        match report.cause() {
            None => Ok(()),
            Some(cause) => Err(failure(&report, cause)),
        }
    }
}

/// What is configured. Nothing is connected yet.
fn installation(loaded: &Loaded) -> Result<Installation, Failure> {
    let config = &loaded.config;
    let broker = match config.amqp.url() {
        Ok(url) => {
            let settings = services::broker(config, "tidegate doctor")?;
            target::of_url(Part::Broker, url.secret(), url, url.vhost()).map(|target| (target, settings))
        }
        Err(_) => None,
    };
    let database = match config.database.url() {
        Ok(url) => {
            let store = services::store(config)?;
            Some((of_store(&store, url.to_string()), store))
        }
        Err(_) => None,
    };
    let vhost = config
        .amqp
        .url()
        .map_or_else(|_| "/".to_owned(), |url| url.vhost());
    let management = match &config.management.url {
        Some(url) => {
            let limit = config.management.timeout.min(ANSWER);
            let client = Management::new(url.secret(), &vhost, limit)
                .map_err(|error| services::of_management(&error, config))?;
            target::of_url(Part::Management, url.secret(), url, vhost).map(|target| (target, client))
        }
        None => None,
    };
    if broker.is_none() && database.is_none() && management.is_none() {
        return Err(Failure::new(
            Exit::Usage,
            "neither broker nor database is configured",
            "settings",
            "set AMQP_URL, DATABASE_URL and MANAGEMENT_URL; `tidegate config print` shows what is in force",
        ));
    }
    let dir = &config.topology.dir;
    let named = loaded
        .settings
        .get("topology.dir")
        .is_some_and(|setting| setting.source != Source::Default);
    Ok(Installation {
        broker,
        management,
        database,
        topology: (named || dir.exists()).then(|| Topology::load(dir).map(Arc::new)),
        topology_dir: dir.clone(),
    })
}

fn of_store(store: &Store, place: String) -> Target {
    let address = store.address();
    let (host, port) = address.server.unwrap_or_default();
    Target {
        part: Part::Database,
        place,
        host,
        port,
        user: address.user,
        inside: address.database,
    }
}

fn as_json(report: &Report) -> Value {
    let (errors, warnings) = report.counts();
    let finding = |f: &Finding| {
        json!({
            "part": f.part.as_str(),
            "rule": f.rule,
            "severity": f.severity.as_str(),
            "what": f.what,
            "where": f.place,
            "next": (!f.next.is_empty()).then_some(&f.next),
        })
    };
    let findings: Vec<Value> = report.findings.iter().map(finding).collect();
    let not_seen = report.not_seen.iter();
    let not_seen: Vec<Value> = not_seen.map(|n| json!({"what": n.what, "why": n.why})).collect();
    json!({"errors": errors, "warnings": warnings, "findings": findings, "notLookedAt": not_seen})
}

fn text(report: &Report, quiet: bool) -> String {
    let colour =
        std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut text = String::new();
    for finding in &report.findings {
        let (name, code) = match finding.severity {
            Severity::Ok if quiet => continue,
            Severity::Ok => ("ok", "32"),
            Severity::Warning => ("warning", "33"),
            Severity::Error(_) => ("error", "31"),
        };
        let shown = if colour {
            format!("\u{1b}[{code}m{name:<7}\u{1b}[0m")
        } else {
            format!("{name:<7}")
        };
        text.push_str(&format!(
            "{shown}  {}: {} [{}]\n",
            finding.part.as_str(),
            escaped(&finding.what),
            finding.rule
        ));
        if !finding.next.is_empty() {
            text.push_str(&format!(
                "         where: {}\n         next:  {}\n",
                escaped(&finding.place),
                escaped(&finding.next)
            ));
        }
    }
    for unseen in &report.not_seen {
        text.push_str(&format!(
            "not looked at: {}: {}\n",
            escaped(&unseen.what),
            escaped(&unseen.why)
        ));
    }
    text.push_str(&format!("\n{}\n", summary(report)));
    text
}

fn summary(report: &Report) -> String {
    let (errors, warnings) = report.counts();
    let counted = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let found = format!("{}, {}", counted(errors, "error"), counted(warnings, "warning"));
    match report.not_seen.len() {
        0 => format!("{found}."),
        n => format!("{found}; {} not looked at.", counted(n, "thing")),
    }
}

/// How the command ends, with the first error that is of the worst kind.
fn failure(report: &Report, cause: Cause) -> Failure {
    let (exit, what) = match cause {
        Cause::Settings => (Exit::Usage, "settings or files can't be used"),
        Cause::Unreachable => (Exit::Unavailable, "a server is away, or doesn't let this user in"),
        Cause::Wrong => (Exit::Differences, "something is not as it must be"),
    };
    let first = report
        .findings
        .iter()
        .find(|finding| finding.severity == Severity::Error(cause));
    let (place, next) = first.map_or(("", ""), |first| (&first.place, &first.next));
    let what = format!("{what} ({})", summary(report).trim_end_matches('.'));
    Failure::new(exit, what, escaped(place), escaped(next))
}
