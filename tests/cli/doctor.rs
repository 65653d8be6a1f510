//! `doctor` on installations that each lack one thing, and on one that lacks nothing. It names what, where and what to do.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidegate_testkit::{Database, Proxy, TlsProxy, Vhost, services};

use crate::run::{ORDER, Ran, Tidegate};

/// Nothing listens there.
const CLOSED: &str = "127.0.0.1:1";

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
    for finding in findings {
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

#[tokio::test]
async fn a_sound_installation_has_no_complaint_and_each_thing_that_is_missing_one() {
    let (vhost, database) = (Vhost::create().await, Database::create().await);
    let management = services().management;
    let tidegate = on(vhost.amqp_url(), &management, database.url());

    let ran = tidegate.run(&["doctor", "--json"]);
    assert_eq!(
        (ran.code, complaints(&ran)),
        (
            3,
            vec![
                "database.schema_missing".to_owned(),
                "topology.missing".to_owned()
            ]
        ),
        "{ran:?}"
    );
    assert!(
        ran.stdout.contains("tidegate migrate") && ran.stdout.contains("tidegate topology apply"),
        "{ran:?}"
    );
    // What AMQP alone can tell is enough to see that.
    let blind = on(vhost.amqp_url(), "", database.url()).run(&["doctor", "--json"]);
    assert_eq!(complaints(&blind), complaints(&ran), "{blind:?}");
    let unseen = blind.json()["notLookedAt"].to_string();
    assert!(
        unseen.contains("MANAGEMENT_URL (management.url) is not set"),
        "{unseen}"
    );

    assert_eq!(tidegate.run(&["topology", "apply"]).code, 0);
    only(
        &tidegate.run(&["doctor", "--json"]),
        3,
        "database.schema_missing",
        "tidegate migrate",
    );
    assert_eq!(tidegate.run(&["migrate"]).code, 0);
    let ran = tidegate.run(&["doctor", "--json"]);
    assert_eq!((ran.code, complaints(&ran)), (0, Vec::new()), "{ran:?}");
    let report = ran.json();
    assert_eq!(
        (&report["errors"], &report["warnings"], &report["notLookedAt"]),
        (&json!(0), &json!(0), &json!([]))
    );
    assert_no_secret(&ran);
    let rules: Vec<String> = report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| format!("{}.{}", f["part"].as_str().unwrap(), f["rule"].as_str().unwrap()))
        .collect();
    for looked_at in [
        "broker.login",
        "broker.version",
        "broker.feature_flags",
        "broker.alarms",
        "management.clock",
        "database.clock",
        "database.schema",
        "topology.objects",
        "topology.unroutable_schedules",
    ] {
        assert!(
            rules.iter().any(|rule| rule == looked_at),
            "{looked_at}: {rules:?}"
        );
    }
    let ran = tidegate.run(&["doctor"]);
    assert!(
        ran.code == 0 && ran.stdout.ends_with("\n0 errors, 0 warnings.\n") && ran.stderr.is_empty(),
        "{ran:?}"
    );

    assert_eq!(tidegate.run(&["migrate", "down", "--to", "5", "--yes"]).code, 0);
    only(
        &tidegate.run(&["doctor", "--json"]),
        3,
        "database.schema_behind",
        "tidegate migrate",
    );
    vhost
        .management()
        .unbind("task.exchange", "order.close.queue")
        .await;
    let ran = tidegate.run(&["doctor", "--json"]);
    assert!(
        complaints(&ran).contains(&"topology.missing".to_owned()),
        "{ran:?}"
    );
    database.close().await;
    vhost.close().await;
}

#[tokio::test]
async fn a_policy_that_hurts_is_named_with_the_way_out() {
    let vhost = Vhost::create().await;
    let tidegate = on(vhost.amqp_url(), &services().management, "");
    assert_eq!(tidegate.run(&["topology", "apply"]).code, 0);
    let definitions = [
        json!({"overflow": "drop-head"}),
        json!({"message-ttl": 60_000}),
        json!({"max-length": 1_000}),
        json!({"delivery-limit": 3}),
    ];
    for definition in definitions {
        let policy = json!({"pattern": r"^order\.close\.queue$", "apply-to": "queues", "priority": 7, "definition": definition});
        vhost.management().put_policy("ops-1", &policy).await;
        let ran = tidegate.run(&["doctor", "--json"]);
        assert_eq!(ran.code, 3, "{ran:?}");
        assert_eq!(complaints(&ran)[0], "topology.policy", "{ran:?}");
        let report = ran.json();
        let found = report["findings"].as_array().unwrap();
        let found: Vec<&Value> = found.iter().filter(|f| f["rule"] == "policy").collect();
        assert_eq!(found.len(), 1, "{report}");
        let key = definition.as_object().unwrap().keys().next().unwrap();
        let (what, next) = (
            found[0]["what"].as_str().unwrap(),
            found[0]["next"].as_str().unwrap(),
        );
        assert!(
            what.contains(&format!("x-{key}")) && what.contains("policy ops-1"),
            "{what}"
        );
        assert!(next.contains("rabbitmqctl clear_policy"), "{next}");
        assert_eq!(found[0]["where"], json!("queue order.close.queue"));
    }
    vhost.close().await;
}

