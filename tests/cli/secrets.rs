//! No password in any output, whatever fails and whatever is logged.

use tidegate_testkit::{Vhost, services};

use crate::run::{ORDER, Ran, Tidegate};

const SECRET: &str = "s3cret-pa55";

fn tidegate(amqp: &str, database: &str) -> Tidegate {
    Tidegate::new()
        .file("topology/platform.toml", "")
        .file("topology/order.toml", ORDER)
        .env("AMQP_URL", amqp)
        .env("DATABASE_URL", database)
        .env(
            "TIDEGATE_DIGEST_WEBHOOK",
            &format!("https://hooks.example.com/{SECRET}"),
        )
        .env(
            "RUST_LOG",
            "trace,lapin=trace,amq_protocol_tcp=trace,sqlx=trace,hyper=trace",
        )
        .env("RUST_BACKTRACE", "full")
}

fn assert_silent(ran: &Ran, arguments: &[&str]) {
    let output = format!("{}{}", ran.stdout, ran.stderr);
    assert!(
        !output.contains(SECRET),
        "{arguments:?}: {}",
        output.lines().find(|l| l.contains(SECRET)).unwrap_or_default()
    );
}

const COMMANDS: [&[&str]; 6] = [
    &["config", "print", "--json"],
    &["publish", "--type", "order.close", "--json"],
    &["topology", "apply"],
    &["migrate", "--set", "database.acquire_timeout=300ms"],
    &[
        "cron",
        "list",
        "--json",
        "--set",
        "database.acquire_timeout=300ms",
    ],
    &["cron", "next", "x", "--set", "database.acquire_timeout=300ms"],
];

#[test]
fn services_that_are_away_are_7_and_keep_the_password() {
    let tidegate = tidegate(
        &format!("amqp://tide:{SECRET}@127.0.0.1:1/v"),
        &format!("postgres://tide:{SECRET}@127.0.0.1:1/x"),
    );
    for arguments in COMMANDS {
        let ran = tidegate.run(arguments);
        assert_silent(&ran, arguments);
        assert_eq!(
            ran.code,
            if arguments[0] == "config" { 0 } else { 7 },
            "{arguments:?}: {ran:?}"
        );
        assert!(
            ran.code == 0 || ran.stderr.contains("tide:***@127.0.0.1:1"),
            "{arguments:?}: {}",
            ran.stderr
        );
    }
}

#[tokio::test]
async fn a_wrong_password_is_told_without_it() {
    let vhost = Vhost::create().await;
    let services = services();
    let (_, database_host) = services.database.rsplit_once('@').unwrap();
    let tidegate = tidegate(
        &vhost.amqp_url_as("tidegate", SECRET),
        &format!("postgres://nobody:{SECRET}@{database_host}"),
    );
    for arguments in COMMANDS {
        let ran = tidegate.run(arguments);
        assert_silent(&ran, arguments);
        assert_eq!(ran.code == 0, arguments[0] == "config", "{arguments:?}: {ran:?}");
    }
    let ran = tidegate.run(&["topology", "apply"]);
    assert!(ran.stderr.contains("ACCESS_REFUSED"), "{}", ran.stderr);
    let ran = tidegate.run(&["migrate"]);
    assert!(
        ran.code == 7 && ran.stderr.contains("doesn't let this user in"),
        "{ran:?}"
    );
    vhost.close().await;
}
