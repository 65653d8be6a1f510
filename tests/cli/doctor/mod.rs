//! `doctor` on installations that each lack one thing, and on one that lacks nothing. It names what, where and what to do.

mod reach;
mod sound;
mod tls;

use serde_json::json;
use tidegate_testkit::{Vhost, services};

use crate::run::{ORDER, Ran, Tidegate};

/// A command that is configured for all three.
fn on(amqp: &str, management: &str, database: &str) -> Tidegate {
    let tidegate = Tidegate::new()
        .file("topology/platform.toml", "")
        .file("topology/order.toml", ORDER);
    let set = [
        ("AMQP_URL", amqp),
        ("MANAGEMENT_URL", management),
        ("DATABASE_URL", database),
    ];
    let set = set.into_iter().filter(|(_, value)| !value.is_empty());
    set.fold(tidegate, |tidegate, (name, value)| tidegate.env(name, value))
}

/// The findings that are no `ok`, as `part.rule`, in the order of looking.
fn complaints(ran: &Ran) -> Vec<String> {
    let report = ran.json();
    let findings = report["findings"].as_array().unwrap();
    // What a plan warns of has its names there.
    let documented = concat!(
        include_str!("../../../docs/doctor.md"),
        include_str!("../../../docs/topology-plan.md")
    );
    for finding in findings {
        let rule = finding["rule"].as_str().unwrap();
        assert!(
            documented.contains(&format!("`{rule}`")),
            "{rule} is in no document"
        );
        let next = finding["next"].as_str();
        let bad = finding["severity"] != "ok";
        assert_eq!(next.is_some_and(|next| !next.is_empty()), bad, "{finding}");
        assert!(
            finding["where"].as_str().is_some_and(|place| !place.is_empty()),
            "{finding}"
        );
    }
    let bad = findings.iter().filter(|finding| finding["severity"] != "ok");
    bad.map(|f| format!("{}.{}", f["part"].as_str().unwrap(), f["rule"].as_str().unwrap()))
        .collect()
}

/// The only complaint, its advice, and that no password is shown.
#[track_caller]
fn only(ran: &Ran, code: i32, complaint: &str, advice: &str) {
    assert_eq!(
        (ran.code, complaints(ran)),
        (code, vec![complaint.to_owned()]),
        "{ran:?}"
    );
    let report = ran.json();
    let findings = report["findings"].as_array().unwrap();
    let found = findings.iter().find(|f| f["severity"] != "ok").unwrap();
    assert!(found["next"].as_str().unwrap().contains(advice), "{found}");
    assert_eq!(ran.error()["exitCode"], json!(code));
    assert_no_secret(ran);
}

#[track_caller]
fn assert_no_secret(ran: &Ran) {
    let services = services();
    for url in [&services.amqp, &services.database, &services.management] {
        let secret = url.split_once("://").and_then(|(_, rest)| rest.split_once('@'));
        let secret = secret
            .and_then(|(user, _)| user.split_once(':'))
            .map(|(_, password)| password);
        let secret = secret.filter(|secret| secret.len() >= 8);
        for said in [&ran.stdout, &ran.stderr] {
            assert!(!secret.is_some_and(|secret| said.contains(secret)), "{ran:?}");
            assert!(!said.contains("s3cret"), "{ran:?}");
        }
    }
}

/// `url` with another user and password.
fn as_user(url: &str, user: &str, password: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap();
    let host = rest.split_once('@').map_or(rest, |(_, host)| host);
    format!("{scheme}://{user}:{password}@{host}")
}

/// `HOST:PORT` of a URL.
fn address(url: &str) -> String {
    let rest = url.split_once('@').map_or(url, |(_, rest)| rest);
    rest.split(['/', '?']).next().unwrap().to_owned()
}

/// Applies the topology.
fn apply(vhost: &Vhost) -> i32 {
    on(vhost.amqp_url(), "", "").run(&["topology", "apply"]).code
}