#[tokio::test]
async fn a_schedule_that_no_queue_takes_is_named() {
    let database = Database::create().await;
    let tidegate = on("", "", database.url());
    assert_eq!(tidegate.run(&["migrate"]).code, 0);
    for (name, task_type) in [("closes", "order.close.all"), ("lost", "report.daily")] {
        let add = [
            "cron",
            "add",
            name,
            "--type",
            task_type,
            "--cron",
            "@daily",
            "--payload",
            "{}",
        ];
        let ran = tidegate.run(&add);
        assert_eq!(ran.code, 0, "{ran:?}");
    }
    let ran = tidegate.run(&["doctor", "--json"]);
    assert_eq!(
        (ran.code, complaints(&ran)),
        (0, vec!["topology.unroutable_schedules".to_owned()]),
        "{ran:?}"
    );
    assert!(
        ran.stdout.contains("lost (report.daily)") && !ran.stdout.contains("closes"),
        "{ran:?}"
    );
    database.close().await;
}

#[tokio::test]
async fn what_the_broker_refuses_is_named() {
    let vhost = Vhost::create().await;
    let tidegate = |amqp: &str| on(amqp, "", "").run(&["doctor", "--json"]);
    let user = format!("{}-u", vhost.name());

    only(
        &tidegate(&vhost.amqp_url_as("nobody", "s3cret-and-wrong")),
        7,
        "broker.login",
        "user and password in AMQP_URL",
    );
    let other = vhost.amqp_url().replace(vhost.name(), "t-not-there");
    only(
        &tidegate(&other),
        7,
        "broker.vhost_missing",
        "rabbitmqctl add_vhost t-not-there",
    );

    // Known to the broker, and let into no vhost.
    vhost
        .management()
        .add_user(&user, "s3cret-pass", ("", "", ""))
        .await;
    let path = format!("/api/permissions/{}/{user}", vhost.name());
    vhost.management().delete(&path).await;
    let ran = tidegate(&vhost.amqp_url_as(&user, "s3cret-pass"));
    let advice = format!("rabbitmqctl set_permissions -p {} {user}", vhost.name());
    only(&ran, 7, "broker.vhost_denied", &advice);

    let management = services().management;
    let api = |url: &str| on(vhost.amqp_url(), url, "").run(&["doctor", "--json"]);
    assert_eq!(tidegate_applied(&vhost), 0);
    only(
        &api(&as_user(&management, "nobody", "s3cret-and-wrong")),
        7,
        "management.login",
        "MANAGEMENT_URL",
    );
    only(
        &api(&as_user(&management, &user, "s3cret-pass")),
        7,
        "management.tag_missing",
        "rabbitmqctl set_user_tags",
    );
    vhost
        .management()
        .tag_user(&user, "s3cret-pass", "management")
        .await;
    only(
        &api(&as_user(&management, &user, "s3cret-pass")),
        7,
        "management.vhost_denied",
        "rabbitmqctl set_permissions",
    );
    vhost.management().remove_user(&user).await;
    vhost.close().await;
}

