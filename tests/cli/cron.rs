//! `tidegate cron` against a ledger.

use serde_json::{Value, json};

use crate::{ledger::Ledger, run::Tidegate};

#[tokio::test]
async fn a_schedule_lives_from_add_to_remove() {
    let ledger = Ledger::create().await;
    let added = ledger.fine(&[
        "add",
        "nightly",
        "--type",
        "report.make",
        "--cron",
        "0 3 * * FRI#2",
        "--zone",
        "Europe/Berlin",
        "--payload",
        r#"{"a": [1]}"#,
        "--jitter",
        "30s",
        "--timeout",
        "5m",
        "--misfire",
        "catch_up",
        "--catch-up-limit",
        "7",
        "--overlap",
        "skip",
        "--owner",
        "ops",
        "--max-retries",
        "2",
        "--priority",
        "200",
        "--routing-key",
        "report.urgent",
        "--ends-at",
        "2999-01-01T00:00:00Z",
    ]);
    let next = added["nextFireAt"].as_str().unwrap().to_owned();
    assert_eq!(
        added,
        json!({"name": "nightly", "change": "added", "enabled": true, "nextFireAt": next})
    );
    assert_eq!(
        ledger.fine(&["next", "nightly", "--count", "1"])[0]["utc"],
        next.as_str()
    );

    let shown = ledger.fine(&["show", "nightly"]);
    let expected = json!({
        "name": "nightly", "taskType": "report.make", "cronExpression": "0 3 * * FRI#2", "timeZone": "Europe/Berlin",
        "payload": {"a": [1]}, "payloadVersion": 1, "exchange": null, "routingKey": "report.urgent", "enabled": true,
        "misfirePolicy": "catch_up", "catchUpLimit": 7, "overlapPolicy": "skip", "jitterMs": 30_000, "startsAt": null,
        "endsAt": "2999-01-01T00:00:00Z", "maxRetries": 2, "timeoutMs": 300_000, "priority": 200, "owner": "ops",
        "nextFireAt": null, "lastTriggeredAt": null, "accountedUntil": null, "exhausted": false, "lastError": null
    });
    assert_eq!(shown, expected);

    let add = |cron: &'static str| ["add", "nightly", "--type", "report.make", "--cron", cron];
    let ran = ledger.cron(&add("@daily"));
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(
        ran.error()["next"].as_str().unwrap().contains("--replace"),
        "{ran:?}"
    );
    assert_eq!(ledger.fine(&["pause", "nightly"])["changed"], true);
    assert_eq!(ledger.fine(&["pause", "nightly"])["changed"], false);
    let replaced = ledger.fine(&[&add("@daily")[..], &["--replace"]].concat());
    assert_eq!(
        (&replaced["change"], &replaced["enabled"]),
        (&json!("changed"), &json!(false)),
        "it stays paused"
    );
    let again = ledger.fine(&[&add("@daily")[..], &["--replace"]].concat());
    assert_eq!(again["change"], "unchanged");
    assert_eq!(
        ledger.fine(&["show", "nightly"])["jitterMs"],
        0,
        "all of it is replaced"
    );
    let ran = ledger.cron(&["next", "nightly"]);
    assert!(ran.code == 0 && ran.stderr.contains("is paused"), "{ran:?}");
    let resumed = ledger.fine(&["resume", "nightly"]);
    assert_eq!(resumed["changed"], true);
    assert!(resumed["nextFireAt"].as_str().unwrap().ends_with("T00:00:00Z"));

    ledger.fine(&[
        "add",
        "other",
        "--type",
        "a.b",
        "--cron",
        "@hourly",
        "--owner",
        "shop",
        "--disabled",
    ]);
    ledger
        .execute("UPDATE tidegate.cron_tasks SET last_error = 'it broke' WHERE name = 'nightly'")
        .await;
    let names = |rows: Value| -> Vec<String> {
        rows.as_array()
            .unwrap()
            .iter()
            .map(|row| row["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(ledger.fine(&["list"])), ["nightly", "other"]);
    assert_eq!(names(ledger.fine(&["list", "--errors"])), ["nightly"]);
    assert_eq!(names(ledger.fine(&["list", "--owner", "shop"])), ["other"]);
    let text = ledger.tidegate.run(&["cron", "show", "nightly"]).stdout;
    assert!(text.contains("can't be scheduled: it broke"), "{text}");

    assert_eq!(
        ledger.fine(&["remove", "nightly"]),
        json!({"name": "nightly", "removed": true})
    );
    for verb in ["remove", "pause", "resume", "run", "show", "history", "next"] {
        let ran = ledger.cron(&[verb, "nightly"]);
        assert_eq!(ran.code, 4, "{verb}: {ran:?}");
    }
    ledger.close().await;
}

#[tokio::test]
async fn a_payload_comes_from_a_file_or_stdin_too() {
    let ledger = Ledger::create().await;
    std::fs::write(ledger.tidegate.path().join("p.json"), "{\"from\": \"file\"}\n").unwrap();
    let base = [
        "add",
        "x",
        "--type",
        "a.b",
        "--cron",
        "@daily",
        "--replace",
        "--payload",
    ];
    ledger.fine(&[&base[..], &["@p.json"]].concat());
    assert_eq!(ledger.fine(&["show", "x"])["payload"], json!({"from": "file"}));
    let ran = ledger.cron_with(&[&base[..], &["-"]].concat(), "{\"from\": \"stdin\"}");
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(ledger.fine(&["show", "x"])["payload"], json!({"from": "stdin"}));
    ledger.close().await;
}

#[tokio::test]
async fn a_run_by_hand_is_a_task_and_no_occurrence() {
    let ledger = Ledger::create().await;
    ledger.fine(&[
        "add",
        "x",
        "--type",
        "a.b",
        "--cron",
        "@yearly",
        "--payload",
        r#"{"n":1,"of":"{{ name }} {{ task_id }}"}"#,
        "--jitter",
        "1h",
        "--overlap",
        "skip",
        "--routing-key",
        "a.c",
    ]);
    ledger
        .execute("UPDATE tidegate.cron_tasks SET next_fire_at = '2990-01-01Z', version = 7")
        .await;
    let ran = ledger.tidegate.run(&["cron", "run", "x"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let task_id = ran.stdout.trim();
    assert!(task_id.starts_with("cron:x:run:"), "{task_id}");
    ledger.fine(&["pause", "x"]);
    assert!(
        ledger
            .one::<bool>("SELECT envelope::jsonb #>> '{payload,of}' = 'x ' || task_id FROM tidegate.tasks")
            .await,
        "the template is filled in"
    );
    let second = ledger.fine(&["run", "x"])["taskId"].as_str().unwrap().to_owned();
    assert_ne!(second, task_id, "paused, and run all the same");
    let history = ledger.fine(&["history", "x", "--outcome", "manual"]);
    let ids: Vec<&str> = history
        .as_array()
        .unwrap()
        .iter()
        .map(|f| f["taskId"].as_str().unwrap())
        .collect();
    assert_eq!(ids, [second.as_str(), task_id]);
    assert_eq!(
        (
            &history[0]["outcome"],
            &history[0]["taskState"],
            &history[0]["occurrences"]
        ),
        (&json!("MANUAL"), &json!("PENDING"), &json!(1))
    );
    assert!(
        ledger
            .one::<bool>(
                "SELECT bool_and(routing_key = 'a.c' AND due_at <= now() AND origin = 'cron' \
                 AND (envelope::jsonb #>> '{payload,n}') = '1') FROM tidegate.tasks"
            )
            .await
    );
    assert!(
        ledger
            .one::<bool>(
                "SELECT accounted_until IS NULL AND last_triggered_at IS NULL FROM tidegate.cron_tasks"
            )
            .await
    );
    ledger.close().await;
}

#[tokio::test]
async fn history_shows_spans_and_what_became_of_the_tasks() {
    let ledger = Ledger::create().await;
    ledger.fine(&["add", "x", "--type", "a.b", "--cron", "@hourly"]);
    ledger
        .execute(
            "WITH x AS (SELECT id FROM tidegate.cron_tasks), \
               t AS (INSERT INTO tidegate.tasks (task_id, task_type, envelope, state, last_error) \
                     VALUES ('t-2', 'a.b', '{}', 'FAILED', 'it broke')) \
             INSERT INTO tidegate.cron_fires (cron_task_id, fire_at, last_at, occurrences, outcome, task_id) \
             SELECT id, '2026-01-01T00:00:00Z'::timestamptz, NULL::timestamptz, 1, 'FIRED', 't-1' FROM x UNION ALL \
             SELECT id, '2026-01-01T01:00:00Z', '2026-01-03T00:00:00Z', 48, 'SKIPPED_MISFIRE', NULL FROM x UNION ALL \
             SELECT id, '2026-01-03T01:00:00Z', NULL, 1, 'CAUGHT_UP', 't-2' FROM x",
        )
        .await;
    let text = ledger.tidegate.run(&["cron", "history", "x"]).stdout;
    let lines: Vec<Vec<&str>> = text
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        lines[0][..4],
        ["2026-01-03T01:00:00Z", "CAUGHT_UP", "t-2", "FAILED"]
    );
    assert_eq!(
        lines[1][..3],
        [
            "2026-01-01T01:00:00Z…2026-01-03T00:00:00Z",
            "×48",
            "SKIPPED_MISFIRE"
        ]
    );
    assert_eq!(
        lines[2][..6],
        ["2026-01-01T00:00:00Z", "FIRED", "t-1", "no", "longer", "kept"]
    );
    let one = ledger.fine(&["history", "x", "--limit", "1"]);
    assert_eq!(
        (one.as_array().unwrap().len(), &one[0]["taskError"]),
        (1, &json!("it broke"))
    );
    let skipped = ledger.fine(&["history", "x", "--outcome", "SKIPPED_MISFIRE"]);
    assert_eq!(
        (&skipped[0]["lastAt"], &skipped[0]["occurrences"]),
        (&json!("2026-01-03T00:00:00Z"), &json!(48))
    );
    assert_eq!(ledger.cron(&["history", "x", "--outcome", "LOST"]).code, 2);
    ledger.close().await;
}

#[test]
fn next_says_which_rule_about_the_clock_applied() {
    let tidegate = Tidegate::new();
    let run = |expression: &str, after: &str, json: bool| {
        let zone = ["--zone", "America/New_York", "--after", after, "--count", "2"];
        let base = ["cron", "next", "--expression", expression];
        let ran = tidegate.run(&[&base[..], &zone, if json { &["--json"] } else { &[] }].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        ran
    };
    assert_eq!(
        run("30 2 * * *", "2026-03-07T12:00:00Z", false).stdout,
        "2026-03-08T07:00:00Z\t2026-03-08T03:00:00-04:00\tno 2026-03-08 02:00 to 03:00 on the clock: fires once, right after\n\
         2026-03-09T06:30:00Z\t2026-03-09T02:30:00-04:00\n"
    );
    let rule =
        |expression, after, at: usize| run(expression, after, true).json()[at]["rules"][0]["rule"].clone();
    assert_eq!(rule("30 2 * * *", "2026-03-07T12:00:00Z", 0), "made_up");
    assert_eq!(rule("*/15 2 * * *", "2026-03-07T07:45:00Z", 0), "left_out");
    assert_eq!(rule("30 1 * * *", "2026-10-31T12:00:00Z", 0), "first_only");
    assert_eq!(rule("0 * * * *", "2026-11-01T04:30:00Z", 0), "twice_first");
    assert_eq!(rule("0 * * * *", "2026-11-01T04:30:00Z", 1), "twice_second");
    assert_eq!(rule("30 2 * * *", "2026-07-01T00:00:00Z", 0), Value::Null);
}

#[tokio::test]
async fn next_keeps_within_the_window() {
    let ledger = Ledger::create().await;
    ledger.fine(&[
        "add",
        "x",
        "--type",
        "a.b",
        "--cron",
        "@daily",
        "--starts-at",
        "2990-01-02T00:00:00Z",
        "--ends-at",
        "2990-01-04T00:00:00Z",
    ]);
    let utc: Vec<String> = ledger
        .fine(&["next", "x"])
        .as_array()
        .unwrap()
        .iter()
        .map(|o| o["utc"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(utc, ["2990-01-02T00:00:00Z", "2990-01-03T00:00:00Z"]);
    ledger.close().await;
}
