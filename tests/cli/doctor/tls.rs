//! TLS, with a server whose CA nobody trusts unless told.

use tidegate_testkit::{TlsProxy, Vhost, services};

use super::{address, apply, complaints, on, only};

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_tls_is_named_and_the_advice_helps() {
    let vhost = Vhost::create().await;
    assert_eq!(apply(&vhost), 0);
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
    only(&with_ca(&secure("127.0.0.1")), 7, "broker.tls_name", "127.0.0.1");

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

    // The management API likewise.
    let management = services().management;
    let api = TlsProxy::before(&address(&management)).await;
    let with_port = |scheme: &str, place: &str| {
        management
            .replace("http://", scheme)
            .replace(&address(&management), place)
    };
    let place = format!("localhost:{}", api.address().port());
    for (url, rule, advice) in [
        (with_port("https://", &place), "tls_untrusted", "SSL_CERT_FILE"),
        (with_port("http://", &place), "tls_required", "write https://"),
        (
            with_port("https://", &address(&management)),
            "tls_not_spoken",
            "write http://",
        ),
    ] {
        let ran = on(vhost.amqp_url(), &url, "").run(&["doctor", "--json"]);
        only(&ran, 7, &format!("management.{rule}"), advice);
    }
    vhost.close().await;
}
