//! `tidegate bench` on a real broker, as short as it gets: what it prints, and that it leaves nothing behind.

use serde_json::Value;
use tidegate_testkit::{Database, Vhost, services};

use crate::{ledger::Ledger, run::Tidegate};

const SHORT: [&str; 6] = ["bench", "--duration", "500ms", "--runs", "1", "--json"];

async fn left_behind(vhost: &Vhost) -> Vec<String> {
    let all = vhost
        .management()
        .get("/api/vhosts?columns=name")
        .await
        .unwrap_or_default();
    let prefix = format!("{}.bench.", vhost.name());
    let names = all.as_array().into_iter().flatten();
    names
        .filter_map(|row| row["name"].as_str())
        .filter(|name| name.starts_with(&prefix))
        .map(ToOwned::to_owned)
        .collect()
}

/// The figure of a part and a side.
fn figure<'a>(report: &'a Value, part: &str, side: &str) -> &'a Value {
    let figures = report["figures"].as_array().unwrap();
    let found = figures.iter().find(|f| f["part"] == part && f["side"] == side);
    found.unwrap_or_else(|| panic!("{part}, {side}: {report}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_part_has_figures_and_nothing_is_left_behind() {
    let (vhost, mut ledger) = (Vhost::create().await, Ledger::create().await);
    ledger.tidegate = ledger
        .tidegate
        .env("AMQP_URL", vhost.amqp_url())
        .env("MANAGEMENT_URL", &services().management);
    let ran = ledger.tidegate.run(&SHORT);
    assert_eq!(ran.code, 0, "{ran:?}");
    let report = ran.json();
    for part in ["publish", "drain", "end to end", "end to end with idempotency"] {
        assert!(
            figure(&report, part, "Tidegate")["median"].as_f64().unwrap() > 10.0,
            "{report}"
        );
    }
    for (part, other) in [
        ("drain", "plain lapin, an ack per 50"),
        ("end to end", "plain lapin, an ack each"),
    ] {
        assert!(
            figure(&report, part, other)["median"].as_f64().unwrap() > 10.0,
            "{report}"
        );
        assert!(
            figure(&report, part, "Tidegate")["ratios"][other]
                .as_f64()
                .unwrap()
                > 0.0,
            "{report}"
        );
    }
    // Of one task on a slow machine it may be less than a millisecond; early it never is.
    let late = figure(&report, "lateness of delays", "p99")["median"].as_f64();
    assert!(late.unwrap() >= 0.0, "{report}");
    assert!(left_behind(&vhost).await.is_empty());
    let keys: i64 = ledger.one("SELECT count(*) FROM tidegate.executions").await;
    assert_eq!(keys, 0);
    ledger.close().await;
    vhost.close().await;
}

#[tokio::test]
async fn it_says_what_it_needs() {
    let ran = Tidegate::new()
        .env("AMQP_URL", "amqp://127.0.0.1:1")
        .run(&["bench"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains("MANAGEMENT_URL"), "{ran:?}");
    for arguments in [
        ["bench", "--workers", "0"],
        ["bench", "--size", "70000"],
        ["bench", "--duration", "1ms"],
        ["bench", "--tps", "0"],
    ] {
        assert_eq!(Tidegate::new().run(&arguments).code, 2, "{arguments:?}");
    }
}

#[tokio::test]
async fn a_database_without_the_tables_is_named_before_anything_is_measured() {
    let database = Database::create().await;
    let ran = Tidegate::new()
        .env("AMQP_URL", "amqp://127.0.0.1:1")
        .env("MANAGEMENT_URL", "http://127.0.0.1:1")
        .env("DATABASE_URL", database.url())
        .run(&["bench"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("run `tidegate migrate`"), "{ran:?}");
    database.close().await;
}
