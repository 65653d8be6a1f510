//! A server is away, or doesn't let us in.

use std::time::{Duration, Instant};

use serde_json::Value;
use tidegate_testkit::{Proxy, Vhost, services};

use super::{apply, as_user, assert_no_secret, complaints, on, only};

/// Nothing listens there.
const CLOSED: &str = "127.0.0.1:1";

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
    assert_eq!(apply(&vhost), 0);
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
