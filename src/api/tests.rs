//! The two listeners, asked without a socket where that is enough.

use std::future::pending;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::telemetry::{exporter::Exporter, health::Health};

/// A request over a real socket: status, content type, body.
async fn ask(address: SocketAddr, line: &str) -> (u16, String, String) {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream
        .write_all(format!("{line} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes())
        .await
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head[9..12].parse().unwrap();
    let kind = head
        .lines()
        .find_map(|line| line.strip_prefix("content-type: "))
        .unwrap();
    (status, kind.to_owned(), body.to_owned())
}

async fn started(router: Router) -> SocketAddr {
    let listener = bind("127.0.0.1:0".parse().unwrap(), "http.listen").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, router, pending()));
    address
}

#[tokio::test]
async fn readiness_follows_the_parts_and_liveness_does_not() {
    let health = Health::default();
    health.expect("relay");
    health.expect("router");
    health.up("router");
    let address = started(health::router(health.clone())).await;

    let (status, kind, body) = ask(address, "GET /readyz").await;
    assert_eq!((status, kind.as_str()), (503, "application/json"));
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        body,
        json!({"status": "unavailable", "reasons": {"relay": "not started"}})
    );
    assert_eq!(ask(address, "GET /livez").await.0, 200);

    health.up("relay");
    let (status, _, body) = ask(address, "GET /readyz?verbose").await;
    assert_eq!(status, 200);
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        body,
        json!({"status": "ok", "parts": {"relay": "up", "router": "up"}})
    );
    assert_eq!(ask(address, "GET /readyz").await.2, r#"{"status":"ok"}"#);
}

#[tokio::test]
async fn what_does_not_exist_is_a_problem_document() {
    let address = started(health::router(Health::default())).await;
    for (line, expected) in [("GET /metrics", 404), ("GET /", 404), ("POST /readyz", 405)] {
        let (status, kind, body) = ask(address, line).await;
        assert_eq!(
            (status, kind.as_str()),
            (expected, "application/problem+json"),
            "{line}"
        );
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body["status"], expected);
        assert!(body["detail"].is_string());
    }
}

#[tokio::test]
async fn metrics_are_scraped_as_text() {
    let exporter = Exporter::install().unwrap();
    assert!(Exporter::install().is_err(), "one recorder per process");
    let address = started(metrics::router(exporter)).await;
    let (status, kind, body) = ask(address, "GET /metrics").await;
    assert_eq!(
        (status, kind.as_str()),
        (200, "text/plain; version=0.0.4; charset=utf-8")
    );
    assert!(body.contains("tidegate_build_info"), "{body}");
    assert_eq!(ask(address, "GET /livez").await.0, 404);
}

#[tokio::test]
async fn an_address_in_use_names_its_setting() {
    let address = started(Router::new()).await;
    let error = bind(address, "metrics.listen").await.unwrap_err().to_string();
    assert!(
        error.contains("metrics.listen") && error.contains(&address.to_string()),
        "{error}"
    );
}
