//! The broker by its management API: version, feature flags, alarms, clock, and all that is in the vhost.
//!
//! May import: `broker`, `topology`, core.

use serde::Deserialize;
use tidegate_core::doctor::{
    Cause, Finding, Part, Report, Severity, clock, reach,
    reach::{Target, Unreached},
    tls, version,
};

use super::{ANSWER, network};
use crate::{
    broker::management::{Management, ManagementError},
    topology::live::Live,
};

/// What an HTTP client says first.
const HELLO: &[u8] = b"GET / HTTP/1.0\r\n\r\n";

/// What was read.
pub(super) struct Seen {
    pub(super) live: Live,
}

/// The answer to a check of alarms; with none the list is left out.
#[derive(Deserialize)]
struct Alarms {}

/// What is in the vhost, if it could be read.
pub(super) async fn look(management: &Option<(Target, Management)>, report: &mut Report) -> Option<Seen> {
    let Some((target, management)) = management else {
        report.unseen(
            "the broker's version, feature flags, plugins, alarms, clock and policies, and arguments of queues",
            "MANAGEMENT_URL (management.url) is not set, e.g. http://USER:PASSWORD@HOST:15672",
        );
        return None;
    };
    if let Err(why) = enter(target, management).await {
        report.push(denied(target, &why).unwrap_or_else(|| target.unreached(&why)));
        return None;
    }
    let what = format!("the management plugin lets user {:?} in", target.user);
    report.push(Finding::ok(
        Part::Management,
        "login",
        what,
        target.place.as_str(),
    ));
    read_clock(target, management, report).await;
    read_alarms(target, management, report).await;
    match management.read_live().await {
        Ok(live) => {
            let numbers = (live.version.major, live.version.minor, live.version.patch);
            report.push(version::version(numbers, &target.place));
            if !live.unread.iter().any(|unread| unread.what == "feature flags") {
                report.push(version::feature_flags(
                    numbers,
                    &live.disabled_feature_flags,
                    &target.place,
                ));
            }
            Some(Seen { live })
        }
        Err(error) => {
            let why = match &error {
                ManagementError::NotFound { .. } => {
                    Unreached::Missing("the management API knows no such vhost".to_owned())
                }
                ManagementError::Denied { reason, .. } => Unreached::NoRight(reason.clone()),
                _ => unreached(&error),
            };
            report.push(target.unreached(&why));
            None
        }
    }
}

/// AMQP was let into the vhost, so it exists: of one that a user may not see 3.10 says that access is denied, and 4.3 that it
/// isn't found.
pub(super) fn not_shown(target: &Target, report: &mut Report) {
    let why = Unreached::NoRight("the management API shows it no such vhost".to_owned());
    for finding in &mut report.findings {
        if finding.rule == "vhost_missing" {
            *finding = target.unreached(&why);
        }
    }
}

async fn enter(target: &Target, management: &Management) -> Result<(), Unreached> {
    network::reach(target).await?;
    let Err(error) = management.enter().await else {
        return Ok(());
    };
    let why = unreached(&error);
    let is_plain = target.place.starts_with("http://");
    if is_plain && matches!(why, Unreached::Other(_)) && network::speaks_tls(target, HELLO).await {
        return Err(Unreached::WantsTls);
    }
    Err(why)
}

async fn read_clock(target: &Target, management: &Management, report: &mut Report) {
    let place = target.place.as_str();
    match management.clock().await {
        Ok(Some(read)) => {
            let reading = clock::Reading {
                before_ms: read.before.timestamp_millis(),
                there_ms: read.there.timestamp_millis(),
                after_ms: read.after.timestamp_millis(),
                resolution_ms: 1_000,
            };
            report.push(clock::difference(
                Part::Management,
                "the broker's machine",
                reading,
                place,
            ));
        }
        Ok(None) => report.unseen("the broker's clock", "its answers have no date"),
        Err(error) => report.unseen("the broker's clock", error.to_string()),
    }
}

async fn read_alarms(target: &Target, management: &Management, report: &mut Report) {
    match management.get::<Alarms>("health/checks/alarms").await {
        Ok(_) => report.push(Finding::ok(
            Part::Broker,
            "alarms",
            "no memory or disk alarm",
            target.place.as_str(),
        )),
        Err(ManagementError::Unavailable { reason, .. }) if reason.starts_with("503") => {
            let found = Finding::ok(
                Part::Broker,
                "alarms",
                format!("an alarm of the broker blocks all publishing ({reason})"),
                target.place.as_str(),
            );
            report.push(found.bad(
                Severity::Error(Cause::Wrong),
                "make room: rabbitmq-diagnostics alarms names node and resource, disk or memory",
            ));
        }
        Err(error) => report.unseen("the broker's alarms", error.to_string()),
    }
}

/// A user that is known and lacks the tag is told apart from a wrong password.
fn denied(target: &Target, why: &Unreached) -> Option<Finding> {
    let Unreached::Login(said) = why else {
        return None;
    };
    said.to_lowercase().contains("management user").then(|| {
        let what = format!(
            "user {:?} may not use the management API: it has no tag for it",
            target.user
        );
        let found = Finding::ok(Part::Management, "tag_missing", what, target.place.as_str());
        found.bad(
            Severity::Error(Cause::Unreachable),
            format!(
                "rabbitmqctl set_user_tags {} monitoring policymaker",
                reach::word(&target.user)
            ),
        )
    })
}

fn unreached(error: &ManagementError) -> Unreached {
    match error {
        ManagementError::Unavailable { reason, .. } => match tls::read(reason) {
            Some(tls) => Unreached::Tls(tls),
            None if reason.starts_with("no answer in time") => Unreached::Silent(ANSWER),
            None => Unreached::Other(reason.clone()),
        },
        ManagementError::Denied { reason, .. } => Unreached::Login(reason.clone()),
        ManagementError::NotFound { .. } | ManagementError::NoApi { .. } => Unreached::OtherProtocol,
        ManagementError::Refused { .. } => Unreached::Other(error.to_string()),
    }
}