fn tidegate_applied(vhost: &Vhost) -> i32 {
    on(vhost.amqp_url(), "", "").run(&["topology", "apply"]).code
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named_step_by_step() {
    let database = services().database;
    let closed = on(
        &format!("amqp://u:s3cret@{CLOSED}/v"),
        &format!("http://u:s3cret@{CLOSED}"),
        &format!("postgres://u:s3cret@{CLOSED}/d"),
    )
    .run(&["doctor", "--json"]);
    let of = |rule: &str| ["broker", "management", "database"].map(|part| format!("{part}.{rule}"));
    assert_eq!(
        (closed.code, complaints(&closed)),
        (7, of("refused").to_vec()),
        "{closed:?}"
    );
    assert!(
        closed
            .stdout
            .contains("rabbitmq-plugins enable rabbitmq_management")
            && closed.stdout.contains("start Postgres there"),
        "{closed:?}"
    );
    assert_no_secret(&closed);

    let unknown = "no-such-host.invalid";
    let unknown = on(
        &format!("amqp://u:s3cret@{unknown}/v"),
        &format!("http://u:s3cret@{unknown}:15672"),
        &format!("postgres://u:s3cret@{unknown}/d"),
    )
    .run(&["doctor", "--json"]);
    assert_eq!(
        (unknown.code, complaints(&unknown)),
        (7, of("unknown_host").to_vec()),
        "{unknown:?}"
    );
    assert!(
        unknown.stdout.contains("getent hosts no-such-host.invalid"),
        "{unknown:?}"
    );

    let tidegate = |url: &str| on("", "", url).run(&["doctor", "--json"]);
    only(
        &tidegate(&as_user(&database, "tidegate_nobody", "s3cret-and-wrong")),
        7,
        "database.login",
        "user and password in DATABASE_URL",
    );
    let (server, _) = database.rsplit_once('/').unwrap();
    only(
        &tidegate(&format!("{server}/t_not_there")),
        7,
        "database.database_missing",
        "createdb t_not_there",
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_tls_is_named_and_the_advice_helps() {
    let vhost = Vhost::create().await;
    assert_eq!(tidegate_applied(&vhost), 0);
    let tls = TlsProxy::before(&address(vhost.amqp_url())).await;
    let port = tls.address().port();
    let plain = vhost.amqp_url();
    let secure = |host: &str| {
        plain
            .replace("amqp://", "amqps://")
            .replace(&address(plain), &format!("{host}:{port}"))
    };
    let with_ca = |url: &str| {
        on(url, "", "")
            .env("SSL_CERT_FILE", tls.ca_file().to_str().unwrap())
            .run(&["doctor", "--json"])
    };
    let without = on(&secure("localhost"), "", "").run(&["doctor", "--json"]);
    only(&without, 7, "broker.tls_untrusted", "SSL_CERT_FILE");
    let helped = with_ca(&secure("localhost"));
    assert_eq!((helped.code, complaints(&helped)), (0, Vec::new()), "{helped:?}");
    // The certificate has no such name.
    only(&with_ca(&secure("127.0.0.2")), 7, "broker.tls_name", "127.0.0.2");

    let no_tls = plain.replace("amqp://", "amqps://");
    only(
        &on(&no_tls, "", "").run(&["doctor", "--json"]),
        7,
        "broker.tls_not_spoken",
        "write amqp://",
    );
    let needs_tls = plain.replace(&address(plain), &format!("localhost:{port}"));
    only(
        &on(&needs_tls, "", "").run(&["doctor", "--json"]),
        7,
        "broker.tls_required",
        "amqps://",
    );
    vhost.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_never_answer_end_the_command_in_time() {
    let services = services();
    let (amqp, management, database) = tokio::join!(
        Proxy::before(&services.amqp),
        Proxy::before(&services.management),
        Proxy::before(&services.database),
    );
    for proxy in [&amqp, &management, &database] {
        proxy.silence();
    }
    let tidegate = on(
        &amqp.url(&services.amqp),
        &management.url(&services.management),
        &database.url(&services.database),
    );
    let began = Instant::now();
    let ran = tidegate.run(&["doctor", "--json"]);
    let took = began.elapsed();
    let of = ["broker", "management", "database"].map(|part| format!("{part}.silent"));
    assert_eq!((ran.code, complaints(&ran)), (7, of.to_vec()), "{ran:?}");
    assert!(took < Duration::from_secs(30), "{took:?}");
}

#[test]
fn what_is_not_configured_is_told_as_not_looked_at() {
    let ran = on("", "", "").run(&["doctor", "--json"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{ran:?}");
    assert!(
        ran.error()["next"].as_str().unwrap().contains("AMQP_URL"),
        "{ran:?}"
    );

    let broken = on(&format!("amqp://u:p@{CLOSED}/v"), "", "")
        .file("topology/order.toml", "[[queue]]\nname = 3\n")
        .run(&["doctor", "--json"]);
    assert_eq!(
        (broken.code, complaints(&broken)),
        (2, vec!["topology.files".to_owned(), "broker.refused".to_owned()]),
        "{broken:?}"
    );
    let unseen: Vec<Value> = broken.json()["notLookedAt"].as_array().unwrap().clone();
    let said: Vec<&str> = unseen.iter().filter_map(|n| n["what"].as_str()).collect();
    assert!(said.contains(&"the database"), "{said:?}");
}
