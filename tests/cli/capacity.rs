//! `tidegate capacity`: from numbers, and from what workers export.

use std::time::Duration;

use tidegate::{
    api,
    telemetry::{exporter::Exporter, metrics},
};
use tokio_util::task::AbortOnDropHandle;

use crate::run::Tidegate;

#[test]
fn the_working_is_shown() {
    let tidegate = Tidegate::new();
    let ran = tidegate.run(&[
        "capacity",
        "--rate",
        "100",
        "--duration",
        "250ms",
        "--concurrency",
        "10",
    ]);
    assert_eq!(ran.code, 0, "{ran:?}");
    for part in [
        "N = 100.00 tasks/s, T = 250.0 ms",
        "= 25.00 handlers",
        "33 to 38 handlers",
        "at concurrency 10: 4 to 4",
    ] {
        assert!(ran.stdout.contains(part), "{part}: {ran:?}");
    }
    let ran = tidegate.run(&[
        "capacity",
        "--rate",
        "20",
        "--duration",
        "500ms",
        "--concurrency",
        "1",
        "--json",
    ]);
    assert_eq!(ran.json()["workers"], serde_json::json!([13, 15]), "{ran:?}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let tidegate = Tidegate::new();
    for arguments in [
        vec!["capacity"],
        vec!["capacity", "--rate", "100"],
        vec!["capacity", "--rate", "0", "--duration", "1s"],
        vec!["capacity", "--rate=-5", "--duration", "1s"],
        vec!["capacity", "--rate", "NaN", "--duration", "1s"],
        vec!["capacity", "--rate", "1", "--duration", "0s"],
        vec![
            "capacity",
            "--rate",
            "1",
            "--duration",
            "1s",
            "--concurrency",
            "0",
        ],
        vec!["capacity", "order.close"],
        vec!["capacity", "order.close", "--metrics", "ftp://127.0.0.1/metrics"],
        vec!["capacity", "order.close", "--metrics", "127.0.0.1:9400"],
        vec![
            "capacity",
            "order.close",
            "--metrics",
            "http://127.0.0.1:1",
            "--window",
            "10ms",
        ],
        vec![
            "capacity",
            "order.close",
            "--metrics",
            "http://127.0.0.1:1",
            "--window",
            "1day",
        ],
        vec![
            "capacity",
            "order.close",
            "--metrics",
            "http://127.0.0.1:1/metrics",
            "--metrics",
            "HTTP://127.0.0.1:1/metrics",
        ],
    ] {
        let ran = tidegate.run(&arguments);
        assert_eq!(ran.code, 2, "{arguments:?}: {ran:?}");
    }
    let ran = tidegate.run(&[
        "capacity",
        "order.close",
        "--metrics",
        "http://scraper:s3cret@127.0.0.1:1/metrics",
    ]);
    assert_eq!(ran.code, 7, "{ran:?}");
    assert!(
        ran.stderr.contains("http://scraper:***@127.0.0.1:1/metrics"),
        "{ran:?}"
    );
    assert!(!ran.stderr.contains("s3cret"), "{ran:?}");
}

/// The real exporter on a real listener, in which attempts of 20 ms end all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_type_is_measured() {
    let exporter = Exporter::install().unwrap();
    metrics::know_task_type("order.close");
    let listener = api::bind("127.0.0.1:0".parse().unwrap(), "test").await.unwrap();
    let url = format!("http://{}/metrics", listener.local_addr().unwrap());
    let serving = api::serve(listener, api::metrics::router(exporter), std::future::pending());
    let _serving = AbortOnDropHandle::new(tokio::spawn(serving));
    let _working = AbortOnDropHandle::new(tokio::spawn(async {
        let mut every = tokio::time::interval(Duration::from_millis(10));
        loop {
            every.tick().await;
            metrics::attempt_ended(Some("order.close"), "done", Some(Duration::from_millis(20)));
        }
    }));
    let ran = tokio::task::spawn_blocking(move || {
        let measured = [
            "capacity",
            "order.close",
            "--metrics",
            &url,
            "--window",
            "2s",
            "--json",
        ];
        let unknown = ["capacity", "order.never", "--metrics", &url, "--window", "1s"];
        let tidegate = Tidegate::new();
        (tidegate.run(&measured), tidegate.run(&unknown))
    });
    let (measured, unknown) = ran.await.unwrap();
    let json = measured.json();
    let number = |name: &str| json[name].as_f64().unwrap();
    assert!((19.0..21.0).contains(&number("durationMs")), "{measured:?}");
    assert!((50.0..=110.0).contains(&number("perSecond")), "{measured:?}");
    assert!((number("busy") - number("perSecond") * number("durationMs") / 1000.0).abs() < 1e-6);
    assert_eq!(unknown.code, 4, "{unknown:?}");
    assert!(
        unknown.stderr.contains("no task of order.never ended"),
        "{unknown:?}"
    );
}
