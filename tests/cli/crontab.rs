//! `tidegate cron import` against a ledger.

use serde_json::json;

use crate::{ledger::Ledger, run::Ran};

const CRONTAB: &str = "\
SHELL=/bin/sh
CRON_TZ=Europe/Berlin
# name: morning
0 9 * * mon-fri  report.make {\"all\": true}
@hourly  stock.count {}
# name: backup
0 3 * * * /usr/bin/backup --all
";

#[tokio::test]
async fn a_crontab_is_imported_all_or_nothing() {
    let ledger = Ledger::create().await;
    let import = |text: &str, flags: &[&str]| {
        let arguments = [&["import", "-", "--command-type", "shell.run"], flags].concat();
        ledger.cron_with(&arguments, text)
    };
    let changes = |ran: Ran| -> Vec<String> {
        assert_eq!(ran.code, 0, "{ran:?}");
        let rows = ran.json()["schedules"].take();
        rows.as_array()
            .unwrap()
            .iter()
            .map(|row| {
                format!(
                    "{} {} {}",
                    row["line"],
                    row["change"].as_str().unwrap(),
                    row["name"].as_str().unwrap()
                )
            })
            .collect()
    };
    let count = "SELECT count(*) FROM tidegate.cron_tasks";
    let ran = import(CRONTAB, &["--dry-run"]);
    assert!(
        ran.stderr.contains("stdin:1: SHELL is not carried over"),
        "{ran:?}"
    );
    assert_eq!(
        changes(ran),
        ["4 add morning", "5 add stock.count", "7 add backup"]
    );
    assert_eq!(ledger.one::<i64>(count).await, 0);
    assert_eq!(
        changes(import(CRONTAB, &["--owner", "ops"])),
        ["4 added morning", "5 added stock.count", "7 added backup"]
    );
    let shown = ledger.fine(&["show", "backup"]);
    assert_eq!(
        (
            &shown["payload"],
            &shown["taskType"],
            &shown["timeZone"],
            &shown["owner"]
        ),
        (
            &json!({"command": "/usr/bin/backup --all"}),
            &json!("shell.run"),
            &json!("Europe/Berlin"),
            &json!("ops")
        )
    );

    // Equal rows stay as they are, with what a crontab can't say.
    ledger
        .execute("UPDATE tidegate.cron_tasks SET jitter_ms = 5, enabled = false WHERE name = 'morning'")
        .await;
    assert_eq!(
        changes(import(CRONTAB, &[])),
        [
            "4 unchanged morning",
            "5 unchanged stock.count",
            "7 unchanged backup"
        ]
    );
    let other = CRONTAB.replace("0 9 ", "0 17 ");
    let ran = import(&other, &[]);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert_eq!(ran.error()["errors"][0]["line"], 4);
    let ran = import(&other, &["--dry-run"]);
    assert_eq!(
        (ran.code, &ran.json()["schedules"][0]["change"]),
        (5, &json!("conflict")),
        "{ran:?}"
    );
    assert_eq!(
        changes(import(&other, &["--dry-run", "--replace"])),
        [
            "4 change morning",
            "5 unchanged stock.count",
            "7 unchanged backup"
        ]
    );
    assert_eq!(changes(import(&other, &["--replace"]))[0], "4 changed morning");
    let shown = ledger.fine(&["show", "morning"]);
    assert_eq!(
        (&shown["cronExpression"], &shown["jitterMs"], &shown["enabled"]),
        (&json!("0 17 * * mon-fri"), &json!(5), &json!(false))
    );
    ledger.close().await;
}

#[tokio::test]
async fn every_mistake_in_a_crontab_is_told_at_once_and_nothing_is_written() {
    let ledger = Ledger::create().await;
    ledger.fine(&["add", "taken", "--type", "a.b", "--cron", "@daily"]);
    let text = "0 0 30 2 * a.b {}\n# name: taken\n@hourly a.b {}\n@daily a.c {\"x\": 9007199254740993}\n@daily fine.one\n";
    std::fs::write(ledger.tidegate.path().join("tab"), text).unwrap();
    let ran = ledger.cron(&["import", "tab"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    let errors = ran.error()["errors"].take();
    let told: Vec<(u64, &str)> = errors
        .as_array()
        .unwrap()
        .iter()
        .map(|e| (e["line"].as_u64().unwrap(), e["message"].as_str().unwrap()))
        .collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].0 == 1 && told[0].1.contains("can never fire"), "{told:?}");
    assert!(told[1].0 == 4 && told[1].1.contains("/payload/x"), "{told:?}");
    let text = ledger.tidegate.run(&["cron", "import", "tab"]).stderr;
    assert!(
        text.contains("  - tab:1: ") && text.contains("  - tab:4: "),
        "{text}"
    );
    assert_eq!(
        ledger
            .one::<i64>("SELECT count(*) FROM tidegate.cron_tasks")
            .await,
        1
    );

    std::fs::write(ledger.tidegate.path().join("tab"), [0x30, 0xff]).unwrap();
    assert_eq!(ledger.cron(&["import", "tab"]).code, 2);
    assert_eq!(ledger.cron(&["import", "no-such-file"]).code, 2);
    let ran = ledger.cron_with(&["import", "-"], "# nothing yet\n");
    assert!(
        ran.code == 0 && ran.stderr.contains("no schedule in stdin"),
        "{ran:?}"
    );
    ledger.close().await;
}

/// Of several at once one adds, and for the others there is nothing to do.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn equal_imports_at_once_are_all_fine() {
    let ledger = std::sync::Arc::new(Ledger::create().await);
    let crontab: String = (0..200)
        .map(|n| format!("# name: job-{n}\n@daily a.b {{}}\n"))
        .collect();
    let imports: Vec<_> = (0..4)
        .map(|_| {
            let (ledger, crontab) = (std::sync::Arc::clone(&ledger), crontab.clone());
            tokio::task::spawn_blocking(move || ledger.cron_with(&["import", "-"], &crontab))
        })
        .collect();
    for import in imports {
        let ran = import.await.unwrap();
        assert_eq!(ran.code, 0, "{ran:?}");
    }
    assert_eq!(
        ledger
            .one::<i64>("SELECT count(*) FROM tidegate.cron_tasks")
            .await,
        200
    );
}
