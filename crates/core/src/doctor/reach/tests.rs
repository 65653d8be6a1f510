//! Each reason with its name and its advice.

use super::*;

fn target(part: Part) -> Target {
    Target {
        part,
        place: "amqp://tide:***@mq:5672/orders".to_owned(),
        host: "mq".to_owned(),
        port: 5672,
        user: "tide".to_owned(),
        inside: "orders".to_owned(),
    }
}

#[test]
fn each_reason_has_its_name_and_says_what_to_do() {
    let said = || "said".to_owned();
    for (why, rule, next) in [
        (Unreached::UnknownHost(said()), "unknown_host", "getent hosts mq"),
        (Unreached::Refused, "refused", "start RabbitMQ there"),
        (Unreached::NoRoute(said()), "no_route", "firewall"),
        (Unreached::Silent(Duration::from_secs(5)), "silent", "firewall"),
        (Unreached::Tls(Tls::Untrusted), "tls_untrusted", "SSL_CERT_FILE"),
        (Unreached::Tls(Tls::WrongName), "tls_name", "issue one for mq"),
        (Unreached::Tls(Tls::OutOfDate), "tls_out_of_date", "renew"),
        (Unreached::Tls(Tls::NotSpoken), "tls_not_spoken", "5671"),
        (Unreached::Tls(Tls::Alert(said())), "tls_alert", "log"),
        (Unreached::Tls(Tls::Other(said())), "tls_failed", "openssl"),
        (Unreached::WantsTls, "tls_required", "amqps://"),
        (Unreached::OtherProtocol, "other_protocol", "AMQP_URL"),
        (Unreached::Dropped, "dropped", "log"),
        (Unreached::Login(said()), "login", "user and password in AMQP_URL"),
        (
            Unreached::Missing(said()),
            "vhost_missing",
            "rabbitmqctl add_vhost orders",
        ),
        (
            Unreached::NoRight(said()),
            "vhost_denied",
            "rabbitmqctl set_permissions -p orders tide",
        ),
        (Unreached::Other(said()), "failed", "log"),
    ] {
        let found = target(Part::Broker).unreached(&why);
        assert_eq!(found.rule, rule, "{why:?}");
        assert!(found.next.contains(next), "{found:?}");
        assert_eq!(found.severity, Severity::Error(Cause::Unreachable));
    }
}

#[test]
fn advice_is_about_the_server_that_is_meant() {
    let database = target(Part::Database);
    for (why, rule, next) in [
        (Unreached::Refused, "refused", "start Postgres there"),
        (Unreached::Tls(Tls::Untrusted), "tls_untrusted", "sslrootcert"),
        (Unreached::Tls(Tls::NotSpoken), "tls_not_spoken", "sslmode"),
        (Unreached::Login(String::new()), "login", "pg_hba.conf"),
        (
            Unreached::Missing(String::new()),
            "database_missing",
            "createdb orders",
        ),
        (
            Unreached::NoRight(String::new()),
            "database_denied",
            "GRANT CONNECT",
        ),
    ] {
        let found = database.unreached(&why);
        assert_eq!(found.rule, rule);
        assert!(found.next.contains(next), "{found:?}");
    }
    let mut odd = target(Part::Broker);
    odd.inside = "it's; rm".to_owned();
    let found = odd.unreached(&Unreached::Missing(String::new()));
    assert!(
        found.next.ends_with(r"rabbitmqctl add_vhost 'it'\''s; rm'"),
        "{found:?}"
    );
    let management = target(Part::Management).unreached(&Unreached::Refused);
    assert!(
        management
            .next
            .contains("rabbitmq-plugins enable rabbitmq_management")
    );
}

#[test]
fn what_did_not_end_is_an_error_and_not_a_silence() {
    let found = too_slow(Part::Database, "the database", Duration::from_secs(18), "db");
    assert_eq!(found.severity, Severity::Error(Cause::Unreachable));
    assert!(
        found.what.contains("within 18 s") && !found.next.is_empty(),
        "{found:?}"
    );
}

#[test]
fn the_brokers_words_about_a_vhost_are_understood() {
    for (said, rule) in [
        ("NOT_ALLOWED - vhost nope not found", "vhost_missing"),
        (
            "NOT_ALLOWED - access to vhost 'orders' refused for user 'tide'",
            "vhost_denied",
        ),
        (
            "NOT_ALLOWED - access to vhost 'orders' refused for user 'tide': connection limit (5) is reached",
            "failed",
        ),
        ("INTERNAL_ERROR", "failed"),
    ] {
        assert_eq!(
            target(Part::Broker).unreached(&of_vhost(said)).rule,
            rule,
            "{said}"
        );
    }
}
